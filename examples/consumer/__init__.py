"""Orders consumed from NATS into PostgreSQL, each with one reply."""
