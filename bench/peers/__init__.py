"""The other libraries that are measured: how each is installed, opened and tried."""
