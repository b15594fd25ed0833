"""Records in a database of a Django project, found by its alias.

A verb never goes over the connection of a request, which may be inside `transaction.atomic()`: a
claim that is made there protects nothing until it is committed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.stores.base import AsyncStore, Store
from oncekey.stores.memory import MemoryStore
from oncekey.stores.sqlite.store import SQLiteStore

with needing("django", __name__):
    from django.core import mail  # type: ignore[import-untyped]  # Django brings no types
    from django.db import connections  # type: ignore[import-untyped]  # Django brings no types


_PLACE: Final = ("ENGINE", "NAME", "HOST", "PORT", "USER", "PASSWORD")
"""What a test runner may change while the process runs."""
_CHECKED_HERE: Final = ("PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
"""What `ssl_mode` may ask for where there is a CA: the store then checks certificate and name."""


class DjangoStore:
    """A store in the database of an alias, for blocking code and for coroutines.

    It does what the store for this kind of database does, on connections of its own, or on those of
    Django's pool if the alias has one. Its verbs are those of that store.
    """

    def __init__(self, alias: str = "default") -> None:
        """Remember the alias. It is looked up at the first use, when the settings are complete."""
        if not isinstance(alias, str) or not alias:
            msg = f"a DjangoStore takes the alias of a database, such as 'default', not {alias!r}"
            raise ConfigurationError(msg)
        self.alias: Final = alias
        self._lock = threading.Lock()
        self._found: tuple[tuple[str, ...], Store, AsyncStore] | None = None

    def __getattr__(self, name: str) -> Any:
        """Return the verb, or anything else, of the store for this database."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.behind, name)

    @property
    def behind(self) -> Store:
        """The store for the database that the alias names now."""
        return self._now()[1]

    @property
    def behind_async(self) -> AsyncStore:
        """The same for coroutines."""
        return self._now()[2]

    def as_async(self) -> AsyncDjangoStore:
        """Return the store for coroutines."""
        return AsyncDjangoStore(self)

    def _now(self) -> tuple[tuple[str, ...], Store, AsyncStore]:
        settings = settings_of(self.alias)
        place = tuple(str(settings[name]) for name in _PLACE)
        found = self._found
        if found is None or found[0] != place:
            with self._lock:
                store = _store_of(self.alias)
                before, self._found = found, (place, store, _awaiting(store))
            found = self._found
            if before is not None:
                before[1].close()
        return found


class AsyncDjangoStore:
    """The store of an alias for coroutines."""

    def __init__(self, store: DjangoStore) -> None:
        """Do what `store` does."""
        self._store = store

    def __getattr__(self, name: str) -> Any:
        """Return the verb of the store for this database, as a coroutine."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.behind, name)

    @property
    def behind(self) -> AsyncStore:
        """The store for the database that the alias names now."""
        return self._store.behind_async


def settings_of(alias: str) -> dict[str, Any]:
    """Return the settings of the alias. Raise ConfigurationError if there is no such alias."""
    databases: dict[str, dict[str, Any]] = getattr(connections, "settings")  # noqa: B009 - it is a cached property, for which Django brings no type
    if alias not in databases:
        msg = f"DATABASES has no alias {alias!r}; it has {', '.join(databases)}"
        raise ConfigurationError(msg)
    return databases[alias]


def url_of(alias: str) -> str:
    """Return the URL of the store in the database of the alias, with its password.

    Raise ConfigurationError if records cannot be kept there.
    """
    settings_of(alias)
    database = connections.create_connection(alias)
    if database.vendor == "postgresql":
        return _postgres_url(database)
    if database.vendor == "mysql":
        return _mysql_url(database)
    if database.vendor != "sqlite":
        msg = (
            f"a DjangoStore is for PostgreSQL, MySQL and SQLite, and the alias {alias!r} is a "
            f"database of {database.display_name}; name another alias, or give a URL such as "
            f"redis://"
        )
        raise ConfigurationError(msg)
    name = str(database.settings_dict["NAME"])
    if not database.is_in_memory_db():
        return f"sqlite:///{quote(str(Path(name).absolute()))}"
    if _testing():
        return "memory://"
    msg = f"the database of the alias {alias!r} is in memory, where no other connection sees it"
    raise ConfigurationError(msg)


def _store_of(alias: str) -> Store:
    url = url_of(alias)
    if url.startswith("memory"):
        return MemoryStore()
    if url.startswith("sqlite"):
        return SQLiteStore(str(settings_of(alias)["NAME"]))
    if url.startswith("mysql"):
        from oncekey.stores import MySQLStore

        return MySQLStore(url)
    from oncekey.stores import PostgresStore

    if _testing():
        return PostgresStore(_Opened(url))  # type: ignore[arg-type]  # it lends as a pool does
    database = connections.create_connection(alias)
    if getattr(database, "pool", None) is not None:
        return PostgresStore(_Pool(database))  # type: ignore[arg-type]  # it lends as a pool does
    return PostgresStore(url)


def _awaiting(store: Store) -> AsyncStore:
    from oncekey.stores.adapters import Threaded

    as_async = getattr(store, "as_async", None)
    awaiting: AsyncStore = Threaded(store) if as_async is None else as_async()
    return awaiting


def _testing() -> bool:
    """Return whether Django's tests are running: they, and nothing else, have an outbox."""
    return hasattr(mail, "outbox")


def _postgres_url(database: Any) -> str:
    """Return a URL with what libpq knows of the parameters of the alias."""
    with needing("postgres", "DjangoStore on PostgreSQL"):
        from psycopg import pq

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    given = database.get_connection_params()
    named = {name: str(value) for name, value in given.items() if name in known and value != ""}
    if "database" in given:  # as psycopg2 calls it
        named.setdefault("dbname", str(given["database"]))
    if role := database.settings_dict["OPTIONS"].get("assume_role"):
        escaped = str(role).replace("\\", r"\\").replace(" ", r"\ ")
        named["options"] = f"{named.get('options', '')} -c role={escaped}".strip()
    return f"postgresql:///?{urlencode(named, quote_via=quote)}"


def _mysql_url(database: Any) -> str:
    """Return a URL that reaches the same server as the parameters of the alias, as safely.

    What they say about the session is left out, because the store sets up its own. Raise
    ConfigurationError if a parameter that says how the server is reached cannot be in a URL.
    """
    given = database.get_connection_params()
    tls = {name: value for name, value in given.items() if name.startswith("ssl") and value}
    encrypted = tls.pop("ssl", None)
    if isinstance(encrypted, Mapping):
        tls |= {f"ssl_{name}": value for name, value in encrypted.items()}
        encrypted = None
    authority = tls.pop("ssl_ca", None)
    if authority is not None and tls.get("ssl_mode") in _CHECKED_HERE:
        del tls["ssl_mode"]
    unknown = [*tls, *(name for name in given if name.startswith("read_default_"))]
    if unknown or encrypted:
        msg = (
            f"a DjangoStore does not know {', '.join(sorted(unknown)) or 'ssl'} in the OPTIONS of "
            f"the alias {database.alias!r}; write host, user and password into DATABASES and a CA "
            f"as 'ssl': {{'ca': path}}, or give Once the URL mysql://..."
        )
        raise ConfigurationError(msg)
    user, password, name = (
        quote(str(given.get(word, given.get(older, ""))), safe="")
        for word, older in (("user", ""), ("password", "passwd"), ("database", "db"))
    )
    host = str(given.get("host", "localhost"))
    where = f"[{host}]" if ":" in host else quote(host, safe="")
    said = {"unix_socket": given.get("unix_socket"), "ssl_ca": authority}
    options = urlencode({one: str(value) for one, value in said.items() if value}, quote_via=quote)
    url = f"mysql://{user}:{password}@{where}:{given.get('port', 3306)}/{name}"
    return f"{url}?{options}" if options else url


class _Pool:
    """Django's own pool of an alias. It is looked up for each loan: tests replace it."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._lent: dict[Any, Any] = {}

    def getconn(self) -> Any:
        pool = self._database.pool
        pool.open()
        connection = pool.getconn()
        self._lent[connection] = pool
        return connection

    def putconn(self, connection: Any) -> None:
        self._lent.pop(connection).putconn(connection)


class _Opened:
    """A connection for each loan, so that the test runner can drop its database at any time."""

    def __init__(self, url: str) -> None:
        self._url = url

    def getconn(self) -> Any:
        import psycopg

        return psycopg.connect(self._url, autocommit=True, client_encoding="utf8")

    def putconn(self, connection: Any) -> None:
        with suppress(OSError):
            connection.close()
