"""Two deliveries at once: threads whose end is awaited, and a look at who waits for a lock."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

PATIENCE = 20.0
PRELOADED = [
    "tests.surfaces.messages.consumer",
    "tests.surfaces.messages.stream_consumer",
    "django.db.backends.postgresql.base",
]
"""What the processes of these tests need, imported once for all of them."""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@contextmanager
def aside():
    """Runs functions on threads; each gives a future."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def until(condition):
    """It holds, or the test fails."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.002)


def until_blocked(way, count=1):
    """So many statements wait for a lock of somebody else."""
    until(lambda: way.execute(WAITING)[0][0] >= count)
