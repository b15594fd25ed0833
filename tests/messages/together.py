"""Two deliveries at once: threads whose end is awaited, and a look at who waits for a lock."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.messages.ways import Way
from tests.patience import until

PRELOADED = [
    "tests.messages.consumer",
    "tests.messages.stream_consumer",
    "django.db.backends.postgresql.base",
]
"""What the processes of these tests need, imported once for all of them."""
WAITING = Way.WAITING


@contextmanager
def aside():
    """Runs functions on threads; each gives a future."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def lapse(way):
    """The lease of whoever has one is over, as if nobody had renewed it."""
    past = "2026-01-01 00:00:00"
    way.execute(f"UPDATE processed_messages SET lease_end = '{past}'")  # noqa: S608 - a constant


def until_blocked(way, count=1):
    """So many statements wait for a lock of somebody else."""
    until(lambda: way.execute(way.WAITING)[0][0] >= count)
