"""Loans of the pool of a SQLAlchemy engine, which the sessions of the application use too."""

# Generated from engine_async.py by "make generate": do not edit.

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import exc

from oncekey.errors import StoreError
from oncekey.stores.sqlalchemy import SharedEngine

if TYPE_CHECKING:
    from sqlalchemy.pool import PoolProxiedConnection


class Loans:
    """Connections that the pool of an engine lends, each to one verb, between its other users."""

    def __init__(
        self,
        shared: SharedEngine,
        failures: type[Exception] | tuple[type[Exception], ...],
        explain: Callable[[Any, str], StoreError],
    ) -> None:
        """Use the engine. Nothing is opened yet.

        `failures` is what its driver raises for a server that cannot be reached, and `explain`
        returns what a store raises then.
        """
        self._shared = shared
        self._failures = failures
        self._explain = explain

    def take(self) -> PoolProxiedConnection:
        """Return what the pool lends. Raise StoreError if it lends nothing."""
        try:
            loan: PoolProxiedConnection = self._shared.engine.raw_connection()
        except self._failures as error:
            raise self._explain(error, self._shared.where) from error
        except exc.TimeoutError as error:
            msg = (
                "the pool of the engine lent no connection in its pool_timeout; nothing was "
                "changed; a call inside of a session needs one beside that of the session: raise "
                "pool_size or max_overflow"
            )
            raise StoreError(msg, happened=False, unreachable=True) from error
        return loan

    def give(self, loan: PoolProxiedConnection, *, broken: bool = False) -> None:
        """Give the connection back. The pool replaces it if it is broken."""
        done = loan.invalidate if broken else loan.close
        done()
