"""Records in PostgreSQL 14 or newer, shared by any number of machines."""
