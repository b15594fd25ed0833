"""A request of ASGI: as the rules see it, and as the application sees it."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from oncekey.errors import ConfigurationError
from oncekey.http.asgi_messages import Scope
from oncekey.http.protocol import Asked, Rules
from oncekey.http.request import Request, nobody

PLACE: Final = "oncekey.exchange"
"""Where the exchange is in the scope."""

_IDENTITY: Final = (b"accept-encoding", b"identity")
# The response would go past us by these, or without us.
_PAST_US: Final = frozenset(
    f"http.response.{name}" for name in ("pathsend", "zerocopysend", "trailers", "push")
)


def find(rules: Rules, scope: Scope) -> Asked | None:
    """The request, if it is covered."""
    return rules.find(scope["method"], scope["path"], scope["headers"], partial(request_of, scope))


def request_of(scope: Scope) -> Request:
    """The request for the rules. Its user is whom another middleware has found."""
    return Request(
        scope["method"],
        scope["path"],
        scope.get("query_string", b""),
        scope["headers"],
        scope,
        (lambda: _user(scope["user"])) if "user" in scope else nobody,
    )


def _user(user: Any) -> str | None:  # noqa: ANN401 - as the framework has it
    """Who it is: Starlette's `identity`, Django's `pk`, or the user itself if it is a name."""
    if user is None or getattr(user, "is_authenticated", True) is False:
        return None
    for name in ("identity", "pk", "id"):
        try:
            found = getattr(user, name, None)
        except NotImplementedError:  # Starlette's SimpleUser has no identity
            continue
        if found is not None:
            return str(found)
    found = getattr(user, "username", user)
    if isinstance(found, (str, int)):
        return str(found)
    msg = f"by_user cannot tell who a {type(user).__name__} is; pass scope= a function instead"
    raise ConfigurationError(msg)


def url_of(scope: Scope) -> str:
    """As the client wrote it."""
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"localhost").decode("latin-1")
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope.get("raw_path") or scope["path"].encode()
    url = f"{scope.get('scheme', 'http')}://{host}{path.decode('latin-1')}"
    return f"{url}?{query}" if query else url


def inner(scope: Scope, exchange: object) -> Scope:
    """The request as the application sees it: its response is whole, plain and through us."""
    headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
    headers.append(_IDENTITY)
    seen = {**scope, "headers": headers, PLACE: exchange}
    extensions = scope.get("extensions")
    if extensions:
        seen["extensions"] = {name: one for name, one in extensions.items() if name not in _PAST_US}
    return seen
