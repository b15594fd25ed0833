"""Workers: jobs that are delivered twice and done once."""
