"""The suite that proves a store, blocking or async.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, clock):
            return MyStore(clock=clock)

That is all. The store starts empty for each test, and is closed after it. `Suite` says what
else may be overridden, for a store that uses the clock of its server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from oncekey.stores.base import VERBS, AsyncStore, Store
from oncekey.testing.conformance.base import Blocking, Line, OnRunner, Tick
from oncekey.testing.conformance.claims import Claims
from oncekey.testing.conformance.concurrency import Concurrency
from oncekey.testing.conformance.contents import Contents
from oncekey.testing.conformance.endings import Endings
from oncekey.testing.conformance.housekeeping import Housekeeping
from oncekey.testing.conformance.ownership import Ownership
from oncekey.testing.model import Time, check_against_machine


class _Both(Claims, Ownership, Endings, Housekeeping, Contents, Concurrency):
    """The tests that are the same for blocking and async stores."""

    def test_it_does_what_the_machine_does(
        self, line: Line, clock: Callable[[], int], tick: Tick
    ) -> None:
        """Check random requests, in any order and at any time, against the machine."""
        time = Time(clock, tick, self.lease, self.ttl)
        check_against_machine(line, time, purges=self.purges)


def missing(store: object, end: str) -> list[str]:
    """Return the names of the methods that a store lacks."""
    return [name for name in (*VERBS, end) if not callable(getattr(store, name, None))]


class StoreConformance(_Both):
    """Prove a blocking store. Give it as the fixture `store`."""

    @pytest.fixture
    def store(self) -> Store:
        """Return the store under test, empty. Override this fixture."""
        msg = "a conformance test needs a fixture `store` that returns the store to prove"
        raise NotImplementedError(msg)

    @pytest.fixture
    def line(self, store: Store) -> Iterator[Line]:
        """Yield the store, and close it at the end."""
        yield cast("Line", Blocking(store))  # it has the methods of the store
        store.close()

    def test_it_has_the_shape_of_a_store(self, store: Store) -> None:
        """Check for every request and `close`; an object that passes them on will do."""
        assert not missing(store, "close")  # noqa: S101 - a test


class AsyncStoreConformance(_Both):
    """Prove an async store: the same tests, awaited on one event loop."""

    @pytest.fixture
    def store(self) -> AsyncStore:
        """Return the store under test, empty. Override this fixture."""
        msg = "a conformance test needs a fixture `store` that returns the store to prove"
        raise NotImplementedError(msg)

    @pytest.fixture
    def line(self, store: AsyncStore) -> Iterator[Line]:
        """Yield the store, driven on a loop of its own, and close it at the end."""
        with asyncio.Runner() as runner:
            line = cast("Line", OnRunner(store, runner))  # partial methods hide their types
            yield line
            line.close()

    def test_it_has_the_shape_of_a_store(self, store: AsyncStore) -> None:
        """Check for every request and `aclose`; an object that passes them on will do."""
        assert not missing(store, "aclose")  # noqa: S101 - a test
