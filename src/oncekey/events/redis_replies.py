"""What is sent to the scripts, and what their replies mean."""

from __future__ import annotations

from typing import Any, Final

from oncekey.errors import ConfigurationError
from oncekey.events.cursor import Cursor, View, parse
from oncekey.events.draft import Ask
from oncekey.events.event import Published
from oncekey.events.observing import Observers
from oncekey.events.place import Entry, Full, Kept, Look, Start
from oncekey.events.scripts import Names, script
from oncekey.events.settings import Settings
from oncekey.stores.redis_errors import CAUGHT
from oncekey.stores.redis_line import Words
from oncekey.stores.redis_scripts import Script

TROUBLE: Final = (*CAUGHT, AttributeError)
"""What redis-py may raise. In a cluster it closes connections that are in use by other coroutines,
who then find None where their connection was."""


def words(chosen: Script, keys: tuple[str, ...], *arguments: str | bytes | int) -> Words:
    """A command for a server that knows the script."""
    return ("EVALSHA", chosen.sha, len(keys), *keys, *arguments)


def publish(ask: Ask, names: Names, settings: Settings) -> Words:
    """The command that appends the event."""
    shard, job = ask.shard, ask.job
    return words(
        script("publish"),
        (names.stream(shard), names.log(shard, job), names.job(shard, job)),
        f"{ask.stage}:{ask.seq}",
        ask.seq,
        ask.digest,
        ask.mark,
        ask.epoch,
        ask.payload,
        settings.marker_seconds,
        settings.length,
        settings.slack,
        settings.hard_cap,
        settings.log_length,
    )


def published(reply: list[Any], observers: Observers) -> Published | Full:
    """What became of it."""
    if reply[0] is None:
        return Full(reply[1])
    epoch, offset, duplicate, differs, trimmed = reply
    if trimmed:
        observers.tell("trimmed", trimmed)
    return Published(offset, epoch.decode(), bool(duplicate), bool(differs))


def look(job: str, shard: int, start: Start, count: int, names: Names) -> Words:
    """The command that reads a part of a log."""
    place: str | int = start.number if start.kind == "offset" else start.kind
    number: str | int = start.number if start.kind == "seq" else ""
    keys = (names.log(shard, job), names.job(shard, job))
    return words(script("read"), keys, place, count, number)


def looked(reply: list[Any]) -> Look:
    """The part."""
    if len(reply) == 1:
        return Look(View(None, 1, 0, None), None, [])
    epoch, first, last, offset, mark, entries = reply
    view = View(epoch.decode(), first, last, None if mark is None else mark.decode())
    return Look(view, offset, [_entry(*entry) for entry in entries])


def _entry(name: bytes, fields: list[bytes]) -> Entry:
    return Entry(int(name.partition(b"-")[0]), fields[3].decode(), fields[1])


def kept(reply: list[Any]) -> Kept | None:
    """The state, of which these are the id and the payload."""
    name, payload = reply
    cursor: Cursor | None = None if name is None else parse(name.decode())
    return None if cursor is None else Kept(cursor, payload)


def agreed(found: bytes | None, settings: Settings) -> None:
    """Raises where the domain has another number of shards than we were told."""
    if found is not None and found != str(settings.shards).encode():
        msg = (
            f"the domain {settings.domain!r} has {found.decode(errors='replace')} shards, not "
            f"{settings.shards}: its jobs would be looked for where they are not. Give that "
            f"number, or another domain"
        )
        raise ConfigurationError(msg)
