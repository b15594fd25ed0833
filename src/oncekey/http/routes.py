"""Which requests are covered: by method, by path, by a function of the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from oncekey.errors import ConfigurationError

_METHOD: Final = re.compile(r"[A-Z]+")
_PIECE: Final = re.compile(r"\{[^/{}]*\}|\*")


class Routes:
    """Methods and paths. A path may hold `{name}` for one segment and `*` for any rest."""

    def __init__(self, routes: Iterable[str] | None, methods: Iterable[str]) -> None:
        """Without routes every path is meant."""
        if isinstance(methods, str) or isinstance(routes, str):
            msg = "routes and methods are lists, as in routes=['/orders'] and methods=['POST']"
            raise ConfigurationError(msg)
        self._methods = frozenset(methods)
        for method in self._methods:
            if not isinstance(method, str) or not _METHOD.fullmatch(method):
                msg = f"methods must be names such as 'POST', but one is {method!r}"
                raise ConfigurationError(msg)
        self._patterns = [(route, _compiled(route)) for route in routes or ()]
        self._anywhere = routes is None
        self.find: Final[Callable[[str, str], str | None]] = lru_cache(1024)(self._find)

    def _find(self, method: str, path: str) -> str | None:
        """What the request is called, or None for one that is not covered."""
        if method not in self._methods:
            return None
        if self._anywhere:
            return method
        for route, pattern in self._patterns:
            if pattern.fullmatch(path):
                return f"{method} {route}"
        return None


def _compiled(route: object) -> re.Pattern[str]:
    if not isinstance(route, str) or not route.startswith(("/", "*")):
        msg = f"a route is a path such as '/orders/{{id}}/refund' or '/api/*', but it is {route!r}"
        raise ConfigurationError(msg)
    pattern, end = "", 0
    for piece in _PIECE.finditer(route):
        pattern += re.escape(route[end : piece.start()])
        pattern += ".*" if piece[0] == "*" else "[^/]+"
        end = piece.end()
    return re.compile(pattern + re.escape(route[end:]))
