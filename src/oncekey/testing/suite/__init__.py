"""The parts of the suite that proves a store, one subject each."""
