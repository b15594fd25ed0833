"""A request as the rules see it: its key, whose it is, and what makes it the same request."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from msgspec import Struct

from oncekey.core.fingerprint import VERSION
from oncekey.core.key import escape, function_key
from oncekey.errors import ConfigurationError

Headers = list[tuple[bytes, bytes]]


def nobody() -> str | None:
    """The user of a request where nothing has authenticated anybody."""
    msg = (
        "by_user found no user on the request: install the authentication middleware outside of "
        "this one, claim in the handler, or pass scope= a function of the request"
    )
    raise ConfigurationError(msg)


class Request(Struct, frozen=True, eq=False):
    """Method, path, query and headers, whose names are in lower case.

    `native` is the framework's own object: an ASGI scope, a WSGI environ or a Django request.
    """

    method: str
    path: str
    query: bytes
    headers: Headers
    native: Any = None
    _user: Callable[[], str | None] = nobody

    def values(self, name: str) -> list[bytes]:
        """Every value of a header, as it was sent."""
        wanted = name.lower().encode("latin-1")
        return [value for header, value in self.headers if header == wanted]

    def header(self, name: str, default: str | None = None) -> str | None:
        """The first value of a header, as text."""
        wanted = name.lower().encode("latin-1")
        for header, value in self.headers:
            if header == wanted:
                return value.decode("latin-1")
        return default

    @property
    def user(self) -> str | None:
        """Who asks, as the framework knows; None for nobody in particular."""
        return self._user()


Scoping = Callable[[Request], str | None]
"""Who a request belongs to; None for nobody in particular."""


def by_user(request: Request) -> str | None:
    """The authenticated user of the framework: it stays the same when a token is refreshed."""
    return request.user


def by_authorization(request: Request) -> str | None:
    """The credentials themselves, hashed: only where they are static, such as API keys."""
    values = request.values("authorization")
    return sha256(b"\n".join(values)).hexdigest()[:32] if values else None


# How a request is told from others: whose it is, where it goes, and what it says.


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
def of_route(method: str, path: str) -> str:
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
