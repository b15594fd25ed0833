"""The Lua scripts for events in Redis, their keys, and the meaning of their replies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import Any, Final, NamedTuple

from oncekey.errors import ConfigurationError, StoreError
from oncekey.events.cursor import View, parse
from oncekey.events.event import ALL_OF_TOPIC, Append, Published, head_of, payload_of, topic_of
from oncekey.events.log import BUDGET, MOST_JOBS, Entry, JobState, LogFull, Look, Start
from oncekey.events.observers import EventObservers
from oncekey.events.settings import BusSettings
from oncekey.stores.redis.connection import Words
from oncekey.stores.redis.errors import CAUGHT

# The scripts, and the names of the keys that they use.


_PARTS: Final = {"publish": ("trim", "seen", "publish"), "tidy": ("trim", "tidy")}
RECENT: Final = 512
"""The number of newest events of a job whose markers are complete. Older ones are bits."""
_BEHIND: Final = -1
"""The reply for an event that was not appended because the one before it is not there."""
_WATCHED: Final = 60
"""Seconds for which it is known that somebody waits for a job that has not begun."""


class EventScript(NamedTuple):
    """The text of a script, and the SHA-1 by which a server knows it."""

    text: str
    sha: str


@cache
def script(name: str, first: str = "") -> EventScript:
    """Return the script of this name, after the line `first`.

    The text is the same for every server.
    """
    folder = resources.files("oncekey.events") / "lua"
    parts = _PARTS.get(name, (name,))
    text = first + "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)
    return EventScript(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def publish_script(settings: BusSettings) -> EventScript:
    """Return the script that appends an event.

    It contains the settings of the domain, so that they are not sent with every event.
    """
    facts = (
        f"'{settings.marker_seconds}'",
        *(settings.length, settings.slack, settings.hard_cap, settings.log_length),
        *(RECENT, f"'{settings.shards}'"),
    )
    names = "local lifetime, wanted, slack, most, kept, recent, shards"
    return script("publish", f"{names} = {', '.join(map(str, facts))}\n")


class Names:
    """The keys of a domain. Those of one shard share a hash tag, and so a node of a cluster."""

    def __init__(self, domain: str) -> None:
        self.shards = f"{{{domain}}}:shards"
        self._domain = domain

    def agreed(self, shard: int) -> str:
        """Return the key of the number of shards, beside the jobs of a shard."""
        return f"{{{self._domain}:{shard}}}:shards"

    def stream(self, shard: int) -> str:
        """Return the stream that routers read."""
        return f"{{{self._domain}:{shard}}}:events"

    def dead(self, shard: int) -> str:
        """Return the stream of entries that no router could handle."""
        return f"{{{self._domain}:{shard}}}:dead"

    def log(self, shard: int, job: str) -> str:
        """Return the key of a job's events, in order. It is their channel too."""
        return f"{{{self._domain}:{shard}}}:log:{job}"

    def job(self, shard: int, job: str) -> str:
        """Return the key of a job's facts: epoch, newest offset, markers, state."""
        return f"{{{self._domain}:{shard}}}:job:{job}"

    def topic(self, shard: int, topic: str) -> str:
        """Return the key of the jobs of a topic in a shard. It is their channel too."""
        return f"{{{self._domain}:{shard}}}:topic:{topic}"

    def channel(self, shard: int, name: str) -> str:
        """Return the channel of a job, or of all jobs of a topic."""
        if name.endswith(ALL_OF_TOPIC):
            return self.topic(shard, name.removesuffix(ALL_OF_TOPIC))
        return self.log(shard, name)

    def state(self, shard: int, job: str) -> str:
        """Return the key of the state of a job that ran out before a router came."""
        return f"{{{self._domain}:{shard}}}:state:{job}"


# Commands for the scripts, and the meaning of their replies.


TROUBLE: Final = (*CAUGHT, AttributeError)
"""The errors that redis-py may raise.

In a cluster it closes connections that other coroutines use. They then find None in place of their
connection, which is an AttributeError.
"""


def words(chosen: EventScript, keys: tuple[str, ...], *arguments: str | bytes | int) -> Words:
    """Return the command for a server that knows the script."""
    return ("EVALSHA", chosen.sha, len(keys), *keys, *arguments)


def whole(chosen: EventScript, command: Words) -> Words:
    """Return the same command for a server that does not know the script."""
    return ("EVAL", chosen.text, *command[2:])


class Publishing:
    """The command that appends an event of a domain, and the meaning of its reply."""

    def __init__(self, settings: BusSettings, names: Names, observers: EventObservers) -> None:
        """Prepare the parts that all commands share."""
        self.script = publish_script(settings)
        self._observers = observers
        self._names = names
        self._shards = [
            (
                names.stream(shard),
                *(names.log(shard, ""), names.job(shard, ""), names.agreed(shard)),
            )
            for shard in range(settings.shards)
        ]

    def commands(self, asks: Sequence[Append]) -> list[Words]:
        """Return the commands that append the events.

        One that was refused must not be overtaken by the next of its job. So that is not appended
        either unless the one before it is there.
        """
        before: dict[str, Append] = {}
        made: list[Words] = []
        for ask in asks:
            stream, log, job, agreed = self._shards[ask.shard]
            name, last = ask.job, before.get(ask.job)
            topic = topic_of(name) if "/" in name else None
            more = () if topic is None else (self._names.topic(ask.shard, topic),)
            words: Words = (  # no numbers among them: that is faster to pack
                "EVALSHA",
                self.script.sha,
                "5" if more else "4",
                stream,
                log + name,
                job + name,
                agreed,
                *more,
                str(ask.seq),
                ask.label,
                ask.data,
                ask.time,
                ask.head,
                f"{ask.mark}.{ask.digest}",
                ask.epoch,
            )
            if last is not None:
                words = (*words, name, last.seq, last.label)
            elif more:
                words = (*words, name)
            made.append(words)
            before[name] = ask
        return made

    def published(
        self, asks: Sequence[Append], replies: Sequence[Any]
    ) -> list[Published | LogFull]:
        """Return what became of the events.

        Raise StoreError if one is gone that was appended before others.
        """
        made: dict[str, Published | LogFull] = {}
        answers: list[Published | LogFull] = []
        for ask, reply in zip(asks, replies, strict=True):
            answer: Published | LogFull
            if type(reply) is bytes:  # the usual case: epoch, offset and mark
                epoch, offset, _ = reply.decode().split(".")
                answer = Published(int(offset), epoch, duplicate=False, differs=False)
            elif reply != _BEHIND:
                answer = self._full_or_known(reply)
            elif not isinstance(answer := made[ask.job], LogFull):
                msg = "the server has lost events of a batch while others of it were appended"
                raise StoreError(f"{msg}; publish all of them again", happened=None)
            made[ask.job] = answer
            answers.append(answer)
        return answers

    def _full_or_known(self, reply: Any) -> Published | LogFull:
        if type(reply) is int:
            return LogFull(reply)
        if reply[0] is None:
            msg = "somebody deletes the number of shards again and again; nothing was appended"
            raise StoreError(msg, happened=False)
        name, place, duplicate, differs, trimmed = reply
        self._observers.tell("trimmed", trimmed)
        known = None if differs < 0 else bool(differs)
        return Published(place, name.decode(), bool(duplicate), known)


def again(replies: Sequence[Any]) -> list[int]:
    """Return which commands to send again when all agree on the number of shards.

    A shard that does not know the number has appended nothing.
    """
    if list not in map(type, replies):  # nearly always
        return []
    unknown = [n for n, reply in enumerate(replies) if type(reply) is list and reply[0] is None]
    behind = [n for n, reply in enumerate(replies) if reply == _BEHIND]
    return sorted(unknown + behind) if unknown else []


def look(keys: tuple[str, str], start: Start, count: int, settings: BusSettings) -> Words:
    """Return the command that reads a part of a log. The keys are those of the log and the job."""
    place: str | int = start.number if start.kind == "offset" else start.kind
    step = max(1, min(count, BUDGET // settings.data_bytes))
    watch = (_WATCHED,) if start.watch else ()
    return words(script("read"), keys, place, count, step, BUDGET, *watch)


def looked(reply: list[Any], job: str, settings: BusSettings) -> Look:
    """Return the part of a job's log in a reply."""
    if len(reply) == 1:
        return Look(View(None, 1, 0, None), 0, [])
    epoch, first, last, offset, mark, trimmed, entries = reply
    gone: int | None = -1
    if first > 1:  # what was trimmed by others is not known
        up_to, greatest = (trimmed or b"0 0").split()
        gone = int(greatest) if int(up_to) == first - 1 else None
    view = View(epoch.decode(), first, last, None if mark is None else mark.decode(), gone)
    head = head_of(job, settings.domain)
    return Look(view, offset, [_entry(head, element) for element in entries])


def _entry(head: bytes, element: bytes) -> Entry:
    try:
        place, time, stage, data = element.split(b"\t", 3)
        offset, mark, seq = place.split(b".")
        number = int(seq)
        payload = payload_of(head, stage, seq, data, time)
        return Entry(int(offset), mark.decode(), number, payload)
    except ValueError:
        return Entry(0, "", 0, element)  # none of ours, and at no place


def topic(key: str) -> Words:
    """Return the command that reads the jobs of a topic in a shard, and one more than we take."""
    return words(script("topic"), (key,), MOST_JOBS + 1)


def kept(reply: bytes | None, job: str, settings: BusSettings) -> JobState | None:
    """Return the state in a reply, which is like an element of a log after its epoch, or None."""
    epoch, _, element = (reply or b"").partition(b".")
    entry = _entry(head_of(job, settings.domain), element)
    cursor = parse(f"{epoch.decode('ascii', 'replace')}.{entry.offset}.{entry.mark}")
    return None if cursor is None else JobState(cursor, entry.payload)


def unrouted(domain: str, shard: int) -> str:
    """Return the warning about a shard that no router reads."""
    return (
        f"no router reads shard {shard} of the domain {domain!r}: jobs have no state, and its "
        f"stream grows until publishers are refused. Start one: oncekey router --domain {domain}"
    )


def agreed(found: bytes | None, settings: BusSettings) -> None:
    """Raise ConfigurationError if the domain has another number of shards than configured."""
    if found is not None and found != str(settings.shards).encode():
        msg = (
            f"the domain {settings.domain!r} has {found.decode(errors='replace')} shards, not "
            f"{settings.shards}: its jobs would be looked for where they are not. Give that "
            f"number, or another domain"
        )
        raise ConfigurationError(msg)
