"""Suites that nobody here wrote, with our middlewares and our decorator around what they test."""
