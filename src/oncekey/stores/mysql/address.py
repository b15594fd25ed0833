"""The address and the options of a MySQL or MariaDB store, checked before anything is opened."""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from oncekey.errors import ConfigurationError
from oncekey.policy import Duration, seconds
from oncekey.stores.base import checked_fast
from oncekey.stores.sqlalchemy import SharedEngine, is_engine
from oncekey.stores.url import check_url, safe_url

SCHEMES: Final = ("mysql", "mariadb")
_PORT: Final = 3306
_OPTIONS: Final = ("ssl_ca", "unix_socket")


class MySQLTarget(Struct, frozen=True):
    """The database, and how to reach it."""

    url: str
    where: str
    """Host, port and database, as they may be printed."""
    options: dict[str, Any]
    """What both drivers take."""
    size: int
    patience: float
    timeout: float
    fast: bool = True
    given: Any = None
    """The SharedEngine whose pool lends its connections, or None."""

    @classmethod
    def of(
        cls,
        url: object,
        size: int,
        patience: Duration,
        timeout: Duration,
        *,
        fast: bool = True,
    ) -> MySQLTarget:
        """Check the options without connecting. Raise ConfigurationError if one is not valid."""
        checked_fast(fast)
        wait, answer = seconds(patience, "patience"), seconds(timeout, "timeout")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            msg = f"size must be a number of connections, at least 1, but it is {size!r}"
            raise ConfigurationError(msg)
        if is_engine(url):
            driver = "asyncmy" if url.dialect.is_async else "pymysql"
            engine = SharedEngine(url, tuple(f"{name}+{driver}" for name in SCHEMES), _PORT)
            return cls("", engine.where, {}, size, wait, answer, fast, engine)
        if not isinstance(url, str):
            msg = (
                f"a MySQL store needs a URL, mysql://user@host/database or mariadb://..., or an "
                f"engine of SQLAlchemy, but it got {type(url).__name__}"
            )
            raise ConfigurationError(msg)
        check_url(url)
        parts = urlsplit(url)
        database = unquote(parts.path).removeprefix("/")
        if parts.scheme not in SCHEMES or not database or "/" in database:
            msg = f"write mysql://user@host:3306/database instead of {safe_url(url)!r}"
            raise ConfigurationError(msg)
        named = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(set(named) - set(_OPTIONS))
        if unknown:
            msg = (
                f"{safe_url(url)!r} has unknown options ({', '.join(unknown)}); it takes "
                f"{' and '.join(_OPTIONS)}"
            )
            raise ConfigurationError(msg)
        options: dict[str, Any] = {
            "host": unquote(parts.hostname or "localhost"),
            "port": _port_of(parts, url),
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or "").encode(),
            "database": database,
        }
        where = f"{options['host']}:{options['port']}/{database}"
        if path := named.get("unix_socket"):
            options["unix_socket"] = path
            where = f"{path}/{database}"
        if (certificate := named.get("ssl_ca")) is not None:
            options["ssl"] = _verifying(certificate)
        return cls(url, where, options, size, wait, answer, fast)


def check_colour(shared: SharedEngine, *, awaits: bool) -> None:
    """Raise ConfigurationError if a store got an engine for the other kind of code."""
    if shared.awaits != awaits:
        kind, needed = ("async", "AsyncMySQLStore") if shared.awaits else ("blocking", "MySQLStore")
        msg = f"{type(shared.engine).__name__} is for {kind} code; give it to {needed}"
        raise ConfigurationError(msg)


def _port_of(parts: Any, url: str) -> int:
    try:
        return parts.port or _PORT
    except ValueError:
        msg = f"the port in {safe_url(url)!r} is no number up to 65535; leave it out for {_PORT}"
        raise ConfigurationError(msg) from None


def _verifying(path: str) -> ssl.SSLContext:
    """Return a context that checks the server's certificate and its name."""
    try:
        return ssl.create_default_context(cafile=path or None)
    except (OSError, ssl.SSLError) as error:
        msg = f"ssl_ca={path} cannot be read as certificates ({error}); give the path of a PEM file"
        raise ConfigurationError(msg) from None
