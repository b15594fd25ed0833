"""Records in Redis or Valkey, shared by any number of machines.

Each verb is one script, which reads the server's clock and decides by the rules of `machine.py`:
one round trip, whatever the answer. Redis removes what expired by itself.
"""

# Generated from store_async.py by "make generate": do not edit.

from __future__ import annotations

from time import monotonic
from typing import Any, Final

from redis.exceptions import NoPermissionError, NoScriptError

from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Granted,
    Note,
    Page,
    Release,
    Renew,
    Resolve,
    Scan,
    Settle,
    Verdict,
)
from oncekey.stores.adapters import Threaded
from oncekey.stores.base import AsyncStore
from oncekey.stores.redis import commands as codec
from oncekey.stores.redis.client import Clients
from oncekey.stores.redis.commands import Script, Scripts, scripts_for
from oncekey.stores.redis.connection import Line
from oncekey.stores.redis.errors import CAUGHT, explain
from oncekey.stores.redis.replicas import Replicas, Wait, replicas_of, taken_out

DEFAULT_PREFIX: Final = "idempotency:"
_BATCH: Final = 500


class RedisStore:
    """A store in Redis, asked through a client of redis-py."""

    remote = True

    def __init__(
        self,
        client: Any,
        *,
        prefix: str = DEFAULT_PREFIX,
        wait: Wait | None = None,
        fast: bool = True,
    ) -> None:
        """The client is yours: its settings count, and you close it. Nothing is sent yet.

        With `wait=(1, "100ms")` a claim is granted only when one replica has it within that time.
        With `fast=False` every command goes the long way through redis-py.
        """
        self._clients = Clients.of_client(client, fast=fast)
        self._prefix = prefix.encode()
        self._replicas = replicas_of(wait, self._clients.settings)
        self._scripts: Scripts | None = None

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        wait: Wait | None = None,
        fast: bool = True,
    ) -> RedisStore:
        """The store at a URL, with connections of its own; `?wait=1,100ms` may be part of it."""
        address, wait = taken_out(url, wait)
        return cls(Clients.of_url(address, fast=fast), prefix=prefix, wait=wait)

    # The verbs. Every call waits for `claim` and `settle`: they do without the step that is `_run`.

    def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        if self._replicas is not None:
            return self._claim_on_replicas(ask, self._replicas)
        name, arguments = codec.name_of(self._prefix, ask.scope, ask.key), codec.claim(ask)
        try:
            reply = self._send("claim", name, arguments)
        except CAUGHT as error:
            reply = self._send_again("claim", name, arguments, error)
        return codec.answer(ask, reply)

    def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return self._write("renew", ask.scope, ask.key, codec.renew(ask))

    def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return self._write("note", ask.scope, ask.key, codec.note(ask))

    def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        name, arguments = codec.name_of(self._prefix, ask.scope, ask.key), codec.settle(ask)
        try:
            reply = self._send("settle", name, arguments)
        except CAUGHT as error:
            reply = self._send_again("settle", name, arguments, error)
        return codec.verdict(ask.scope, ask.key, reply)

    def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        return self._write("release", ask.scope, ask.key, codec.release(ask))

    def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        return self._write("resolve", ask.scope, ask.key, codec.resolve(ask))

    def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        return self._write("forget", ask.scope, ask.key, codec.forget(ask))

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        return codec.found(scope, key, self._run("get", scope, key, ()))

    def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        """The attempt with this token may be over, or the time is."""
        end = monotonic() + seconds
        channel = codec.channel_of(codec.name_of(self._prefix, scope, key))
        try:
            with self._clients.listening(channel) as ears:
                if ears.hears:
                    reply = self._run("watch", scope, key, codec.watch(token))
                    if not codec.running(scope, key, reply):
                        return
                ears.wait(end - monotonic())
        except CAUGHT as error:
            raise self._explained(error) from error

    def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key.

        Every page walks over all keys of the server, and what changes meanwhile may be missed.
        """
        places = codec.places(self._prefix, self._names(), ask)
        records: list[Record] = []
        for start in range(0, len(places), _BATCH):
            found = self._read(places[start : start + _BATCH])
            records += [record for record in found if ask.status in (None, record.status)]
            if len(records) > ask.limit:
                break
        return codec.page(records, ask)

    def purge(self, _grace: int, _limit: int, /) -> int:
        """Nothing is left to do: the server removes what expired."""
        return 0

    def close(self) -> None:
        """Our connections are closed. The next use opens new ones."""
        self._clients.close()

    def as_async(self) -> AsyncStore:
        """Return the same store for coroutines, on threads where only we know the way to it."""
        from oncekey.stores.redis.store_async import AsyncRedisStore

        clients = self._clients.for_coroutines()
        if clients is None:
            return Threaded(self)
        return AsyncRedisStore(clients, prefix=self._prefix.decode(), wait=self._replicas)

    # How a verb travels

    def _write(self, verb: str, scope: str | None, key: str, arguments: codec.Arguments) -> Verdict:
        return codec.verdict(scope, key, self._run(verb, scope, key, arguments))

    def _run(self, verb: str, scope: str | None, key: str, arguments: codec.Arguments) -> Any:
        """What the script answers."""
        name = codec.name_of(self._prefix, scope, key)
        try:
            return self._send(verb, name, arguments)
        except CAUGHT as error:
            return self._send_again(verb, name, arguments, error)

    def _send(self, verb: str, name: bytes, arguments: codec.Arguments) -> Any:
        """What the script answers; a server that has not seen it yet refuses to run it."""
        if self._scripts is None:
            return self._send_first(verb, name, arguments)
        return self._clients.ask(
            ("EVALSHA", self._scripts[verb].sha, 1, name, *arguments), apart=verb == "renew"
        )

    def _send_first(self, verb: str, name: bytes, arguments: codec.Arguments) -> Any:
        self._load()
        return self._send(verb, name, arguments)

    def _send_again(
        self, verb: str, name: bytes, arguments: codec.Arguments, failed: Exception
    ) -> Any:
        """What the script answers to a server that has to be told what it is; else why not."""
        try:
            if self._scripts is None or not isinstance(failed, NoScriptError):
                raise failed
            text = self._scripts[verb].text
            return self._clients.ask(("EVAL", text, 1, name, *arguments))
        except CAUGHT as error:
            raise self._explained(error) from error

    def _claim_on_replicas(self, ask: Claim, wanted: Replicas) -> Answer:
        """A grant that enough replicas have, or none."""
        name = codec.name_of(self._prefix, ask.scope, ask.key)
        sent_once = self._clients.sent_once
        try:
            scripts = self._scripts or self._load()
            with self._clients.held() as line:
                reply = _asked(line, scripts["claim"], name, (*codec.claim(ask), b"1"))
                answer = codec.answer(ask, reply)
                if not isinstance(answer, Granted):
                    return answer
                sent_once = False  # whatever breaks now, the claim has happened
                reached = line.ask(("WAIT", *wanted))
                if reached >= wanted.needed:
                    return answer
                back = codec.release(codec.give_back(ask, answer.record))
                _asked(line, scripts["release"], name, back)
        except CAUGHT as error:
            raise explain(error, self._clients.where, sent_once=sent_once) from error
        raise wanted.short(self._clients.where, reached)

    def _load(self) -> Scripts:
        try:
            facts = self._clients.facts()
        except NoPermissionError:  # then the oldest form, which every server reads
            facts = {}
        self._scripts = scripts_for(facts)
        return self._scripts

    def _explained(self, error: Exception) -> Exception:
        return explain(error, self._clients.where, sent_once=self._clients.sent_once)

    # How a page is read

    def _names(self) -> list[bytes]:
        pattern = codec.pattern_of(self._prefix)
        try:
            client = self._clients.client()
            found = client.scan_iter(match=pattern, count=1000, NEVER_DECODE=True)
            return [name for name in found]
        except CAUGHT as error:
            raise self._explained(error) from error

    def _read(self, places: list[codec.Place]) -> list[Record]:
        """The living among the records at these places, in one round trip."""
        try:
            script = (self._scripts or self._load())["get"]
            client = self._clients.client()
            replies = self._gets(client, script, places)
            if any(isinstance(reply, NoScriptError) for reply in replies):
                client.script_load(script.text)
                replies = self._gets(client, script, places)
        except CAUGHT as error:
            raise self._explained(error) from error
        records: list[Record] = []
        for (scope, key), reply in zip(places, replies, strict=True):
            if isinstance(reply, Exception):
                if "WRONGTYPE" in str(reply):  # somebody else's
                    continue
                raise self._explained(reply)
            record = codec.found(scope or None, key, reply)
            if record is not None:
                records.append(record)
        return records

    def _gets(self, client: Any, script: Script, places: list[codec.Place]) -> list[Any]:
        line = client.pipeline(transaction=False)
        for scope, key in places:
            name = codec.name_of(self._prefix, scope or None, key)
            line.execute_command("EVALSHA", script.sha, 1, name, NEVER_DECODE=True)
        replies: list[Any] = line.execute(raise_on_error=False)
        return replies


def _asked(
    line: Line,
    script: Script,
    name: bytes,
    arguments: codec.Arguments,
) -> Any:
    """What the script answers. A server that does not know it has not run it: it is told."""
    try:
        return line.ask(("EVALSHA", script.sha, 1, name, *arguments))
    except NoScriptError:
        return line.ask(("EVAL", script.text, 1, name, *arguments))
