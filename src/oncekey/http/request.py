"""An HTTP request as the rules see it, whatever framework it came through."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from oncekey.errors import ConfigurationError

Headers = list[tuple[bytes, bytes]]


def nobody() -> str | None:
    """The user of a request where nothing has authenticated anybody."""
    msg = (
        "by_user found no user on the request: install the authentication middleware outside of "
        "this one, claim in the handler, or pass scope= a function of the request"
    )
    raise ConfigurationError(msg)


class Request:
    """Method, path, query and headers; `native` is the framework's own object."""

    __slots__ = ("_user", "headers", "method", "native", "path", "query")

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a request
        self,
        method: str,
        path: str,
        query: bytes,
        headers: Headers,
        native: Any = None,  # noqa: ANN401 - an ASGI scope, a WSGI environ or a Django request
        user: Callable[[], str | None] = nobody,
    ) -> None:
        """Names of headers are in lower case."""
        self.method: Final = method
        self.path: Final = path
        self.query: Final = query
        self.headers: Final = headers
        self.native: Final = native
        self._user: Final = user

    def values(self, name: str) -> list[bytes]:
        """Every value of a header, as it was sent."""
        wanted = name.lower().encode("latin-1")
        return [value for header, value in self.headers if header == wanted]

    def header(self, name: str, default: str | None = None) -> str | None:
        """The first value of a header, as text."""
        values = self.values(name)
        return values[0].decode("latin-1") if values else default

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
