"""Ports for the servers that tests start.

The ports stay below those that the system hands out for outgoing connections, so that no client
takes one between the moment it is chosen and the moment the server listens. Each worker of
pytest-xdist has a range of its own. Two test runs on one machine share the ranges; they start at
random places, and a server that ends at once because it lost its port is given another one.
"""

import os
import secrets
import socket
from collections.abc import Iterator
from itertools import count

FIRST = 10_000
LAST = 19_999
CLUSTER_BUS = 10_000
"""A node of a Redis Cluster also listens this much higher, which is below the ephemeral ports."""


def free_port(*offsets: int) -> int:
    """Return a port that is free, with the ports at `offsets` above it free as well."""
    for port in _candidates:
        if all(_is_free(port + offset) for offset in (0, *offsets)):
            return port
    raise AssertionError("unreachable: the candidates do not end")


def _cycle() -> Iterator[int]:
    """Go through the range of this worker, from a random place on."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = (LAST + 1 - FIRST) // workers
    start = secrets.randbelow(size)
    for step in count():
        yield FIRST + number * size + (start + step) % size


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_candidates = _cycle()
