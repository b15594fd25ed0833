"""The router: it keeps the newest state of each job and wakes the readers of its events."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterable
from time import monotonic
from typing import Any, Final, NamedTuple, Unpack

import msgspec
from redis.exceptions import NoScriptError, ResponseError

from oncekey.errors import ConfigurationError
from oncekey.events.cursor import Cursor, parse
from oncekey.events.errors import InvalidEventError
from oncekey.events.event import bare, check_job
from oncekey.events.memory import Memory, Where
from oncekey.events.observers import EventObservers, Observer
from oncekey.events.redis_commands import EventScript, Names, script, words
from oncekey.events.redis_log import RedisLog
from oncekey.events.settings import BusOptions, BusSettings, positive, settings_of
from oncekey.policy import Duration, seconds
from oncekey.stores.redis.client import Clients
from oncekey.stores.redis.connection import Words
from oncekey.stores.redis.errors import CAUGHT, explain, words_of

# An entry of a shard's stream, as a router reads it.


class RoutedEvent(NamedTuple):
    """What a router must know of an event."""

    job: str
    seq: int
    cursor: Cursor
    known: _Known


class _Known(msgspec.Struct):
    """The fields of an event that every router reads. Others are checked, and not decoded."""

    job_id: str
    domain: str
    stage: str
    seq: int
    data: msgspec.Raw
    timestamp: str

    def element(self, cursor: Cursor) -> bytes:
        """Return the event as it stands in the log."""
        place = f"{cursor.offset}.{cursor.mark}.{self.seq}".encode()
        return b"\t".join((place, bare(self.timestamp), bare(self.stage), self.data))


_decode: Final = msgspec.json.Decoder(_Known).decode


class StreamEntry(NamedTuple):
    """Its id, its fields and values one after the other, and how often it was delivered."""

    id: bytes
    fields: tuple[bytes, ...]
    deliveries: int = 1

    @property
    def payload(self) -> bytes:
        """The event as JSON."""
        return self._field(b"data")

    def event(self) -> RoutedEvent:
        """Return what a router must know of the event in the entry.

        Raise ValueError or InvalidEventError, with the reason, if there is none.
        """
        cursor = parse(self._field(b"id").decode())
        if cursor is None:
            raise InvalidEventError("the field id is no epoch.offset.mark")
        known = _decode(self.payload)
        return RoutedEvent(check_job(known.job_id), known.seq, cursor, known)

    def _field(self, name: bytes) -> bytes:
        fields = self.fields
        for at in range(0, len(fields) - 1, 2):
            if fields[at] == name:
                return fields[at + 1]
        raise InvalidEventError(f"the entry has no field {name.decode()}")


def delivered(reply: Any) -> list[StreamEntry]:
    """Return the entries of one stream in a reply to XREADGROUP."""
    if not reply:
        return []
    found = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    while found and isinstance(found[0], list) and found[0] and not isinstance(found[0][0], bytes):
        found = found[0]  # redis-py wraps it once more in RESP3
    return [StreamEntry(name, _flat(fields)) for name, fields in found if fields]


def reclaimed(reply: Any) -> tuple[int, list[StreamEntry]]:
    """Return the number of lost entries, and the entries that we have claimed."""
    lost, taken = reply
    return lost, [StreamEntry(name, tuple(fields), count) for name, fields, count in taken]


def _flat(fields: Any) -> tuple[bytes, ...]:
    if isinstance(fields, dict):
        return tuple(part for pair in fields.items() for part in pair)
    return tuple(fields)


# One shard of a router, which reads entries, applies them, wakes readers and acknowledges.


BATCH: Final = 100
_FORGET: Final = 24 * 3600 * 1000
"""How long a consumer that is gone is remembered, in milliseconds."""
_log = logging.getLogger("oncekey.events")


class Reader(NamedTuple):
    """The consumer of a router, and its limits."""

    group: str
    consumer: str
    claim_after: int
    """Milliseconds after which an entry is taken from a consumer that has not acknowledged it."""
    max_deliveries: int


class ShardRouter:
    """The entries of one shard's stream, each handled once by the router that gets it."""

    def __init__(
        self,
        clients: Clients,
        settings: BusSettings,
        reader: Reader,
        shard: int,
        observers: EventObservers,
    ) -> None:
        self._clients = clients
        self._observers = observers
        self._settings = settings
        self._reader = reader
        self._shard = shard
        self._names = Names(settings.domain)
        self._stream = self._names.stream(shard)

    def join(self) -> None:
        """Create the group if there is none. A new one starts with the oldest entry."""
        start = ("XGROUP", "CREATE", self._stream, self._reader.group, "0", "MKSTREAM")
        try:
            self._clients.ask(start)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def take(self, block: int | None) -> int:
        """Handle entries that no router has had yet. Return how many. Wait at most `block` ms."""
        patience: Words = () if block is None else ("BLOCK", block)
        command = ("XREADGROUP", "GROUP", *self._reader[:2], "COUNT", BATCH, *patience)
        entries = delivered(self._clients.ask((*command, "STREAMS", self._stream, ">")))
        self._handle(entries)
        return len(entries)

    def reclaim(self) -> int:
        """Handle entries of routers that died or hang. Return how many."""
        reader = self._reader
        arguments = (reader.group, reader.consumer, reader.claim_after, BATCH)
        lost, entries = reclaimed(self._run("reclaim", (self._stream,), *arguments))
        if lost:
            _log.error("%d entries of %s were deleted before a router", lost, self._stream)
            self._observers.tell("lost", lost)
        self._observers.tell("reclaimed", len(entries))
        self._handle(entries)
        return len(entries)

    def tidy(self) -> None:
        """Trim the stream to its length and the life of its jobs, as far as every group allows."""
        settings = self._settings
        arguments = (self._reader.group, settings.length, _FORGET, settings.marker_seconds)
        self._observers.tell("trimmed", self._run("tidy", (self._stream,), *arguments))

    def leave(self) -> None:
        """Delete our consumer from the group, unless it holds an entry that another must take."""
        self._run("leave", (self._stream,), *self._reader[:2])

    def _handle(self, entries: list[StreamEntry]) -> None:
        jobs: dict[tuple[str, str], list[tuple[StreamEntry, RoutedEvent]]] = {}
        for entry in entries:
            try:
                event = entry.event()
            except (ValueError, InvalidEventError) as error:
                self._bury(entry, f"malformed: {error}")
            else:
                jobs.setdefault((event.job, event.cursor.epoch), []).append((entry, event))
        groups = list(jobs.values())
        routed = 0
        for group, answer in zip(groups, self._sent(list(map(self._route, groups))), strict=True):
            if isinstance(answer, Exception):
                for entry, _ in group:
                    self._failed(entry, answer)
            else:
                routed += answer
        self._observers.tell("routed", routed)

    def _route(self, group: list[tuple[StreamEntry, RoutedEvent]]) -> Words:
        """Return the command for entries of one job, of which only one can become its state."""
        _, event = max(group, key=lambda one: one[1].seq)
        newest = max(one.cursor for _, one in group)
        names, shard = self._names, self._shard
        return words(
            script("route"),
            (
                self._stream,
                names.job(shard, event.job),
                names.state(shard, event.job),
                names.log(shard, event.job),
            ),
            self._reader.group,
            event.seq,
            str(event.cursor),
            event.known.element(event.cursor),
            self._settings.state_seconds,
            str(newest),
            *(one.id for one, _ in group),
        )

    def _failed(self, entry: StreamEntry, error: Exception) -> None:
        """Leave the entry pending for another try, or bury it after `max_deliveries`."""
        _log.warning("entry %s of %s failed: %s", entry.id.decode(), self._stream, error)
        if entry.deliveries >= self._reader.max_deliveries:
            self._bury(entry, str(error))

    def _bury(self, entry: StreamEntry, reason: str) -> None:
        _log.error("entry %s of %s is dead: %s", entry.id.decode(), self._stream, reason)
        keys = (self._stream, self._names.dead(self._shard))
        facts = (self._reader.group, entry.id, reason, entry.deliveries, self._settings.dead_length)
        self._observers.tell("dead", self._run("bury", keys, *facts, *entry.fields))

    def _sent(self, commands: list[Words]) -> list[Any]:
        """Return the reply to each command. Errors of single commands are among them."""
        if not commands:
            return []
        if len(commands) == 1:  # as when entries come one by one: this way is shorter
            try:
                return [self._ask(script("route"), commands[0])]
            except ResponseError as error:
                return [error]
        client = self._clients.client()
        answers = _piped(client, commands)
        unknown = [n for n, one in enumerate(answers) if isinstance(one, NoScriptError)]
        if unknown:  # another connection may have loaded the script in the middle of the pipeline
            client.script_load(script("route").text)
            again = _piped(client, [commands[n] for n in unknown])
            for n, answer in zip(unknown, again, strict=True):
                answers[n] = answer
        return answers

    def _run(self, name: str, keys: tuple[str, ...], *arguments: str | bytes | int) -> Any:
        chosen = script(name)
        return self._ask(chosen, words(chosen, keys, *arguments))

    def _ask(self, chosen: EventScript, command: Words) -> Any:
        try:
            return self._clients.ask(command)
        except NoScriptError:
            return self._clients.ask(("EVAL", chosen.text, *command[2:]))


def _piped(client: Any, commands: list[Words]) -> list[Any]:
    line = client.pipeline(transaction=False)
    for command in commands:
        line.execute_command(*command, NEVER_DECODE=True)
    answers: list[Any] = line.execute(raise_on_error=False)
    return answers


# The router: it keeps the newest state of each job and wakes the readers of its events.
#
# Any number may run at once. Readers take events from the logs, so a router that dies or is late
# costs time, but never an event.


_BLOCK: Final = 500
_SIGNALS: Final = 0.5
"""Seconds that a signal handler, which runs in the thread of `run`, may have to wait."""
_TIDY: Final = 1.0
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_URLS: Final = ("redis://", "rediss://", "unix://")
_GONE: Final = (
    "the consumer group of a stream at %s is gone: Redis has lost it, or somebody removed it. It "
    "is made again, from the oldest entry that is left"
)


class Router:
    """Reads the streams of a domain in a consumer group, with one thread for each shard."""

    def __init__(
        self,
        where: Where,
        *,
        domain: str,
        group: str = "router",
        consumer: str | None = None,
        claim_after: Duration = "30s",
        max_deliveries: int = 5,
        observers: Iterable[Observer] = (),
        **options: Unpack[BusOptions],
    ) -> None:
        """Check the settings. Nothing is sent yet.

        `where` is a URL or a client of redis-py. An entry that a router took and has not
        acknowledged after `claim_after` is handled by another router. An entry that was delivered
        `max_deliveries` times and fails goes to the dead stream.
        """
        positive("max_deliveries", max_deliveries)
        for name, word in (("group", group), ("consumer", consumer)):
            if word is not None and not (isinstance(word, str) and word):
                raise ConfigurationError(f"{name} must be a word, not {word!r}")
        settings = settings_of(domain, None, options)
        url = where if isinstance(where, str) else None
        if where is None or isinstance(where, Memory) or not (url or "redis://").startswith(_URLS):
            msg = "a router reads streams of Redis; its URL starts with redis://, rediss:// or unix://"
            raise ConfigurationError(msg)  # another URL may hold a password, so do not print it
        self._clients = (
            Clients.of_url(where) if isinstance(where, str) else Clients.of_client(where)
        )
        told = EventObservers(settings.domain, observers)
        self._log = RedisLog(self._clients, settings, told)
        self._period = seconds(claim_after, "claim_after")
        name = consumer or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        reader = Reader(group, name, max(1, round(self._period * 1000)), max_deliveries)
        self._shards = [
            ShardRouter(self._clients, settings, reader, shard, told)
            for shard in range(settings.shards)
        ]
        self._block = _block_of(self._clients.settings)
        self._stopped = threading.Event()
        self._broken: list[BaseException] = []

    def step(self) -> int:
        """Handle the entries that are there now, without waiting. Return how many.

        Raise StoreError if Redis fails.
        """
        try:
            self._log.agree()
            for shard in self._shards:
                shard.join()
            handled = sum(shard.reclaim() for shard in self._shards)
            for shard in self._shards:
                while count := shard.take(None):
                    handled += count
                shard.tidy()
        except CAUGHT as error:
            raise explain(error, self._clients.where, sent_once=False) from error
        return handled

    def run(self) -> None:
        """Handle entries until `stop`, whatever happens to Redis.

        Raise the error of a shard's thread if one ends.
        """
        threads = [
            threading.Thread(target=self._serve, args=(shard,), name=f"oncekey-router-{number}")
            for number, shard in enumerate(self._shards)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a signal that hits another thread cannot wake this one
                thread.join(_SIGNALS)
        if self._broken:
            raise self._broken[0]

    def stop(self) -> None:
        """Make `run` return after the current entries. A signal handler may call this."""
        self._stopped.set()

    def close(self) -> None:
        """Close our connections."""
        self._clients.close()

    def _serve(self, shard: ShardRouter) -> None:
        try:
            self._until_stopped(shard)
        except BaseException as error:  # noqa: BLE001 - handed to whoever called run
            self._broken.append(error)
            self._stopped.set()

    def _until_stopped(self, shard: ShardRouter) -> None:
        pause, joined, said = _SHORTEST_PAUSE, False, ""
        look = tidy = monotonic()
        while not self._stopped.is_set():
            try:
                if not joined:
                    self._log.agree()
                    shard.join()
                    joined = True
                if monotonic() >= look:
                    full = shard.reclaim()
                    look = monotonic() + (0 if full else self._period / 3)
                if monotonic() >= tidy:
                    shard.tidy()
                    tidy = monotonic() + _TIDY
                shard.take(self._block)
                pause, said = _SHORTEST_PAUSE, ""
            except CAUGHT as error:
                if _group_is_gone(error):
                    joined = False
                    _log.warning(_GONE, self._clients.where)
                elif words_of(error) != said:  # once, however long it lasts
                    _log.warning("a router of %s waits: %s", self._clients.where, words_of(error))
                said = words_of(error)
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        if joined:
            self._say_goodbye(shard)

    def _say_goodbye(self, shard: ShardRouter) -> None:
        try:
            shard.leave()
        except CAUGHT as error:  # other routers take our entries later
            why = words_of(error)
            _log.warning("a router of %s left without a word: %s", self._clients.where, why)


def _group_is_gone(error: Exception) -> bool:
    """Return whether the consumer group is gone, for example after a loss of data."""
    told = str(error)  # the second is about a stream that is gone with its groups
    return isinstance(error, ResponseError) and ("NOGROUP" in told or "no such key" in told)


def _block_of(settings: dict[str, Any] | None) -> int:
    """Return how long a read may block, in milliseconds: less than the client's time-out."""
    longest = (settings or {}).get("socket_timeout")
    return _BLOCK if longest is None else max(1, min(_BLOCK, int(longest * 500)))
