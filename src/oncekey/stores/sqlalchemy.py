"""Stores on an engine of SQLAlchemy. Nothing is imported from it unless somebody passes one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeGuard

from oncekey.compat import leave_alone, renew_after_fork, running_loop
from oncekey.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.pool import Pool

    from oncekey.stores.base import AsyncStore, Store


_ENGINES: Final = ("Engine", "AsyncEngine")


class AnyEngine(Protocol):
    """An engine of SQLAlchemy, as `create_engine` or `create_async_engine` returns it."""

    @property
    def dialect(self) -> Any:
        """What it knows about its database and its driver."""

    @property
    def url(self) -> Any:
        """The address of its database."""

    def raw_connection(self) -> Any:
        """Return a connection of its pool."""


def is_engine(given: object) -> TypeGuard[AnyEngine]:
    """Return whether it is an engine of SQLAlchemy, for blocking code or for coroutines."""
    return any(
        kind.__name__ in _ENGINES and kind.__module__.partition(".")[0] == "sqlalchemy"
        for kind in type(given).__mro__
    )


def store_on(engine: AnyEngine) -> Store | AsyncStore:
    """Return the store for the database of an engine.

    Raise ConfigurationError if there is none for its database or its driver.
    """
    make = _STORES.get(engine.dialect.name)
    if make is None:
        known = " and ".join(sorted(_STORES))
        msg = (
            f"Once takes engines of {known}, but this one is for {engine.dialect.name}; give it "
            f"the URL of a store instead"
        )
        raise ConfigurationError(msg)
    return make(engine)


class SharedEngine:
    """An engine of the application, whose pool lends connections to a store as well."""

    def __init__(self, engine: Any, wanted: tuple[str, ...], port: int) -> None:
        """Check the engine without connecting.

        Raise ConfigurationError if it is for none of the `wanted` databases and drivers, or if its
        pool lends one connection to several users at once. `port` is the usual one.
        """
        from sqlalchemy.pool import StaticPool

        self.engine: Final = engine
        self.pool_of: Final[Engine] = getattr(engine, "sync_engine", engine)
        self.awaits: Final = self.pool_of is not engine
        self._port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: Pool | None = None
        dialect = engine.dialect
        found = f"{dialect.name}+{dialect.driver}"
        if found not in wanted:
            msg = (
                f"this store shares an engine of {wanted[0]}, but this one is of {found}; create "
                f"it with a URL that begins with {wanted[0]}://, or give the store the URL "
                f"{wanted[0].partition('+')[0]}://..., and it opens connections of its own"
            )
            raise ConfigurationError(msg)
        if dialect.is_async and not self.awaits:
            msg = "this is the inside of an async engine; pass the AsyncEngine itself"
            raise ConfigurationError(msg)
        if isinstance(self.pool_of.pool, StaticPool):
            msg = (
                "a StaticPool lends one connection to everybody at once, also in the middle of a "
                "transaction; create the engine with another poolclass"
            )
            raise ConfigurationError(msg)
        renew_after_fork(self)

    @property
    def where(self) -> str:
        """The place of the database, without a password."""
        url = self.pool_of.url
        return f"{url.host or 'the local socket'}:{url.port or self._port}/{url.database or ''}"

    def belong_here(self) -> None:
        """Remember the running loop. Raise ConfigurationError if the pool belongs to another one.

        The pool of an AsyncEngine belongs to one loop until it is disposed of.
        """
        from sqlalchemy.pool import NullPool

        loop, pool = running_loop(), self.pool_of.pool
        if pool is self._pool and loop is not self._loop and not isinstance(pool, NullPool):
            msg = (
                "the connections of this AsyncEngine belong to another event loop; create it with "
                "poolclass=NullPool for several loops, or await its dispose() before a loop ends"
            )
            raise ConfigurationError(msg)
        self._loop, self._pool = loop, pool

    def after_fork(self) -> None:
        """Give the child a pool of its own, as SQLAlchemy asks of everybody who forks.

        On an inherited connection it might read the answers to its parent's statements.
        """
        leave_alone(self.pool_of.pool)
        self.pool_of.dispose(close=False)


# The table of databases. Another one needs a store that knows engines, and a row here.


def _postgres(engine: Any) -> Store | AsyncStore:
    from oncekey import stores

    kind = stores.AsyncPostgresStore if hasattr(engine, "sync_engine") else stores.PostgresStore
    store: Store | AsyncStore = kind(engine)
    return store


def _mysql(engine: Any) -> Store | AsyncStore:
    from oncekey import stores

    kind = stores.AsyncMySQLStore if hasattr(engine, "sync_engine") else stores.MySQLStore
    store: Store | AsyncStore = kind(engine)
    return store


def _sqlite(engine: Any) -> Store:
    """Return a store that opens the same file by itself.

    A store in SQLite writes on one connection, which it sets up and never leaves in a transaction.
    """
    dialect, file = engine.dialect, engine.url.database or ""
    if dialect.driver not in ("pysqlite", "aiosqlite"):
        msg = f"a store cannot read the file of an engine of sqlite+{dialect.driver}"
        raise ConfigurationError(msg)
    if file in ("", ":memory:"):
        msg = (
            "the database of this engine is in memory, where no second connection sees it; use an "
            "engine with a file, or Once('memory://')"
        )
        raise ConfigurationError(msg)
    if file.startswith("file:"):
        msg = f"write the path of the file in the URL of the engine, instead of {file!r}"
        raise ConfigurationError(msg)
    from oncekey import stores

    return stores.SQLiteStore(file)


_STORES: Final[dict[str, Callable[[Any], Store | AsyncStore]]] = {
    "mariadb": _mysql,
    "mysql": _mysql,
    "postgresql": _postgres,
    "sqlite": _sqlite,
}
