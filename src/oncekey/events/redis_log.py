"""Events in Redis or Valkey: the streams, logs and states of a domain."""

# Generated from redis_log_async.py by "make generate": do not edit.

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

from redis.exceptions import NoScriptError

from oncekey.events import redis_commands as replies
from oncekey.events.event import Append, Published
from oncekey.events.log import JobState, LogFull, Look, Start
from oncekey.events.observers import EventObservers
from oncekey.events.redis_commands import EventScript, Names, script, words
from oncekey.events.redis_listener import RedisListener
from oncekey.events.settings import BusSettings
from oncekey.stores.redis.client import Clients
from oncekey.stores.redis.connection import Words
from oncekey.stores.redis.errors import explain

_log = logging.getLogger("oncekey.events")
_MINUTE: Final = 60.0
_TRIES: Final = 3
"""How often to agree on the number of shards, while others delete it."""


class RedisLog:
    """One domain on a server, through a client of redis-py."""

    def __init__(self, clients: Clients, settings: BusSettings, observers: EventObservers) -> None:
        self._clients = clients
        self._settings = settings
        self._names = Names(settings.domain)
        self._publishing = replies.Publishing(settings, self._names, observers)
        self._agreed = False
        self._routers_due = [0.0] * settings.shards
        """When to look for a router of each shard."""

    def append(self, asks: Sequence[Append], /) -> list[Published | LogFull]:
        """Append each event to its log and its shard's stream, once, in one round trip."""
        commands = self._publishing.commands(asks)
        try:
            if not self._agreed:
                self.agree()
            if len(commands) == 1:
                answers = [self._ask(self._publishing.script, commands[0])]
            else:
                answers = self._ask_all(commands)
            for _ in range(_TRIES):
                late = replies.again(answers)
                if not late:
                    break
                self._agree_in({asks[n].shard for n in late})
                again = self._ask_all([commands[n] for n in late])
                for n, answer in zip(late, again, strict=True):
                    answers[n] = answer
            made = self._publishing.published(asks, answers)
            now = monotonic()
            for shard in {ask.shard for ask in asks}:
                if now >= self._routers_due[shard]:
                    self._look_for_router(shard)
        except replies.TROUBLE as error:
            raise self._explained(error) from error
        return made

    def look(self, job: str, shard: int, start: Start, count: int, /) -> Look:
        """Return at most `count` events after the start."""
        keys = (self._names.log(shard, job), self._names.job(shard, job))
        command = replies.look(keys, start, count, self._settings)
        try:
            if not self._agreed:
                self.agree()
            found = replies.looked(self._ask(script("read"), command), job, self._settings)
            if found.view.epoch is None:  # it may be in another shard
                self.agree()
            if start.watch and monotonic() >= self._routers_due[shard]:
                self._look_for_router(shard)
        except replies.TROUBLE as error:
            raise self._explained(error) from error
        return found

    def state(self, job: str, shard: int, /) -> JobState | None:
        """Return the event with the greatest seq that a router has seen, or None."""
        names, asked = self._names, script("state")
        keys = (names.job(shard, job), names.log(shard, job), names.state(shard, job))
        try:
            if not self._agreed:
                self.agree()
            found = self._ask(asked, words(asked, keys))
            return replies.kept(found, job, self._settings)
        except replies.TROUBLE as error:
            raise self._explained(error) from error

    def topic(self, topic: str, shard: int, /) -> list[str]:
        """Return the living jobs of a topic in a shard, or `MOST_JOBS` + 1 if there are more."""
        command = replies.topic(self._names.topic(shard, topic))
        try:
            if not self._agreed:
                self.agree()
            return [name.decode() for name in self._ask(script("topic"), command)]
        except replies.TROUBLE as error:
            raise self._explained(error) from error

    def close(self) -> None:
        """Close the connections to the server. The next use opens new ones."""
        self._clients.close()

    def listening(self) -> RedisListener:
        """Return what hears of jobs and topics."""
        return RedisListener(self._clients, self._names)

    def agree(self) -> None:
        """Store the number of shards, or compare it with the stored one.

        Raise ConfigurationError if they differ.
        """
        found = self._clients.ask(("GET", self._names.shards))
        if found is None:
            self._clients.ask(("SET", self._names.shards, self._settings.shards, "NX"))
            found = self._clients.ask(("GET", self._names.shards))
        replies.agreed(found, self._settings)
        self._agreed = True

    def _agree_in(self, shards: set[int]) -> None:
        """Store the number of shards beside the jobs of these shards too, once all agree on it.

        A script that begins a job compares it there. After a loss of all data, another number may
        have been stored in the meantime.
        """
        self.agree()
        for shard in shards:
            name = self._names.agreed(shard)
            found = self._clients.ask(("GET", name))
            if found is None:
                self._clients.ask(("SET", name, self._settings.shards, "NX"))
            else:
                replies.agreed(found, self._settings)

    def _look_for_router(self, shard: int) -> None:
        """Warn if no router reads the shard. Look again in a minute."""
        self._routers_due[shard] = monotonic() + _MINUTE
        try:
            groups = self._clients.ask(("XINFO", "GROUPS", self._names.stream(shard)))
        except replies.TROUBLE:  # no stream yet, no right, or gone: the events are appended
            return
        if not groups:
            _log.warning("%s", replies.unrouted(self._settings.domain, shard))

    def _ask(self, chosen: EventScript, command: Words) -> Any:
        """Run the script. Return its reply. Send the text if the server does not know the script.

        A server that does not know it has not run it, so that nothing runs twice.
        """
        try:
            return self._clients.ask(command)
        except NoScriptError:
            return self._clients.ask(replies.whole(chosen, command))

    def _ask_all(self, commands: list[Words]) -> list[Any]:
        """Return all replies, or raise the first error. Commands that ran already may run again."""
        client = self._clients.client()
        answers = _send(client, commands)
        if any(isinstance(one, NoScriptError) for one in answers):
            client.script_load(self._publishing.script.text)
            answers = _send(client, commands)
        failed = [one for one in answers if isinstance(one, Exception)]
        if failed:
            raise failed[0]
        return answers

    def _explained(self, error: Exception) -> Exception:
        return explain(error, self._clients.where, sent_once=self._clients.sent_once)


def _send(client: Any, commands: list[Words]) -> list[Any]:
    line = client.pipeline(transaction=False)
    for command in commands:
        line.execute_command(*command, NEVER_DECODE=True)
    answers: list[Any] = line.execute(raise_on_error=False)
    return answers
