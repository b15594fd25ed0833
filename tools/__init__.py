"""Tools for work on the tree itself."""
