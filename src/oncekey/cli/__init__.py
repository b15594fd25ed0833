"""The command line, one module per command. It needs the extra `oncekey[cli]`."""
