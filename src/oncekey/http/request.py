"""A request as the rules see it, and how its scope and fingerprint are made."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import UUID

from msgspec import Struct

from oncekey.core.fingerprint import VERSION
from oncekey.core.key import escape, function_key
from oncekey.errors import ConfigurationError

Headers = list[tuple[bytes, bytes]]


def nobody() -> str | None:
    """Raise ConfigurationError: the default for requests without an authenticated user."""
    msg = (
        "by_user found no user on the request: install the authentication middleware outside of "
        "this one, claim in the handler, or pass scope= a function of the request"
    )
    raise ConfigurationError(msg)


class Request(Struct, frozen=True, eq=False):
    """Method, path, query and headers. The names of headers are in lower case.

    `path` is the path as the client sees it. It begins with `root`, the prefix below which the
    application is served, or an empty text. `native` is the object of the framework: an ASGI scope,
    a WSGI environ or a Django request.
    """

    method: str
    path: str
    query: bytes
    headers: Headers
    native: Any = None
    _user: Callable[[], str | None] = nobody
    root: str = ""

    def values(self, name: str) -> list[bytes]:
        """Return every value of a header, as it was sent."""
        wanted = name.lower().encode("latin-1")
        return [value for header, value in self.headers if header == wanted]

    def header(self, name: str, default: str | None = None) -> str | None:
        """Return the first value of a header as text, or the default."""
        wanted = name.lower().encode("latin-1")
        for header, value in self.headers:
            if header == wanted:
                return value.decode("latin-1")
        return default

    @property
    def user(self) -> str | None:
        """The user that the framework has authenticated, or None if the client is anonymous."""
        return self._user()


Scoping = Callable[[Request], str | None]
"""A function that returns the owner of a request, or None if it has none."""


def placed(path: str, root: str) -> tuple[str, str]:
    """Return the path as the client sees it, and the prefix of it that the application does not.

    Some servers pass on a path with the prefix in front of it, and some without.
    """
    prefix = "/" + root.strip("/")
    rest = path.removeprefix(root)
    inside = rest if not rest or rest[0] == "/" else path
    return (inside, "") if prefix == "/" else (prefix + inside, prefix)


def called(target: str, root: str) -> str:
    """Return path and query, still quoted, as the client called them: with the prefix `root`.

    Some servers pass on the path that the client called, and some what a proxy has left of it.
    """
    prefix = root.strip("/")
    if not prefix or f"{unquote(target.partition('?')[0])}/".startswith(f"/{prefix}/"):
        return target
    return f"/{quote(prefix)}{target}"


def by_user(request: Request) -> str | None:
    """Return the authenticated user, who stays the same when a token is refreshed."""
    return request.user


def by_authorization(request: Request) -> str | None:
    """Return a hash of the credentials. Use it only for static ones, such as API keys."""
    values = request.values("authorization")
    return sha256(b"\n".join(values)).hexdigest()[:32] if values else None


# The scope and the fingerprint of a request.


NOBODY: Final[Any] = object()
"""The owner of the request is not known: it runs unprotected."""


EVERYBODY: Final[Any] = object()
"""The request has no owner on purpose: all clients may see each other's answers."""


def named(principal: object) -> Any:
    """Return the owner that a handler named, as text.

    Return NOBODY for None, so that requests without an owner do not share answers, and None for
    EVERYBODY. Raise ConfigurationError for anything but a name, a number or a UUID.
    """
    if principal is None:
        return NOBODY
    if principal is EVERYBODY:
        return None
    if isinstance(principal, (str, int, UUID)) and not isinstance(principal, bool):
        return str(principal)
    msg = f"scope= must be a name, a number or EVERYBODY, but it is {type(principal).__name__}"
    raise ConfigurationError(msg)


def owner_of(found: object) -> Any:
    """Return the owner that a scope function has found, as text. Return NOBODY for None.

    Raise ConfigurationError for what is no name. The text of a plain object or a coroutine is
    another one for each request, so that nothing would be protected.
    """
    if isinstance(found, str):
        return found
    if found is None:
        return NOBODY
    is_named = isinstance(found, int) or type(found).__str__ is not object.__str__
    if is_named and not isinstance(found, bool):
        return str(found)
    msg = f"scope= must find a name, a number or None, but it found {found!r:.60}"
    raise ConfigurationError(msg)


@lru_cache(1024)
def of_route(method: str, path: str) -> str:
    """Return method and path for a scope.

    Characters that are not printable, or have a meaning in a scope, are escaped.
    """
    escaped = quote(path, safe="/!\"#$&'()*+,-.;<=>?@[\\]^_`|~", errors="surrogatepass")
    return f"{method}:{escaped}"


@lru_cache(1024)
def joined(principal: str | None, route: str | None) -> str | None:
    """Return the scope of an owner and a route. Different pairs give different scopes."""
    if principal is None:
        return None if route is None else function_key(route)
    owner = escape(principal) or "%"
    return function_key(owner if route is None else f"{owner}:{route}")


def of_request(method: str, path: str, query: bytes, body: str) -> str:
    """Return the fingerprint of a request. `body` is the fingerprint of its body."""
    before, after = _around(method, path, query)
    return f"{VERSION}:{sha256(before + body.encode() + after).hexdigest()}"


@lru_cache(1024)
def _around(method: str, path: str, query: bytes) -> tuple[bytes, bytes]:
    """Return what is hashed before and after the body. Lengths keep the parts apart."""
    where = path.encode("utf-8", "surrogatepass")
    return f"{len(method)}:{len(where)}:{len(query)}:{method}".encode(), where + query
