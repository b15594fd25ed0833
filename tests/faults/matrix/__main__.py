"""Runs the fault matrix: python -m tests.faults.matrix [--rows F1,F4] [--stores sqlite,redis]"""

import sys

from tests.faults.matrix.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
