"""What runs inside the guests' suites. It is imported by their interpreters, not by ours."""
