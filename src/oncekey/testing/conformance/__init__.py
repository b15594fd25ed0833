"""The suite that proves a store, for both colours.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, clock):
            return MyStore(clock=clock)

That is all. The store starts empty for each test, and is closed after it. `Suite` says what
else may be overridden, for a store whose time is its server's.
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
    """What is the same in both colours."""

    def test_it_does_what_the_machine_does(
        self, line: Line, clock: Callable[[], int], tick: Tick
    ) -> None:
        """Whatever is asked in whatever order, at whatever time."""
        time = Time(clock, tick, self.lease, self.ttl)
        check_against_machine(line, time, purges=self.purges)


def missing(store: object, end: str) -> list[str]:
    """What a store has no method for."""
    return [name for name in (*VERBS, end) if not callable(getattr(store, name, None))]


class StoreConformance(_Both):
    """Proves a blocking store. Give it as the fixture `store`."""

    @pytest.fixture
    def store(self) -> Store:
        """The store under test, empty. Yours overrides this one."""
        msg = "a conformance test needs a fixture `store` that returns the store to prove"
        raise NotImplementedError(msg)

    @pytest.fixture
    def line(self, store: Store) -> Iterator[Line]:
        """The store, closed at the end."""
        yield cast("Line", Blocking(store))  # it has the verbs of the store
        store.close()

    def test_it_has_the_shape_of_a_store(self, store: Store) -> None:
        """Every verb is there, and so is `close`; an object that hands them on will do."""
        assert not missing(store, "close")  # noqa: S101 - a test


class AsyncStoreConformance(_Both):
    """Proves a store for coroutines: the same tests, awaited on one event loop."""

    @pytest.fixture
    def store(self) -> AsyncStore:
        """The store under test, empty. Yours overrides this one."""
        msg = "a conformance test needs a fixture `store` that returns the store to prove"
        raise NotImplementedError(msg)

    @pytest.fixture
    def line(self, store: AsyncStore) -> Iterator[Line]:
        """The store, driven on a loop of its own and closed at the end."""
        with asyncio.Runner() as runner:
            line = cast("Line", OnRunner(store, runner))  # partial methods hide their types
            yield line
            line.close()

    def test_it_has_the_shape_of_a_store(self, store: AsyncStore) -> None:
        """Every verb is there, and so is `aclose`; an object that hands them on will do."""
        assert not missing(store, "aclose")  # noqa: S101 - a test
