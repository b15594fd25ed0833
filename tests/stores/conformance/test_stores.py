"""Every store of this project passes the suite that it offers to others."""

import pytest

from oncekey.stores import MemoryStore, SQLiteStore
from oncekey.stores.adapters import Threaded
from oncekey.stores.base import VERBS
from oncekey.testing import AsyncStoreConformance, FakeClock, StoreConformance
from oncekey.testing.model import Time, check_against_machine
from oncekey.testing.reference import Reference


@pytest.mark.row("J4")
class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self, clock):
        return MemoryStore(clock=clock)


@pytest.mark.row("J4")
class TestAsyncMemory(AsyncStoreConformance):
    @pytest.fixture
    def store(self, clock):
        return MemoryStore(clock=clock).as_async()


# NORMAL spares the fsync of each commit. What the suite proves does not depend on it.
@pytest.mark.row("J4")
class TestSQLite(StoreConformance):
    @pytest.fixture
    def store(self, clock, tmp_path):
        return SQLiteStore(tmp_path / "records.db", clock=clock, synchronous="NORMAL")


@pytest.mark.row("J4")
class TestAsyncSQLite(AsyncStoreConformance):
    @pytest.fixture
    def store(self, clock, tmp_path):
        return SQLiteStore(tmp_path / "records.db", clock=clock, synchronous="NORMAL").as_async()


class SomebodyElses:
    """A store that inherits nothing of ours."""

    def __init__(self, clock):
        self._inner = MemoryStore(clock=clock)

    def claim(self, ask):
        return self._inner.claim(ask)

    def renew(self, ask):
        return self._inner.renew(ask)

    def note(self, ask):
        return self._inner.note(ask)

    def settle(self, ask):
        return self._inner.settle(ask)

    def release(self, ask):
        return self._inner.release(ask)

    def resolve(self, ask):
        return self._inner.resolve(ask)

    def forget(self, ask):
        return self._inner.forget(ask)

    def get(self, scope, key):
        return self._inner.get(scope, key)

    def scan(self, ask):
        return self._inner.scan(ask)

    def purge(self, grace, limit):
        return self._inner.purge(grace, limit)

    def close(self):
        self._inner.close()


@pytest.mark.row("J4")
class TestThreaded(AsyncStoreConformance):
    @pytest.fixture
    def store(self, clock):
        return Threaded(SomebodyElses(clock))


class InTurns:
    """Each verb goes to the next of several stores."""

    def __init__(self, *stores):
        self._stores = stores
        self._turn = 0

    def __getattr__(self, name):
        if name not in VERBS:
            raise AttributeError(name)
        self._turn += 1
        return getattr(self._stores[self._turn % len(self._stores)], name)

    def close(self):
        for store in self._stores:
            store.close()


class TestTwoInstancesOfOneFile(StoreConformance):
    """Two processes see one file as two objects do: neither may keep anything for itself."""

    @pytest.fixture
    def store(self, clock, tmp_path):
        path = tmp_path / "records.db"
        return InTurns(
            SQLiteStore(path, clock=clock, synchronous="NORMAL"),
            SQLiteStore(path, clock=clock, synchronous="NORMAL"),
        )


def test_the_machine_itself_passes_its_model():
    clock = FakeClock()
    check_against_machine(Reference(clock), Time(clock, clock.tick, 200_000, 300_000))
