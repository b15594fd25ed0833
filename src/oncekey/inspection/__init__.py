"""What people see of records and do to them, once for the command line and the dashboard."""
