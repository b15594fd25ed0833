"""What a run says: its rows, on a terminal, as JSON, as docs/benchmarks.md with charts."""
