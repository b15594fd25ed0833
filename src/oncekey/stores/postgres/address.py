"""The address and the options of a PostgreSQL store, checked before anything is opened."""

from __future__ import annotations

import re
import select
from inspect import iscoroutinefunction
from math import inf
from typing import TYPE_CHECKING, Any, Final

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from oncekey.errors import ConfigurationError
from oncekey.policy import Duration, seconds
from oncekey.stores.base import checked_fast
from oncekey.stores.sqlalchemy import SharedEngine, is_engine

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn


_PORT: Final = 5432
_PER_MILLE: Final = 1000
_PORTS: Final = re.compile(r"[\d,]*")
_LONGEST: Final = 32767.0
"""Nine hours stand for forever: no system accepts more seconds between keep-alives."""


class Target(Struct, frozen=True):
    """The database, and how to reach it: with our own connections, or with those of the caller."""

    conninfo: str
    where: str
    options: dict[str, Any]
    size: int
    patience: float
    timeout: float
    listen: bool
    fast: bool = True
    given: Any = None
    """A pool, a connection or an engine of the caller, or None."""

    @property
    def lock(self) -> Any:
        """The lock of the caller's connection, or None."""
        return getattr(self.given, "lock", None)

    @classmethod
    def of(
        cls,
        given: object,
        size: int,
        patience: Duration,
        timeout: Duration,
        *,
        listen: bool,
        fast: bool = True,
    ) -> Target:
        """Check the options without connecting. Raise ConfigurationError if one is not valid."""
        checked_fast(fast)
        if not hasattr(select, "poll"):
            msg = (
                "psycopg cannot wait with eventlet, and each statement would block all green "
                "threads; use gevent or threads, or a store in Redis"
            )
            raise ConfigurationError(msg)
        wait, answer = seconds(patience, "patience"), min(seconds(timeout, "timeout"), _LONGEST)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            msg = f"size must be a number of connections, at least 1, but it is {size!r}"
            raise ConfigurationError(msg)
        if not isinstance(given, str):
            where = "the address of the caller's connection"
            if is_engine(given):
                given = SharedEngine(given, ("postgresql+psycopg",), _PORT)
                where = given.where
            elif not _lends(given):
                msg = (
                    f"a PostgreSQL store needs a postgresql:// URL, a conninfo string, a pool of "
                    f"psycopg_pool, a connection of psycopg or an engine of SQLAlchemy, but it got "
                    f"{type(given).__name__}"
                )
                raise ConfigurationError(msg)
            return cls("", where, {}, size, wait, inf, listen=False, fast=fast, given=given)
        try:
            named = conninfo_to_dict(given)
        except psycopg.Error:  # the text may quote the URL, with its password
            msg = "the PostgreSQL URL cannot be read; write postgresql://user@host:5432/database"
            raise ConfigurationError(msg) from None
        place = "".join(str(named.get(name, "")) for name in ("host", "hostaddr", "dbname"))
        if "@" in place or not _PORTS.fullmatch(str(named.get("port", ""))):
            msg = (
                "the PostgreSQL URL can be read in more than one way; percent-encode what is "
                "special in the user name and the password: / as %2F, @ as %40, ? as %3F, : as %3A"
            )
            raise ConfigurationError(msg)
        host = named.get("host") or named.get("hostaddr") or "the local socket"
        where = f"{host}:{named.get('port') or _PORT}/{named.get('dbname') or ''}"
        options = _options(named, wait, answer)
        return cls(given, where, options, size, wait, answer, listen=listen, fast=fast)


def _lends(given: object) -> bool:
    return isinstance(given, psycopg.BaseConnection) or callable(getattr(given, "getconn", None))


def _options(named: dict[str, Any], wait: float, answer: float) -> dict[str, Any]:
    """Return the options that the caller has not set.

    With them a dead server is noticed, and of several servers the one that takes writes is found.
    """
    usual: dict[str, int | str] = {
        "connect_timeout": max(2, round(wait)),  # libpq counts whole seconds, at least two
        "tcp_user_timeout": round(2 * answer * _PER_MILLE),
        "keepalives_idle": max(1, round(answer)),
        "keepalives_interval": max(1, round(answer / 2)),
        "keepalives_count": 3,
        "fallback_application_name": "oncekey",
    }
    if "," in f"{named.get('host')}{named.get('hostaddr')}{named.get('port')}":
        usual["target_session_attrs"] = "read-write"
    options = {name: value for name, value in usual.items() if name not in named}
    return options | {"autocommit": True, "client_encoding": "utf8"}


def check_colour(given: object, wanted: type[psycopg.BaseConnection[Any]]) -> None:
    """Raise ConfigurationError if a store got an object for the other kind of code."""
    asynchronous = psycopg.AsyncConnection
    if isinstance(given, SharedEngine):
        awaits, given = given.awaits, given.engine
    else:
        waits = iscoroutinefunction(getattr(given, "getconn", None))
        awaits = waits or isinstance(given, asynchronous)
    if awaits != (wanted is asynchronous):
        kind, needed = ("async", "AsyncPostgresStore") if awaits else ("blocking", "PostgresStore")
        msg = f"{type(given).__name__} is for {kind} code; give it to {needed}"
        raise ConfigurationError(msg)


def refuse_transaction(pgconn: PGconn) -> None:
    """Raise ConfigurationError in a transaction, which would hide a claim until it commits."""
    if pgconn.transaction_status != TransactionStatus.IDLE or pgconn.pipeline_status:
        msg = (
            "the connection of the store is inside a transaction or a pipeline, where a claim "
            "protects nothing until it is committed; commit first, or give the store a connection "
            "of its own, or its URL"
        )
        raise ConfigurationError(msg)


def close_unless_idle(pgconn: PGconn) -> None:
    """Close a connection that was interrupted while it waited for an answer."""
    if pgconn.transaction_status != TransactionStatus.IDLE:
        pgconn.finish()
