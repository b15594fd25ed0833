"""An HTTP request as the rules see it, whatever framework it came through."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from msgspec import Struct

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
