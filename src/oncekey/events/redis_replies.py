"""What is sent to the scripts, and what their replies mean."""

from __future__ import annotations

from typing import Any, Final

from oncekey.errors import ConfigurationError
from oncekey.events.cursor import Cursor, View, parse
from oncekey.events.draft import Ask
from oncekey.events.event import Published
from oncekey.events.observing import Observers
from oncekey.events.place import Entry, Full, Kept, Look, Start
from oncekey.events.scripts import Names, Script, publish_script, script
from oncekey.events.settings import Settings
from oncekey.stores.redis.connection import Words
from oncekey.stores.redis.errors import CAUGHT

TROUBLE: Final = (*CAUGHT, AttributeError)
"""What redis-py may raise. In a cluster it closes connections that are in use by other coroutines,
who then find None where their connection was."""


def words(chosen: Script, keys: tuple[str, ...], *arguments: str | bytes | int) -> Words:
    """A command for a server that knows the script."""
    return ("EVALSHA", chosen.sha, len(keys), *keys, *arguments)


def whole(chosen: Script, command: Words) -> Words:
    """The same command for a server that does not know the script."""
    return ("EVAL", chosen.text, *command[2:])


class Publishing:
    """The command that appends an event of a domain, and what its reply means."""

    def __init__(self, settings: Settings, names: Names, observers: Observers) -> None:
        """What every command has is made once."""
        self.script = publish_script(settings)
        self._observers = observers
        head = ("EVALSHA", self.script.sha, 3)
        self._shards = [
            ((*head, names.stream(shard)), names.log(shard, ""), names.job(shard, ""))
            for shard in range(settings.shards)
        ]

    def words(self, ask: Ask) -> Words:
        """The command."""
        head, log, job = self._shards[ask.shard]
        name, seq = ask.job, ask.seq
        return (
            *head,
            log + name,
            job + name,
            f"m:{ask.stage}:{seq}",
            f"s:{seq}",
            ask.digest,
            ask.mark,
            ask.epoch,
            ask.payload,
        )

    def published(self, reply: Any) -> Published | Full:  # noqa: ANN401 - as the script makes it
        """What became of it."""
        if type(reply) is bytes:  # the usual case: epoch, offset and mark
            epoch, offset, _ = reply.decode().split(".")
            return Published(int(offset), epoch, duplicate=False, differs=False)
        if reply[0] is None:
            return Full(reply[1])
        name, place, duplicate, differs, trimmed = reply
        self._observers.tell("trimmed", trimmed)
        return Published(place, name.decode(), bool(duplicate), bool(differs))


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
