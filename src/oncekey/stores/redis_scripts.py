"""The scripts: one for each verb, in the form that the server understands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import Any, Final, NamedTuple

from oncekey.errors import ConfigurationError

OLDEST: Final = (6, 2)
_KNOWS_FLAGS: Final = (7, 0)
# Which parts a verb is made of, in their order: they share local variables, and need no functions.
_PARTS: Final = {
    "claim": ("record", "claim", "save", "granted"),
    "renew": ("record", "owner", "renew", "save", "done"),
    "note": ("record", "owner", "note", "save", "done"),
    "settle": ("record", "owner", "settle", "ending", "wake", "save", "done"),
    "release": ("record", "owner", "release", "wake", "save", "done"),
    "resolve": ("record", "resolve", "ending", "wake", "save", "done"),
    "forget": ("record", "forget", "wake", "done"),
    "get": ("record", "get"),
    "watch": ("record", "watch"),
}
# A server that is full must still learn how running attempts ended: that is how it gets empty.
_WHEN_FULL: Final = frozenset({"settle", "renew", "release"})


class Script(NamedTuple):
    """The text, and the name by which a server that has seen it knows it."""

    text: str
    sha: bytes


Scripts = Mapping[str, Script]


def scripts_for(facts: Mapping[str, Any]) -> Scripts:
    """The scripts for a server, told by what its INFO says; an empty one says nothing."""
    if "redis_version" not in facts and facts:  # a cluster tells the facts of each node
        facts = next(iter(facts.values()))
    version = _version(str(facts.get("redis_version", "6.2")))
    if version < OLDEST:
        msg = (
            f"the Redis server has version {facts['redis_version']}; oncekey needs Redis 6.2 or "
            f"newer, or Valkey: upgrade the server"
        )
        raise ConfigurationError(msg)
    return written(flags=version >= _KNOWS_FLAGS)


@cache
def written(*, flags: bool) -> Scripts:
    """All scripts; with flags only where the server can read them."""
    made: dict[str, Script] = {}
    for verb, parts in _PARTS.items():
        first = "#!lua flags=allow-oom\n" if flags and verb in _WHEN_FULL else ""
        text = first + "\n".join(map(_text, parts))
        made[verb] = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest().encode())
    return made


def _text(name: str) -> str:
    return (resources.files("oncekey.stores") / "lua" / f"{name}.lua").read_text("utf-8")


def _version(text: str) -> tuple[int, ...]:
    digits = [part for part in text.split(".")[:2] if part.isdigit()]
    return tuple(map(int, digits))
