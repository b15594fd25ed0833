"""The simulated store is a store: the same requests get the same answers from real ones."""

import msgspec
import pytest

from oncekey.stores import MemoryStore, PostgresStore, RedisStore, SQLiteStore
from oncekey.testing import FakeClock
from oncekey.testing.model import Time, check_against_machine
from oncekey.testing.reference import RULES, Reference
from tests.heavy import HEAVY
from tests.servers.postgres_fixtures import _shared_database, empty_postgres_url, postgres
from tests.servers.redis_fixtures import empty_redis, redis_server
from tests.simulation.simulator_process import simulate
from tests.simulation.stage import EPOCH
from tests.simulation.store import SimulatedStore
from tests.stores.conformance import postgres_time, redis_time

__all__ = ["_shared_database", "empty_postgres_url", "empty_redis", "postgres", "redis_server"]

VERBS = {kind.__name__: kind for kind in RULES}


def test_the_simulated_store_passes_the_model_of_every_store():
    clock = FakeClock()
    check_against_machine(SimulatedStore(clock), Time(clock, clock.tick, 200_000, 300_000))


@pytest.fixture(scope="module")
def histories():
    done = simulate(str(300 if HEAVY else 40), module="tests.simulation.histories")
    assert done.returncode == 0, done.stderr.decode()
    told = msgspec.msgpack.decode(done.stdout)
    assert sum(map(len, told)) > 400
    return told


def check(store, clock, histories):
    """Each request gets the answer that the machine gives, and leaves what it leaves."""
    machine = Reference(clock)
    for number, history in enumerate(histories):
        start, latest = clock(), EPOCH
        for now, verb, fields in history:
            clock.tick(max(0, now - latest))
            latest = max(latest, now)
            if "token" in fields:
                fields["token"] += start - EPOCH
            fields["scope"] = f"{number}{fields['scope']}"
            ask = msgspec.convert(fields, VERBS[verb])
            expected = getattr(machine, verb.lower())(ask)
            assert getattr(store, verb.lower())(ask) == expected, (number, ask)
            assert store.get(ask.scope, ask.key) == machine.get(ask.scope, ask.key), (number, ask)
    store.close()


def test_memory_answers_as_the_simulated_store(histories):
    clock = FakeClock()
    check(MemoryStore(clock=clock), clock, copied(histories))


def test_sqlite_answers_as_the_simulated_store(histories, tmp_path):
    clock = FakeClock()
    store = SQLiteStore(tmp_path / "records.db", clock=clock, synchronous="NORMAL")
    check(store, clock, copied(histories))


def test_redis_answers_as_the_simulated_store(histories, empty_redis):
    with empty_redis.client() as client:
        clock = redis_time.MovedTime(client)
        store = RedisStore.from_url(empty_redis.url)
        store._scripts = redis_time.moved(client.info("server"))
        check(store, clock, copied(histories))


def test_postgres_answers_as_the_simulated_store(histories, empty_postgres_url):
    clock = postgres_time.MovedTime(empty_postgres_url)
    try:
        check(PostgresStore(clock.url), clock, copied(histories))
    finally:
        clock.close()


def copied(histories):
    return [[(now, verb, dict(fields)) for now, verb, fields in one] for one in histories]
