"""The stores pass the suite in a process that gevent or eventlet has patched."""

import sys
from pathlib import Path

import pytest

from tests.heavy import HEAVY
from tests.patience import run_while_it_prints
from tests.servers import postgres, redis

ROOT = Path(__file__).parents[3]
BESIDE = Path(__file__).parent
STORES = {
    "memory": ("test_stores.py", "TestMemory"),
    "sqlite": ("test_stores.py", "TestSQLite"),
    "redis": ("test_redis.py", "TestRedis"),
    "postgres": ("test_postgres.py", "TestPostgres"),
}
NEEDED = {"redis": redis.program, "postgres": postgres.binaries}
# psycopg cannot wait together with eventlet: tests/faults/test_greenlets.py sees that refused.
ALL = [("gevent", store) for store in STORES]
ALL += [("eventlet", store) for store in STORES if store != "postgres"]
SUITES = ALL if HEAVY else [("gevent", "redis")]  # eventlet: tests/faults/test_greenlets.py


@pytest.mark.parametrize(("library", "store"), SUITES)
def test_a_store_passes_the_suite_among_greenlets(library, store):
    if store in NEEDED:
        NEEDED[store]()  # leaves the test out where no servers are started
    module, suite = STORES[store]
    words = ["-m", "tests.patched", library, "-q", f"{BESIDE / module}::{suite}"]
    code, printed = run_while_it_prints([sys.executable, *words], ROOT)
    assert code == 0, printed[-10_000:]
