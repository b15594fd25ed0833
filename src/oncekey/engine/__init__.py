"""The shell around the rules: asks stores, waits, recovers from what goes wrong between."""
