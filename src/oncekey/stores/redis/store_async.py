"""Records in Redis or Valkey, shared by any number of machines.

Each verb is one script, which reads the server's clock and decides by the rules of `machine.py`:
one round trip, whatever the answer. Redis removes what expired by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable
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
from oncekey.stores.redis import commands as codec
from oncekey.stores.redis.client import AsyncClients
from oncekey.stores.redis.commands import Script, Scripts, scripts_for
from oncekey.stores.redis.connection import AsyncLine
from oncekey.stores.redis.errors import CAUGHT, explain
from oncekey.stores.redis.replicas import Replicas, Wait, replicas_of, taken_out

if False:  # sync only
    from oncekey.stores.adapters import Threaded
    from oncekey.stores.base import AsyncStore

DEFAULT_PREFIX: Final = "idempotency:"
_BATCH: Final = 500


class AsyncRedisStore:
    """A store in Redis, asked through a client of redis.asyncio, one for each event loop."""

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
        self._clients = AsyncClients.of_client(client, fast=fast)
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
    ) -> AsyncRedisStore:
        """The store at a URL, with connections of its own; `?wait=1,100ms` may be part of it."""
        address, wait = taken_out(url, wait)
        return cls(AsyncClients.of_url(address, fast=fast), prefix=prefix, wait=wait)

    # The verbs. Every call waits for `claim` and `settle`: they do without the step that is `_run`.

    async def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        if self._replicas is not None:
            return await self._claim_on_replicas(ask, self._replicas)
        name, arguments = codec.name_of(self._prefix, ask.scope, ask.key), codec.claim(ask)
        try:
            reply = await self._send("claim", name, arguments)
        except CAUGHT as error:
            reply = await self._send_again("claim", name, arguments, error)
        return codec.answer(ask, reply)

    async def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return await self._write("renew", ask.scope, ask.key, codec.renew(ask))

    async def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return await self._write("note", ask.scope, ask.key, codec.note(ask))

    async def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        name, arguments = codec.name_of(self._prefix, ask.scope, ask.key), codec.settle(ask)
        try:
            reply = await self._send("settle", name, arguments)
        except CAUGHT as error:
            reply = await self._send_again("settle", name, arguments, error)
        return codec.verdict(ask.scope, ask.key, reply)

    async def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        return await self._write("release", ask.scope, ask.key, codec.release(ask))

    async def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        return await self._write("resolve", ask.scope, ask.key, codec.resolve(ask))

    async def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        return await self._write("forget", ask.scope, ask.key, codec.forget(ask))

    async def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        return codec.found(scope, key, await self._run("get", scope, key, ()))

    async def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        """The attempt with this token may be over, or the time is."""
        end = monotonic() + seconds
        channel = codec.channel_of(codec.name_of(self._prefix, scope, key))
        try:
            async with self._clients.listening(channel) as ears:
                if ears.hears:
                    reply = await self._run("watch", scope, key, codec.watch(token))
                    if not codec.running(scope, key, reply):
                        return
                await ears.wait(end - monotonic())
        except CAUGHT as error:
            raise self._explained(error) from error

    async def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key.

        Every page walks over all keys of the server, and what changes meanwhile may be missed.
        """
        places = codec.places(self._prefix, await self._names(), ask)
        records: list[Record] = []
        for start in range(0, len(places), _BATCH):
            found = await self._read(places[start : start + _BATCH])
            records += [record for record in found if ask.status in (None, record.status)]
            if len(records) > ask.limit:
                break
        return codec.page(records, ask)

    async def purge(self, _grace: int, _limit: int, /) -> int:
        """Nothing is left to do: the server removes what expired."""
        return 0

    async def aclose(self) -> None:
        """Our connections are closed. The next use opens new ones."""
        await self._clients.aclose()

    if False:  # sync only

        def as_async(self) -> AsyncStore:
            """Return the same store for coroutines, on threads where only we know the way to it."""
            from oncekey.stores.redis.store_async import AsyncRedisStore

            clients = self._clients.for_coroutines()
            if clients is None:
                return Threaded(self)
            return AsyncRedisStore(clients, prefix=self._prefix.decode(), wait=self._replicas)

    # How a verb travels

    async def _write(
        self, verb: str, scope: str | None, key: str, arguments: codec.Arguments
    ) -> Verdict:
        return codec.verdict(scope, key, await self._run(verb, scope, key, arguments))

    async def _run(self, verb: str, scope: str | None, key: str, arguments: codec.Arguments) -> Any:
        """What the script answers."""
        name = codec.name_of(self._prefix, scope, key)
        try:
            return await self._send(verb, name, arguments)
        except CAUGHT as error:
            return await self._send_again(verb, name, arguments, error)

    def _send(self, verb: str, name: bytes, arguments: codec.Arguments) -> Awaitable[Any]:
        """What the script answers; a server that has not seen it yet refuses to run it."""
        if self._scripts is None:
            return self._send_first(verb, name, arguments)
        return self._clients.ask(
            ("EVALSHA", self._scripts[verb].sha, 1, name, *arguments), apart=verb == "renew"
        )

    async def _send_first(self, verb: str, name: bytes, arguments: codec.Arguments) -> Any:
        await self._load()
        return await self._send(verb, name, arguments)

    async def _send_again(
        self, verb: str, name: bytes, arguments: codec.Arguments, failed: Exception
    ) -> Any:
        """What the script answers to a server that has to be told what it is; else why not."""
        try:
            if self._scripts is None or not isinstance(failed, NoScriptError):
                raise failed
            text = self._scripts[verb].text
            return await self._clients.ask(("EVAL", text, 1, name, *arguments))
        except CAUGHT as error:
            raise self._explained(error) from error

    async def _claim_on_replicas(self, ask: Claim, wanted: Replicas) -> Answer:
        """A grant that enough replicas have, or none."""
        name = codec.name_of(self._prefix, ask.scope, ask.key)
        sent_once = self._clients.sent_once
        try:
            scripts = self._scripts or await self._load()
            async with self._clients.held() as line:
                reply = await _asked(line, scripts["claim"], name, (*codec.claim(ask), b"1"))
                answer = codec.answer(ask, reply)
                if not isinstance(answer, Granted):
                    return answer
                sent_once = False  # whatever breaks now, the claim has happened
                reached = await line.ask(("WAIT", *wanted))
                if reached >= wanted.needed:
                    return answer
                back = codec.release(codec.give_back(ask, answer.record))
                await _asked(line, scripts["release"], name, back)
        except CAUGHT as error:
            raise explain(error, self._clients.where, sent_once=sent_once) from error
        raise wanted.short(self._clients.where, reached)

    async def _load(self) -> Scripts:
        try:
            facts = await self._clients.facts()
        except NoPermissionError:  # then the oldest form, which every server reads
            facts = {}
        self._scripts = scripts_for(facts)
        return self._scripts

    def _explained(self, error: Exception) -> Exception:
        return explain(error, self._clients.where, sent_once=self._clients.sent_once)

    # How a page is read

    async def _names(self) -> list[bytes]:
        pattern = codec.pattern_of(self._prefix)
        try:
            client = await self._clients.client()
            found = client.scan_iter(match=pattern, count=1000, NEVER_DECODE=True)
            return [name async for name in found]
        except CAUGHT as error:
            raise self._explained(error) from error

    async def _read(self, places: list[codec.Place]) -> list[Record]:
        """The living among the records at these places, in one round trip."""
        try:
            script = (self._scripts or await self._load())["get"]
            client = await self._clients.client()
            replies = await self._gets(client, script, places)
            if any(isinstance(reply, NoScriptError) for reply in replies):
                await client.script_load(script.text)
                replies = await self._gets(client, script, places)
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

    async def _gets(self, client: Any, script: Script, places: list[codec.Place]) -> list[Any]:
        line = client.pipeline(transaction=False)
        for scope, key in places:
            name = codec.name_of(self._prefix, scope or None, key)
            line.execute_command("EVALSHA", script.sha, 1, name, NEVER_DECODE=True)
        replies: list[Any] = await line.execute(raise_on_error=False)
        return replies


async def _asked(
    line: AsyncLine,
    script: Script,
    name: bytes,
    arguments: codec.Arguments,
) -> Any:
    """What the script answers. A server that does not know it has not run it: it is told."""
    try:
        return await line.ask(("EVALSHA", script.sha, 1, name, *arguments))
    except NoScriptError:
        return await line.ask(("EVAL", script.text, 1, name, *arguments))
