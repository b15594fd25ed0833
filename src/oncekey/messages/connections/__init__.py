"""The connections that an inbox or an outbox opens itself, one module for each database."""
