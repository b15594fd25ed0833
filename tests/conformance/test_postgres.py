"""The PostgreSQL store in both colours, on a real server, passes the suite of every store."""

import asyncio

import pytest

from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.testing import AsyncStoreConformance, StoreConformance
from oncekey.testing.suite.desk import Desk
from oncekey.testing.suite.drive import OnRunner
from oncekey.verbs import Busy, Replay
from tests.conformance.postgres_time import MovedTime, real_time, wait
from tests.servers.postgres_fixtures import (
    _shared_database,
    empty_postgres_url,
    postgres,
)

__all__ = ["_shared_database", "empty_postgres_url", "postgres"]


class OnMovedTime:
    """Time stands still, so every rule is met at its very microsecond."""

    @pytest.fixture
    def clock(self, empty_postgres_url):
        clock = MovedTime(empty_postgres_url)
        yield clock
        clock.close()


@pytest.mark.row("J4", "P11")
class TestPostgres(OnMovedTime, StoreConformance):
    @pytest.fixture
    def store(self, clock):
        return PostgresStore(clock.url)


@pytest.mark.row("J4")
class TestAsyncPostgres(OnMovedTime, AsyncStoreConformance):
    @pytest.fixture
    def store(self, clock):
        return AsyncPostgresStore(clock.url)


class OnRealTime:
    """The server's own clock, which the suite on moved time replaces: a tick really waits."""

    lease = 300_000

    def desk(self, store):
        return Desk(store, lease=self.lease, ttl=self.lease)

    def test_times_are_the_servers(self, store):
        earliest = real_time()
        answer = self.desk(store).claim("a")
        assert earliest <= answer.now <= real_time()
        record = answer.record
        assert record.started == record.token == answer.now

    def test_a_lease_and_a_life_end_by_themselves(self, store):
        desk = self.desk(store)
        owner = desk.grant("a")
        assert type(desk.claim("b")) is Busy
        wait(self.lease)
        second = desk.grant("b")
        assert (second.attempt, second.token > owner.token) == (2, True)
        desk.settle(second)
        assert type(desk.claim("c")) is Replay
        wait(self.lease)
        assert desk.get() is None
        assert store.purge(0, 10) == 1


class TestPostgresOnItsOwnTime(OnRealTime):
    @pytest.fixture
    def store(self, empty_postgres_url):
        store = PostgresStore(empty_postgres_url)
        yield store
        store.close()


class TestAsyncPostgresOnItsOwnTime(OnRealTime):
    @pytest.fixture
    def store(self, empty_postgres_url):
        with asyncio.Runner() as runner:
            store = OnRunner(AsyncPostgresStore(empty_postgres_url), runner)
            yield store
            store.close()
