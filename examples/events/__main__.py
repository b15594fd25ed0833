"""A job with five stages, watched in a browser."""

from __future__ import annotations

import argparse
import sys

from examples.events.serving import serve


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m examples.events", description=__doc__)
    parser.add_argument("--store", default="memory://", help="a URL of Redis; memory by default")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--pace", type=float, default=0.6, help="seconds before each event")
    said = parser.parse_args()
    return serve(said.store, said.port, said.pace)


if __name__ == "__main__":
    sys.exit(main())
