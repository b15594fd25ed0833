"""The rules, without I/O or clock: what may happen to a record, what a caller does next."""
