"""The MySQL store in both colours, on a real MariaDB, passes the suite of every store."""

import asyncio

import pytest

from oncekey.stores import AsyncMySQLStore, MySQLStore
from oncekey.testing import AsyncStoreConformance, StoreConformance
from oncekey.testing.conformance.base import OnRunner
from tests.stores.conformance.real_time import OnRealTime
from tests.system.mariadb.moved_time import MovedTime


class OnMovedTime:
    """Time stands still, so every rule is met at its very microsecond."""

    @pytest.fixture(scope="class")
    def _moved_time(self, mariadb):
        clock = MovedTime(mariadb, mariadb.new_database())
        yield clock
        clock.close()

    @pytest.fixture
    def clock(self, _moved_time):
        _moved_time.start_again()
        return _moved_time


@pytest.mark.row("J4", "P11")
class TestMySQL(OnMovedTime, StoreConformance):
    @pytest.fixture
    def store(self, clock):
        return MySQLStore(clock.url)


@pytest.mark.row("J4")
class TestAsyncMySQL(OnMovedTime, AsyncStoreConformance):
    @pytest.fixture
    def store(self, clock):
        return AsyncMySQLStore(clock.url)


class TestMySQLOnItsOwnTime(OnRealTime):
    @pytest.fixture
    def store(self, url):
        store = MySQLStore(url)
        yield store
        store.close()


class TestAsyncMySQLOnItsOwnTime(OnRealTime):
    @pytest.fixture
    def store(self, url):
        with asyncio.Runner() as runner:
            store = OnRunner(AsyncMySQLStore(url), runner)
            yield store
            store.close()
