"""Whether this is the long run of `make test-all`, in which everything is tried more often."""

import os

HEAVY = os.environ.get("HYPOTHESIS_PROFILE") == "heavy"
