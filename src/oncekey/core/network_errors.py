"""Recognise errors of the network, after which a request may have arrived.

Python's own `TimeoutError` and `ConnectionError` are such errors, and clients have others for the
same causes. Types are recognised by name, so that no client has to be imported.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, Final

NETWORK: Final[tuple[type[BaseException], ...]] = (TimeoutError, ConnectionError)
"""Built-in errors of the network. See `of_a_client` for those of clients."""

_UNREACHABLE: Final = frozenset(
    {
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENOTCONN,
    }
)
"""The connection may have been lost after something was sent."""

_SHUTDOWNS: Final = frozenset({"57P01", "57P02", "57P03"})
_LOST_CALLS: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})


def of_a_client(error: BaseException) -> bool:
    """Return whether a well-known client raises this error when the network fails.

    The most specific type that is listed decides.
    """
    for kind in type(error).__mro__:
        judge = _BY_NAME.get(f"{kind.__module__}.{kind.__qualname__}")
        if judge is not None:
            return judge(error)
    return False


def _always(_: Any) -> bool:
    return True


def _never(_: Any) -> bool:
    """The request was not sent, or it was answered."""
    return False


def _unreachable(error: OSError) -> bool:
    return error.errno in _UNREACHABLE


def _of_postgres(error: Any) -> bool:
    """Without an SQLSTATE the server has not answered; class 08 is about connections."""
    state: str | None = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state is None or state.startswith("08") or state in _SHUTDOWNS


def _of_sqlalchemy(error: Any) -> bool:
    cause = error.orig
    return bool(error.connection_invalidated) or (cause is not None and of_a_client(cause))


def _of_grpc(error: Any) -> bool:
    code = getattr(error, "code", None)
    return callable(code) and getattr(code(), "name", None) in _LOST_CALLS


_BY_NAME: Final[dict[str, Callable[[Any], bool]]] = {
    # Python
    "asyncio.exceptions.IncompleteReadError": _always,
    "builtins.OSError": _unreachable,
    "http.client.BadStatusLine": _always,
    "http.client.IncompleteRead": _always,
    "smtplib.SMTPServerDisconnected": _always,
    "ssl.SSLEOFError": _always,
    "ssl.SSLZeroReturnError": _always,
    "subprocess.TimeoutExpired": _always,
    "urllib.error.HTTPError": _never,
    "urllib.error.URLError": _always,
    # HTTP
    "aiohttp.client_exceptions.ClientConnectionError": _always,
    "aiohttp.client_exceptions.ClientPayloadError": _always,
    "botocore.exceptions.HTTPClientError": _always,
    "httpx.TransportError": _always,
    "requests.exceptions.ChunkedEncodingError": _always,
    "requests.exceptions.ConnectionError": _always,
    "requests.exceptions.Timeout": _always,
    "stripe._error.APIConnectionError": _always,
    "urllib3.exceptions.ProtocolError": _always,
    "urllib3.exceptions.TimeoutError": _always,
    "grpc.RpcError": _of_grpc,
    # Databases
    "asyncpg.exceptions._base.PostgresError": _of_postgres,
    "psycopg.OperationalError": _of_postgres,
    "psycopg2.OperationalError": _of_postgres,
    "redis.exceptions.AuthenticationError": _never,
    "redis.exceptions.BusyLoadingError": _never,
    "redis.exceptions.ConnectionError": _always,
    "redis.exceptions.MaxConnectionsError": _never,
    "redis.exceptions.TimeoutError": _always,
    "sqlalchemy.exc.DBAPIError": _of_sqlalchemy,
}
