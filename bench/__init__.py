"""Measurements against raw limits and peers; `python -m bench` runs them."""
