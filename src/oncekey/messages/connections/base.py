"""The connections of an inbox or outbox itself, by the URL of its database."""

from __future__ import annotations

from typing import Any, Final, Protocol

from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.messages.connections.sqlite import SQLiteConnections
from oncekey.messages.schema import Schema
from oncekey.messages.statements import Dialect, Given
from oncekey.once import Once
from oncekey.stores import SQLiteStore, open_store


class Connections(Protocol):
    """Connections of an inbox or outbox itself, on which each statement is committed."""

    dialect: Dialect
    schema: Schema

    @property
    def known(self) -> str:
        """The identity of the database if it was read already, or an empty string."""
        ...

    def run(self, statement: str, values: Given, *, keeper: bool = False) -> list[Any]:
        """Run the statement. Return its rows."""
        ...

    def identity(self) -> str:
        """Bring the schema up to date. Return the identity of the database."""
        ...

    def found(self) -> str:
        """Return the identity, or an empty string if the schema is not made yet.

        The transaction that needs the schema has to make it then.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


_OF_ASYNCPG: Final = {"ssl": "sslmode", "database": "dbname"}
"""What asyncpg calls a parameter of a URL, and what libpq calls it."""
_OF_THEIR_CLIENT: Final = (
    "async_fallback",
    "command_timeout",
    "prepared_statement_cache_size",
    "prepared_statement_name_func",
    "statement_cache_size",
    "timeout",
)
"""Parameters that say how SQLAlchemy and asyncpg work, and nothing about the database."""


_MYSQL: Final = ("mysql", "mariadb")
_OF_MYSQL: Final = ("ssl", "unix_socket")
"""Parameters that say something about the server; others are of SQLAlchemy's driver."""


def plain_url(url: str) -> str:
    """Return a URL of SQLAlchemy, such as `postgresql+asyncpg://...`, as others write it."""
    scheme, colon, rest = url.partition("://")
    dialect, plus, driver = scheme.partition("+")
    if not plus or dialect not in ("postgresql", "postgres", "sqlite", *_MYSQL):
        return url
    address, mark, query = rest.partition("?")
    if dialect in _MYSQL:
        query = "&".join(pair for pair in query.split("&") if pair.startswith(_OF_MYSQL))
    if driver == "asyncpg" and mark:
        pairs = (pair.split("=", 1) for pair in query.split("&"))
        query = "&".join(
            "=".join((_OF_ASYNCPG.get(name, name), *value))
            for name, *value in pairs
            if name not in _OF_THEIR_CLIENT
        )
    return f"{dialect}{colon}{address}{mark if query else ''}{query}"


def connections_of(target: str | Once, schema: Schema) -> Connections | None:
    """Return connections to the database of the target, or None for a store without tables."""
    if isinstance(target, str):
        return _connections_to(plain_url(target), schema)
    if not isinstance(target, Once):
        msg = f"an {schema.owner} needs a Once or the URL of a database, not {target!r}"
        raise ConfigurationError(msg)
    behind: Any = target.core.given
    if isinstance(behind, SQLiteStore):
        return SQLiteConnections(behind.file, behind.mode, schema)
    kind = type(behind).__name__
    if kind in ("MySQLStore", "AsyncMySQLStore"):
        return _own_mysql(behind.target.url, schema)
    if kind not in ("PostgresStore", "AsyncPostgresStore"):
        return None
    named = behind.target
    if named.given is not None:
        msg = (
            f"the store of this Once was given a pool or a connection; give the {schema.owner} the "
            f"URL of the database, because it needs connections of its own"
        )
        raise ConfigurationError(msg)
    return _own_postgres(named.conninfo, schema)


def _connections_to(url: str, schema: Schema) -> Connections | None:
    scheme = url.partition("://")[0]
    if scheme in ("postgresql", "postgres"):
        return _own_postgres(url, schema)
    if scheme in _MYSQL:
        return _own_mysql(url, schema)
    store = open_store(url)
    if not isinstance(store, SQLiteStore):
        return None
    return SQLiteConnections(store.file, store.mode, schema)


def _own_postgres(url: str, schema: Schema) -> Connections:
    with needing("postgres", "PostgreSQL"):
        from oncekey.messages.connections.postgres import PostgresConnections

    return PostgresConnections(url, schema)


def _own_mysql(url: str, schema: Schema) -> Connections:
    with needing("mysql", "MySQL or MariaDB"):
        from oncekey.messages.connections.mysql import MySQLConnections

    return MySQLConnections(url, schema)
