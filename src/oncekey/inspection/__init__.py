"""Show records to people and change them by hand, for the command line and the dashboard."""
