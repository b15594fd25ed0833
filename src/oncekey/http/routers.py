"""The paths that an application answers, read from its router, to compare `routes=` with them.

Frameworks are recognised by the attributes of their objects, so that none has to be installed.
Wherever a router cannot be read for certain, it is taken to answer every path: a pattern is only
called wrong if it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

SEGMENT: Final = "[^/]"
"""One character that is no slash; in a shape it is followed by MORE."""
MORE: Final = "[^/]*"
"""Any number of characters that are no slash."""
TEXT: Final = ".*"
"""Any text."""

Shape = tuple[str, ...]
"""The paths of one route, as single characters and the three wildcards above."""

_DEEPEST: Final = 50
"""The number of wrappers that are looked into before it is taken for a cycle."""


class Path(NamedTuple):
    """The paths that one route answers: as its framework writes them, and their shape."""

    text: str
    shape: Shape


_ANYTHING: Final = Path("*", (TEXT,))

# Shapes


def shape_of(text: str, wildcard: re.Pattern[str], many: Callable[[re.Match[str]], bool]) -> Shape:
    """Return the shape of a path in which `wildcard` finds the places that match several texts.

    `many` says of such a place whether it may match slashes, too.
    """
    shape: list[str] = []
    end = 0
    for place in wildcard.finditer(text):
        shape += text[end : place.start()]
        shape += (TEXT,) if many(place) else (SEGMENT, MORE)
        end = place.end()
    return (*shape, *text[end:])


def pattern_of(shape: Shape) -> str:
    """Return the regular expression for the paths of a shape."""
    return "".join(one if one in (SEGMENT, MORE, TEXT) else re.escape(one) for one in shape)


def meet(one: Shape, other: Shape) -> bool:
    """Return whether there is a path that both shapes match."""
    todo, seen = [(0, 0)], {(0, 0)}
    while todo:
        at, there = todo.pop()
        if at == len(one) and there == len(other):
            return True
        for step in _steps(one, at, other, there):
            if step not in seen:
                seen.add(step)
                todo.append(step)
    return False


def _steps(one: Shape, at: int, other: Shape, there: int) -> Iterator[tuple[int, int]]:
    """Yield where both are after no character or one character that both match."""
    mine = one[at] if at < len(one) else None
    its = other[there] if there < len(other) else None
    if mine in (MORE, TEXT):
        yield at + 1, there
    if its in (MORE, TEXT):
        yield at, there + 1
    if mine is not None and its is not None and _share(mine, its):
        yield (
            at if mine in (MORE, TEXT) else at + 1,
            there if its in (MORE, TEXT) else there + 1,
        )


def _share(mine: str, its: str) -> bool:
    """Return whether one character can be matched by both."""
    if TEXT in (mine, its) or mine == its:
        return True
    wild = (SEGMENT, MORE)
    if mine in wild:
        return its != "/"
    return its in wild and mine != "/"


# The routers of Starlette and FastAPI

_PARAMETER: Final = re.compile(r"{[^}:]*(?::([^}]*))?}")
_ONE_SEGMENT: Final = frozenset({None, "str", "int", "float", "uuid"})


def of_asgi(app: Any) -> list[Path] | None:
    """Return the paths of a Starlette router behind any number of middlewares, or None."""
    for _ in range(_DEEPEST):
        routes = getattr(app, "routes", None)
        if isinstance(routes, (list, tuple)):
            return list(_of_starlette(routes, ""))
        app = getattr(app, "app", None)
    return None


def _of_starlette(routes: Iterable[Any], prefix: str) -> Iterator[Path]:
    for route in routes:
        contexts = getattr(route, "effective_route_contexts", None)  # FastAPI's include_router
        if contexts is not None:
            yield from _of_starlette(contexts(), prefix)
            continue
        route = getattr(route, "starlette_route", None) or route  # noqa: PLW2901 - what it wraps
        path, inner = getattr(route, "path", None), getattr(route, "routes", None)
        if not isinstance(path, str):  # a Host has routes, but no path
            yield from _of_starlette(inner, prefix) if inner else iter([_ANYTHING])
        elif inner is None:
            yield _path(prefix + path)
        elif inner:
            yield from _of_starlette(inner, prefix + path)
        else:  # mounted, and no router of Starlette's
            yield _path(f"{prefix}{path}{{path:path}}")


def _path(text: str) -> Path:
    return Path(text, shape_of(text, _PARAMETER, lambda found: found[1] not in _ONE_SEGMENT))


# The rules of Flask

_CONVERTED: Final = re.compile(r"<(?:[^>]*:)?([^>:]*)>")


def of_wsgi(app: Any) -> list[Path] | None:
    """Return the paths of a Flask application behind any number of middlewares, or None."""
    paths: list[Path] = []
    for _ in range(_DEEPEST):
        bound: Any = getattr(app, "__self__", None)  # Flask's method wsgi_app
        if hasattr(bound, "url_map"):
            return paths + [_of_rule(rule) for rule in bound.url_map.iter_rules()]
        mounts = getattr(app, "mounts", None)  # Werkzeug's DispatcherMiddleware
        if isinstance(mounts, dict):
            paths += [Path(f"{mount}/*", (*mount, TEXT)) for mount in mounts]
        app = getattr(app, "wsgi_app", None) or getattr(app, "app", None)
    return None


def _of_rule(rule: Any) -> Path:
    converters: dict[str, Any] = getattr(rule, "_converters", {})

    def many(found: re.Match[str]) -> bool:
        return not getattr(converters.get(found[1]), "part_isolating", False)

    text: str = rule.rule
    shape = shape_of(text, _CONVERTED, many)
    if rule.strict_slashes is False and text.endswith("/"):
        shape = (*shape[:-1], TEXT)
    return Path(text, shape)


# The resources of aiohttp

_PLACE: Final = re.compile(r"{([^}]*)}")
_OF_AIOHTTP: Final = "[^{}/]+"
"""What a place in a path matches, unless it says something else."""


def of_aiohttp(app: Any, root: str) -> list[Path]:
    """Return the paths of an aiohttp application, without the prefix `root` of a nested one."""
    paths: list[Path] = []
    for resource in app.router.resources():
        info = resource.get_info()
        text = unquote(resource.canonical).removeprefix(root) or "/"
        if "app" in info:
            paths += of_aiohttp(info["app"], root)
        elif "path" in info:
            paths.append(Path(text, tuple(text)))
        elif "pattern" in info:
            paths.append(_of_pattern_of_aiohttp(text, info["pattern"].pattern))
        else:  # files below a folder, or a resource of somebody else's
            paths.append(Path(f"{text}*", (*text, TEXT)))
    return paths


def _of_pattern_of_aiohttp(text: str, regex: str) -> Path:
    def many(found: re.Match[str]) -> bool:
        return f"(?P<{found[1]}>{_OF_AIOHTTP})" not in regex

    return Path(text, shape_of(text, _PLACE, many))


# The patterns of Django

_NAMED: Final = re.compile(r"<(?:([^>:]*):)?[^>]*>")
_DJANGO_SEGMENT: Final = frozenset({None, "str", "int", "slug", "uuid"})
_LITERAL: Final = re.compile(r"\^?((?:[\w/-](?![?*{]))*)(\$|\\Z)?")


def of_django(patterns: Iterable[Any]) -> list[Path]:
    """Return the paths of Django's URL patterns."""
    return [Path(path.text, ("/", *path.shape)) for path in _of_patterns(patterns, "", ())]


def _of_patterns(patterns: Iterable[Any], before: str, prefix: Shape) -> Iterator[Path]:
    for one in patterns:
        text, shape, certain = _of_pattern(one.pattern)
        path = Path(before + text, (*prefix, *shape))
        if certain and hasattr(one, "url_patterns"):
            yield from _of_patterns(one.url_patterns, *path)
        else:
            yield path


def _of_pattern(pattern: Any) -> tuple[str, Shape, bool]:
    """Return the text and shape of a pattern, and whether what follows it can be told, too."""
    route, regex = getattr(pattern, "_route", None), getattr(pattern, "_regex", None)
    if route is not None:
        text = str(route)
        return text, shape_of(text, _NAMED, lambda found: found[1] not in _DJANGO_SEGMENT), True
    if regex is None:  # the prefix of a language
        return "*", (TEXT,), True
    literal = _LITERAL.match(str(regex))
    assert literal is not None  # noqa: S101 - it matches an empty text as well
    endpoint = getattr(pattern, "_is_endpoint", True)
    whole = literal.end() == len(str(regex))
    open_ended = not whole or (literal[2] is None and endpoint)
    return str(regex), (*literal[1], *((TEXT,) if open_ended else ())), whole
