"""One shard of a router: what it reads, it applies, passes on and acknowledges."""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from oncekey.events.entry import StreamEntry, delivered, reclaimed
from oncekey.events.observing import Observers
from oncekey.events.redis_replies import words
from oncekey.events.scripts import Names, Script, script
from oncekey.events.settings import Settings
from oncekey.events.trouble import InvalidEventError
from oncekey.stores.redis.client import Clients
from oncekey.stores.redis.connection import Words

BATCH: Final = 100
_FORGET: Final = 24 * 3600 * 1000
"""How long a consumer that is gone is remembered, in milliseconds."""
_log = logging.getLogger("oncekey.events")


class Reader(NamedTuple):
    """Who reads, and with how much patience."""

    group: str
    consumer: str
    claim_after: int
    """Milliseconds after which an entry is taken from a consumer that has not acknowledged it."""
    max_deliveries: int


class ShardRouter:
    """The entries of one shard's stream, each handled once by whichever router gets it."""

    def __init__(
        self,
        clients: Clients,
        settings: Settings,
        reader: Reader,
        shard: int,
        observers: Observers,
    ) -> None:
        self._clients = clients
        self._observers = observers
        self._settings = settings
        self._reader = reader
        self._shard = shard
        self._names = Names(settings.domain)
        self._stream = self._names.stream(shard)

    def join(self) -> None:
        """The group exists; a new one starts with the oldest entry."""
        start = ("XGROUP", "CREATE", self._stream, self._reader.group, "0", "MKSTREAM")
        try:
            self._clients.ask(start)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def take(self, block: int | None) -> int:
        """Entries that nobody has had yet are handled; so many. Waits at most `block` ms."""
        patience: Words = () if block is None else ("BLOCK", block)
        command = ("XREADGROUP", "GROUP", *self._reader[:2], "COUNT", BATCH, *patience)
        entries = delivered(self._clients.ask((*command, "STREAMS", self._stream, ">")))
        self._handle(entries)
        return len(entries)

    def reclaim(self) -> int:
        """Entries of routers that died or hang are handled; so many."""
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
        """The stream has its length, as far as every group allows."""
        arguments = (self._reader.group, self._settings.length, _FORGET)
        self._observers.tell("trimmed", self._run("tidy", (self._stream,), *arguments))

    def leave(self) -> None:
        """The group has forgotten us, unless we hold an entry that another must take."""
        self._run("leave", (self._stream,), *self._reader[:2])

    def _handle(self, entries: list[StreamEntry]) -> None:
        sound: list[StreamEntry] = []
        commands: list[Words] = []
        for entry in entries:
            try:
                commands.append(self._route(entry))
            except (ValueError, InvalidEventError) as error:
                self._bury(entry, f"malformed: {error}")
            else:
                sound.append(entry)
        routed = 0
        for entry, answer in zip(sound, self._sent(commands), strict=True):
            if isinstance(answer, Exception):
                self._failed(entry, answer)
            else:
                routed += answer
        self._observers.tell("routed", routed)

    def _route(self, entry: StreamEntry) -> Words:
        event = entry.event()
        names, shard = self._names, self._shard
        return words(
            script("route"),
            (self._stream, names.job(shard, event.job), names.state(shard, event.job)),
            self._reader.group,
            entry.id,
            event.seq,
            event.id,
            entry.payload,
            self._settings.state_seconds,
            names.nudge(shard),
            event.job,
        )

    def _failed(self, entry: StreamEntry, error: Exception) -> None:
        """It stays pending and is taken again after a while, but not for ever."""
        _log.warning("entry %s of %s failed: %s", entry.id.decode(), self._stream, error)
        if entry.deliveries >= self._reader.max_deliveries:
            self._bury(entry, str(error))

    def _bury(self, entry: StreamEntry, reason: str) -> None:
        _log.error("entry %s of %s is dead: %s", entry.id.decode(), self._stream, reason)
        keys = (self._stream, self._names.dead(self._shard))
        facts = (self._reader.group, entry.id, reason, entry.deliveries, self._settings.dead_length)
        self._observers.tell("dead", self._run("bury", keys, *facts, *entry.fields))

    def _sent(self, commands: list[Words]) -> list[Any]:
        """What the server says to each, errors of single commands included."""
        if not commands:
            return []
        if len(commands) == 1:  # as it is where entries come one by one: the short way
            try:
                return [self._ask(script("route"), commands[0])]
            except ResponseError as error:
                return [error]
        client = self._clients.client()
        answers = _piped(client, commands)
        unknown = [n for n, one in enumerate(answers) if isinstance(one, NoScriptError)]
        if unknown:  # another connection may have taught the server in the middle of the pipeline
            client.script_load(script("route").text)
            again = _piped(client, [commands[n] for n in unknown])
            for n, answer in zip(unknown, again, strict=True):
                answers[n] = answer
        return answers

    def _run(self, name: str, keys: tuple[str, ...], *arguments: str | bytes | int) -> Any:  # noqa: ANN401 - whatever it answers
        chosen = script(name)
        return self._ask(chosen, words(chosen, keys, *arguments))

    def _ask(self, chosen: Script, command: Words) -> Any:  # noqa: ANN401 - whatever it answers
        try:
            return self._clients.ask(command)
        except NoScriptError:
            return self._clients.ask(("EVAL", chosen.text, *command[2:]))


def _piped(client: Any, commands: list[Words]) -> list[Any]:  # noqa: ANN401 - Redis or RedisCluster
    line = client.pipeline(transaction=False)
    for command in commands:
        line.execute_command(*command, NEVER_DECODE=True)
    answers: list[Any] = line.execute(raise_on_error=False)
    return answers
