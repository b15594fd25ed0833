"""The command line: one module per command. It needs `oncekey[cli]`."""
