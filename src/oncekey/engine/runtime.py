"""The core that all views of one `Once` share: store, engines, single flight, cache, observers."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from oncekey.compat import refuse_late_patching, refuse_other_loops, renew_after_fork
from oncekey.engine.breaker import Breaker
from oncekey.engine.cache import Cache
from oncekey.engine.chores import COUNT_EVERY, PURGE_EVERY, Counting, Purging
from oncekey.engine.engine import Engine
from oncekey.engine.engine_async import AsyncEngine
from oncekey.engine.keeper import keeper
from oncekey.engine.single_flight import Flights
from oncekey.errors import ConfigurationError
from oncekey.observe import Observer, Observers
from oncekey.observe.logger import logger
from oncekey.policy import size
from oncekey.stores import AsyncStore, Store, open_store
from oncekey.stores.adapters import Looped, Threaded
from oncekey.stores.base import VERBS
from oncekey.stores.sqlalchemy import AnyEngine, is_engine, store_on

if TYPE_CHECKING:
    from oncekey.doctor.startup import StartupCheck


DEFAULT_STORE: Final = "sqlite:///oncekey.db"
_DEFAULT_CACHE: Final = "16MiB"


class Core:
    """One store for blocking and async code, with single flight, cache and observers."""

    def __init__(
        self,
        store: str | Store | AsyncStore | AnyEngine | None,
        observers: Iterable[Observer],
        cache: bool | str | int | None,  # noqa: FBT001 - as the user passes it
        prefix: str,
    ) -> None:
        """Choose the store. Nothing is opened before the first use."""
        self.observers: Final = Observers(observers)
        self.flights: Final = Flights()
        self._lock = threading.Lock()
        self.given: Final = _chosen(store, prefix)
        self._blocking, self._awaiting = _both_colours(self.given)
        behind = self._blocking or cast("Store", cast("Looped", self._awaiting).blocking)
        self.cache: Final = _cache(cache, remote=getattr(behind, "remote", True))
        self._behind = behind
        self.breaker = Breaker(behind, self.observers)
        self._engine: Engine | None = None
        self._engine_async: AsyncEngine | None = None
        self._purging = False
        self._counting: Counting | None = None
        self.doctor: StartupCheck | None = None
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start the chores again in a forked child: the keeper of the parent is not there."""
        self._purging = False
        self._counting = None
        self.observers.tally.take()  # the parent writes down what it has counted

    @property
    def store(self) -> Store:
        """The store for blocking code. Raise ConfigurationError if the store is async."""
        if self._blocking is None:
            msg = "this Once has an async store; use the _async methods and coroutine functions"
            raise ConfigurationError(msg)
        return self._blocking

    @property
    def store_async(self) -> AsyncStore:
        """The store for coroutines. A blocking store is adapted."""
        if self._awaiting is None:
            blocking = self.store
            as_async = getattr(blocking, "as_async", None)
            self._awaiting = Threaded(blocking) if as_async is None else as_async()
        return cast("AsyncStore", self._awaiting)

    def engine(self) -> Engine:
        """Return the engine for blocking code, created at the first use."""
        if self._engine is None:
            refuse_late_patching()
            self._engine = Engine(
                self.store,
                self._behind,
                self.flights,
                self.observers,
                self.cache,
                self.breaker,
            )
            if self.doctor is not None:
                self._engine.examine = self.doctor.check
        if not self._purging:
            self._purge_by_itself()
        return self._engine

    def engine_async(self) -> AsyncEngine:
        """Return the engine for coroutines, created at the first use."""
        if self._engine_async is None:
            refuse_late_patching()
            refuse_other_loops()
            self._engine_async = AsyncEngine(
                self.store_async,
                self._behind,
                self.flights,
                self.observers,
                self.cache,
                self.breaker,
            )
            if self.doctor is not None:
                self._engine_async.examine = self.doctor.check_async
        if not self._purging:
            self._purge_by_itself()
        return self._engine_async

    def _purge_by_itself(self) -> None:
        """Start to purge and count, once in every process that uses the store, also forked ones."""
        self._purging = True
        keeper.take_up(Purging(self._behind, self.observers), PURGE_EVERY)
        if hasattr(self._behind, "add_activity"):
            self._counting = Counting(self._behind, self.observers)
            keeper.take_up(self._counting, COUNT_EVERY)

    def write_counts(self) -> None:
        """Write to the store what was counted for the charts since the last time."""
        if self._counting is not None:
            self._counting.do()

    def forgotten(self, identity: tuple[str | None, str]) -> None:
        """Drop a record that was changed by hand from the cache, and land its flight."""
        if self.cache is not None:
            self.cache.drop(identity)
        self.flights.forget(identity)


def _chosen(store: str | Store | AsyncStore | AnyEngine | None, prefix: str) -> Store | AsyncStore:
    if store is None:
        return _from_environment(prefix)
    if isinstance(store, str):
        return open_store(store, prefix=prefix)
    if is_engine(store):
        return store_on(store)
    if isinstance(store, type):
        msg = f"{store.__name__} is a class; write Once({store.__name__}(...))"
        raise ConfigurationError(msg)
    missing = [verb for verb in VERBS if not callable(getattr(store, verb, None))]
    if missing:
        if type(store).__module__.partition(".")[0] == "redis":
            name = "AsyncRedisStore" if "asyncio" in type(store).__module__ else "RedisStore"
            msg = f"a client of redis-py is not a store; write Once({name}(client))"
            raise ConfigurationError(msg)
        msg = (
            f"a store is a URL, an engine of SQLAlchemy or an object with the verbs of "
            f"oncekey.stores.Store, but {type(store).__name__} has no {', '.join(missing)}"
        )
        raise ConfigurationError(msg)
    return cast("Store | AsyncStore", store)


def _from_environment(prefix: str) -> Store:
    for name in ("ONCEKEY_STORE", "REDIS_URL"):
        url = os.environ.get(name)
        if url:
            try:
                return open_store(url, prefix=prefix)
            except ConfigurationError as error:
                msg = f"${name} names no store that can be opened: {error}"
                raise ConfigurationError(msg) from None
    file = Path(DEFAULT_STORE.removeprefix("sqlite:///")).absolute()
    logger.warning("no store was given; records go to the file %s", file)
    return open_store(DEFAULT_STORE)


def _both_colours(store: Store | AsyncStore) -> tuple[Store | None, Any]:
    if inspect.iscoroutinefunction(store.claim):
        return None, Looped(cast("AsyncStore", store))
    return cast("Store", store), None


def _cache(wanted: bool | str | int | None, *, remote: bool) -> Cache | None:  # noqa: FBT001 - as the user passes it
    """Return a cache of the wanted size, or None. By default only remote stores have one."""
    if wanted is None:
        wanted = remote
    if wanted == 0:  # or False
        return None
    return Cache(size(_DEFAULT_CACHE if wanted is True else wanted, "cache"))
