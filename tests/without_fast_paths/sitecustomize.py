"""Stores without their fast paths: in this process, and in every one that it starts.

Python imports a module of this name when it starts, wherever PYTHONPATH leads to one: so a switch
that is on reaches workers, servers and whatever else a test starts, without telling them.

What is not asked for has a default, and the default is what is changed here: a test that asks for
a fast path in so many words is about it, and carries the mark `fast_path`. Whoever makes a part of
a fast path all the same is stopped, and the ledger has a line about it, in case nobody listens.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

LEDGER: Final = "WITHOUT_FAST_PATHS_LEDGER"
"""The variable that names the file with a line for each store, and for each fast path taken."""

DEFAULTS: Final[dict[str, dict[str, str]]] = {
    "oncekey.stores.redis.store": {"RedisStore.__init__": "fast", "RedisStore.from_url": "fast"},
    "oncekey.stores.redis.store_async": {
        "AsyncRedisStore.__init__": "fast",
        "AsyncRedisStore.from_url": "fast",
    },
    "oncekey.stores.redis.client": {
        "Clients.of_client": "fast",
        "Clients.of_url": "fast",
        "AsyncClients.__init__": "fast",
        "AsyncClients.of_client": "fast",
        "AsyncClients.of_url": "fast",
    },
    "oncekey.stores.postgres.store": {"PostgresStore.__init__": "fast"},
    "oncekey.stores.postgres.store_async": {"AsyncPostgresStore.__init__": "fast"},
    "oncekey.stores.postgres.address": {"Target.of": "fast"},
    "oncekey.stores.mysql.store": {"MySQLStore.__init__": "fast"},
    "oncekey.stores.mysql.store_async": {"AsyncMySQLStore.__init__": "fast"},
    "oncekey.stores.mysql.address": {"MySQLTarget.of": "fast"},
    "oncekey.stores.sqlite.store": {"SQLiteStore.__init__": "fast"},
    "oncekey.stores.sqlite.writer": {"Writer.__init__": "fast"},
}
"""What is False from now on unless it is said."""

CACHE: Final = "oncekey.engine.runtime"
"""Where it is decided who has a cache that nobody asked for."""

STORES: Final = {
    "oncekey.stores.redis.store": "RedisStore",
    "oncekey.stores.redis.store_async": "AsyncRedisStore",
    "oncekey.stores.postgres.store": "PostgresStore",
    "oncekey.stores.postgres.store_async": "AsyncPostgresStore",
    "oncekey.stores.mysql.store": "MySQLStore",
    "oncekey.stores.mysql.store_async": "AsyncMySQLStore",
    "oncekey.stores.sqlite.store": "SQLiteStore",
}
"""What is counted."""

FAST: Final = {
    "oncekey.stores.redis.connection": ("Lines",),
    "oncekey.stores.redis.connection_async": ("Wire", "Wires"),
    "oncekey.stores.crowd": ("Crowd",),
    "oncekey.stores.sqlite.writer": ("Writer",),
    "oncekey.engine.cache": ("Cache",),
}
"""What a fast path is made of. A writer may be slow as well, and says so."""

CHANGED: Final = frozenset({*DEFAULTS, *STORES, *FAST, CACHE})


class FastPathError(AssertionError):
    """A fast path was taken though all of them are off."""


class Changed:
    """A loader that changes a module as soon as it is there."""

    def __init__(self, loader: Any) -> None:  # any loader: they share no base class
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        change(module)


class Finder:
    """Finds the modules that are to be changed, before anybody else does."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in CHANGED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Changed(spec.loader)  # type: ignore[assignment]  # it does what one does
        return spec


def on() -> bool:
    """Whether fast paths are off here."""
    return LEDGER in os.environ


def install() -> None:
    """From now on every store that is opened has no fast path."""
    if not any(type(finder).__name__ == Finder.__name__ for finder in sys.meta_path):
        early = sorted(CHANGED & set(sys.modules))
        for name in early:
            change(sys.modules[name])
        sys.meta_path.insert(0, Finder())


def change(module: ModuleType) -> None:
    """The module as it is without fast paths."""
    name = module.__name__
    for place, option in DEFAULTS.get(name, {}).items():
        owner, _, method = place.partition(".")
        function = vars(getattr(module, owner))[method]
        getattr(function, "__func__", function).__kwdefaults__[option] = False
    if name == CACHE:
        made = module._cache
        vars(module)["_cache"] = lambda wanted, **_: made(wanted, remote=False)
    if name in STORES:
        _before(getattr(module, STORES[name]), lambda kind, _: write("store", kind))
    for kind in FAST.get(name, ()):
        _before(getattr(module, kind), _refuse)


def _before(kind: type, do: Callable[[str, dict[str, Any]], None]) -> None:
    """This is done before each time one of this kind is made."""
    init = vars(kind)["__init__"]

    @wraps(init)
    def made(self: object, *args: Any, **options: Any) -> None:
        do(kind.__name__, options)
        init(self, *args, **options)

    kind.__init__ = made  # type: ignore[misc]  # that is the purpose


def _refuse(kind: str, options: dict[str, Any]) -> None:
    if options.get("fast", kind != "Writer"):
        write("fast", kind)
        msg = (
            f"{kind} was made under --without-fast-paths; "
            "mark the test with fast_path, or ask for fast=False"
        )
        raise FastPathError(msg)


def write(what: str, kind: str) -> None:
    """One line: what was made, by which process, in which test. One small append is one write."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "no test").partition(" (")[0]
    with open(os.environ[LEDGER], "a", encoding="utf-8") as ledger:  # noqa: PTH123 - before pathlib is needed
        ledger.write(f"{what}\t{kind}\t{os.getpid()}\t{test}\n")


if on():
    install()
