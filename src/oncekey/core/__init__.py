"""The rules of the library as pure functions and values, without I/O and without a clock."""
