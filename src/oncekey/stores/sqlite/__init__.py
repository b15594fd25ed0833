"""Records in one SQLite file, shared by any number of threads and processes of one machine."""
