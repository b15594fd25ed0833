"""How a request is told from others: whose it is, where it goes, and what it says."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from oncekey.core.fingerprint import VERSION
from oncekey.core.key import escape, function_key
from oncekey.errors import ConfigurationError

NOBODY: Final[Any] = object()
"""The request belongs to nobody that is known, so that nothing can be kept for it."""


EVERYBODY: Final[Any] = object()
"""The request belongs to nobody in particular: all clients may see each other's answers."""


def named(principal: object) -> Any:
    """Whose request it is, as a handler says. One that names nobody must not share answers."""
    if principal is None:
        return NOBODY
    if principal is EVERYBODY:
        return None
    if isinstance(principal, (str, int, UUID)):
        return str(principal)
    msg = f"scope= must be a name, a number or EVERYBODY, but it is {type(principal).__name__}"
    raise ConfigurationError(msg)


@lru_cache(1024)
def route(method: str, path: str) -> str:
    """Where a request goes; what is not printable, or stands for something in a scope, escaped."""
    escaped = quote(path, safe="/!\"#$&'()*+,-.;<=>?@[\\]^_`|~", errors="surrogatepass")
    return f"{method}:{escaped}"


@lru_cache(1024)
def joined(principal: str | None, route: str | None) -> str | None:
    """One scope for whose request it is and where it goes; different pairs give different ones."""
    if principal is None:
        return None if route is None else function_key(route)
    owner = escape(principal) or "%"
    return function_key(owner if route is None else f"{owner}:{route}")


def of_request(method: str, path: str, query: bytes, body: str) -> str:
    """The fingerprint of a request."""
    before, after = _around(method, path, query)
    return f"{VERSION}:{sha256(before + body.encode() + after).hexdigest()}"


@lru_cache(1024)
def _around(method: str, path: str, query: bytes) -> tuple[bytes, bytes]:
    """What stands around the body in a fingerprint. Lengths keep the parts apart."""
    where = path.encode("utf-8", "surrogatepass")
    return f"{len(method)}:{len(where)}:{len(query)}:{method}".encode(), where + query
