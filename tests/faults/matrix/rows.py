"""The rows of the matrix: all of them, and those that are not run here, with the reason."""

from tests.faults.matrix import (
    rows_events,
    rows_failover,
    rows_meaning,
    rows_network,
    rows_pooler,
    rows_processes,
    rows_stores,
    rows_workers,
)

__all__ = [
    "rows_events",
    "rows_failover",
    "rows_meaning",
    "rows_network",
    "rows_pooler",
    "rows_processes",
    "rows_stores",
    "rows_workers",
]

ROWS = [f"F{number}" for number in range(1, 34)]

FAIL_OVERS = ("F30", "F31", "F32")
"""Those that `--failovers` repeats."""

NOT_RUN = {
    "F6": (
        "Power cuts on SQLite: nothing here tells what of its file was on the disk. Of Redis it is"
        " not known either: with `everysec` its file loses its last second, with `always` nothing,"
        " because it answers only after the disk did. Of PostgreSQL it is known."
    ),
    "F10": "SQLite: its time is that of the machine, so that a wrong clock is the store's own.",
    "F13": "HTTP (5xx, streams, large bodies): `tests/http/suite` has each of them.",
    "F14": "Dead-letter queues: `tests/jobs`, `tests/messages` and `tests/events` have them.",
    "F19": "A place older than the log, another epoch: `tests/events/test_kills.py`.",
    "F22": "MOVED, CLUSTERDOWN and pools without a free connection: `tests/stores` has them.",
    "F23": "There is no earlier release whose records could be read yet.",
    "F24": "`make soak` runs it; its figures stand below.",
    "F27": (
        "Redis: redis-py takes a connection whose handshake a signal has cut off for a ready one."
    ),
}
"""What is left out, and where it is tested instead."""
