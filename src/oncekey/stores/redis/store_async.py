"""Records in Redis or Valkey, shared by any number of machines.

Each verb is one Lua script, which reads the server's clock and applies the rules of `machine.py`:
one round trip, whatever the answer. Redis removes expired records by itself.
"""

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
from oncekey.stores.activity import Activity, Counts
from oncekey.stores.redis import commands as codec
from oncekey.stores.redis.client import AsyncClients
from oncekey.stores.redis.commands import Script, Scripts, scripts_for
from oncekey.stores.redis.connection import AsyncLine, call_of
from oncekey.stores.redis.errors import CAUGHT, explain
from oncekey.stores.redis.replicas import Replicas, Wait, replicas_of, taken_out

if False:  # sync only
    from oncekey.stores.adapters import Threaded
    from oncekey.stores.base import AsyncStore

DEFAULT_PREFIX: Final = "idempotency:"
_BATCH: Final = 500


class AsyncRedisStore:
    """A store in Redis, which uses a client of redis.asyncio, one for each event loop."""

    remote = True

    def __init__(
        self,
        client: Any,
        *,
        prefix: str = DEFAULT_PREFIX,
        wait: Wait | None = None,
        fast: bool = True,
    ) -> None:
        """Use the caller's client with its settings. Nothing is sent yet; the caller closes it.

        With `wait=(1, "100ms")` a claim is granted only if one replica has it within that time.
        With `fast=False` every command goes through redis-py, which is slower.
        """
        self.clients = AsyncClients.of_client(client, fast=fast)
        self.prefix = prefix.encode()
        self.replicas = replicas_of(wait, self.clients.settings)
        self._scripts: Scripts | None = None
        self._held: bytes | None = None

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        wait: Wait | None = None,
        fast: bool = True,
    ) -> AsyncRedisStore:
        """Return a store with connections of its own. The URL may contain `?wait=1,100ms`."""
        address, wait = taken_out(url, wait)
        return cls(AsyncClients.of_url(address, fast=fast), prefix=prefix, wait=wait)

    @property
    def sends_once(self) -> bool:
        """Whether a request is sent once only: redis-py may be told to repeat commands."""
        return self.clients.sent_once

    # The verbs. Every call needs `claim` and `settle`, so these save the extra call of `_run`.

    async def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not."""
        if self.replicas is not None:
            return await self._claim_on_replicas(ask, self.replicas)
        name, arguments = codec.name_of(self.prefix, ask.scope, ask.key), codec.claim(ask)
        try:
            scripts = self._scripts or await self._load()
            reply = await self.clients.run(scripts["claim"].sha, name, arguments)
        except CAUGHT as error:
            reply = await self._send_again("claim", name, arguments, error)
        return codec.answer(ask, reply)

    async def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        return await self._write("renew", ask.scope, ask.key, codec.renew(ask))

    async def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        return await self._write("note", ask.scope, ask.key, codec.note(ask))

    async def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer."""
        name, arguments = codec.name_of(self.prefix, ask.scope, ask.key), codec.settle(ask)
        try:
            scripts = self._scripts or await self._load()
            reply = await self.clients.run(scripts["settle"].sha, name, arguments)
        except CAUGHT as error:
            reply = await self._send_again("settle", name, arguments, error)
        return codec.verdict(ask.scope, ask.key, reply)

    async def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        return await self._write("release", ask.scope, ask.key, codec.release(ask))

    async def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        verdict = await self._write("resolve", ask.scope, ask.key, codec.resolve(ask))
        return await self._written_down(ask, verdict)

    async def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        reply = await self._run("forget", ask.scope, ask.key, codec.forget(ask))
        verdict = codec.verdict(ask.scope, ask.key, reply)
        return verdict if reply == codec.GONE else await self._written_down(ask, verdict)

    async def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        return codec.found(scope, key, await self._run("get", scope, key, ()))

    async def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        """Wait until the attempt with this token may have ended, or `seconds` are over."""
        end = monotonic() + seconds
        channel = codec.channel_of(codec.name_of(self.prefix, scope, key))
        try:
            async with self.clients.listening(channel) as ears:
                if ears.hears:
                    reply = await self._run("watch", scope, key, codec.watch(token))
                    if not codec.running(scope, key, reply):
                        return
                await ears.wait(end - monotonic())
        except CAUGHT as error:
            raise self.explained(error) from error

    async def scan(self, ask: Scan, /) -> Page:
        """Return a page of the records that have not expired, ordered by scope and key.

        Every page scans all keys of the server. Records that change meanwhile may be missed.
        """
        places = codec.places(self.prefix, await self._names(), ask)
        records: list[Record] = []
        for start in range(0, len(places), _BATCH):
            found = await self._read(places[start : start + _BATCH])
            records += [record for record in found if ask.status in (None, record.status)]
            if len(records) > ask.limit:
                break
        return codec.page(records, ask)

    async def purge(self, _grace: int, _limit: int, /) -> int:
        """Do nothing and return 0: the server removes expired records."""
        return 0

    async def restore(self, record: Record, /) -> bool:
        """Keep a record of another store, unless there is one."""
        expires = -(-record.expires // 1000)
        arguments = codec.bytes_of(record), b"%d" % expires
        verdict = await self._write("restore", record.scope, record.key, arguments)
        return verdict is Verdict.DONE

    async def audit(self, entry: bytes, /) -> None:
        """Add an entry to the audit trail."""
        name = codec.audit_list(self.prefix)
        try:
            await self.clients.ask(("EVAL", codec.ADD_ENTRY, "1", name, entry))
        except CAUGHT as error:
            raise self.explained(error) from error

    async def audited(self, limit: int, /) -> list[tuple[int, bytes]]:
        """Return the newest entries of the audit trail, each with its time."""
        try:
            listed = await self.clients.ask(("LRANGE", codec.audit_list(self.prefix), 0, limit - 1))
        except CAUGHT as error:
            raise self.explained(error) from error
        return codec.entries(listed)

    async def add_activity(self, counts: Counts, ago: int, /) -> None:
        """Add the counts to the slots of that moment."""
        name = codec.activity_hash(self.prefix)
        try:
            await self.clients.ask(("EVAL", codec.ADD_ACTIVITY, 1, name, ago, *counts))
        except CAUGHT as error:
            raise self.explained(error) from error

    async def activity(self) -> Activity:
        """Return the sums that are kept."""
        try:
            name = codec.activity_hash(self.prefix)
            clock, slots = await self.clients.ask(("EVAL", codec.ACTIVITY, 1, name))
        except CAUGHT as error:
            raise self.explained(error) from error
        return codec.activity(clock, slots)

    async def aclose(self) -> None:
        """Close our own connections. The next use opens new ones."""
        await self.clients.aclose()

    if False:  # sync only

        def held_set(self) -> bytes | None:
            """Return the key of the set of held records, or None in a cluster, which has none."""
            if self._scripts is None:
                self._load()
            return self._held

        def as_async(self) -> AsyncStore:
            """Return the store for coroutines, on threads if no async client can be made."""
            from oncekey.stores.redis.store_async import AsyncRedisStore

            clients = self.clients.for_coroutines()
            if clients is None:
                return Threaded(self)
            return AsyncRedisStore(clients, prefix=self.prefix.decode(), wait=self.replicas)

    # How a verb is sent

    async def _write(
        self, verb: str, scope: str | None, key: str, arguments: codec.Arguments
    ) -> Verdict:
        return codec.verdict(scope, key, await self._run(verb, scope, key, arguments))

    async def _written_down(self, ask: Resolve | Forget, verdict: Verdict) -> Verdict:
        """Add the entry of the request where the script could not: in a cluster."""
        if ask.audit and self._held is None and verdict is Verdict.DONE:
            await self.audit(ask.audit)
        return verdict

    async def _run(self, verb: str, scope: str | None, key: str, arguments: codec.Arguments) -> Any:
        """Run the script of a verb and return its reply."""
        name = codec.name_of(self.prefix, scope, key)
        try:
            scripts = self._scripts or await self._load()
            apart = verb == "renew"
            return await self.clients.run(scripts[verb].sha, name, arguments, apart=apart)
        except CAUGHT as error:
            return await self._send_again(verb, name, arguments, error)

    async def _send_again(
        self, verb: str, name: bytes, arguments: codec.Arguments, failed: Exception
    ) -> Any:
        """Send the text of a script that the server does not know. Raise any other failure."""
        try:
            if self._scripts is None or not isinstance(failed, NoScriptError):
                raise failed
            text = self._scripts[verb].text
            return await self.clients.ask(("EVAL", text, "1", name, *arguments))
        except CAUGHT as error:
            raise self.explained(error) from error

    async def _claim_on_replicas(self, ask: Claim, wanted: Replicas) -> Answer:
        """Claim, and release the grant again if too few replicas have it. Raise StoreError then."""
        name = codec.name_of(self.prefix, ask.scope, ask.key)
        sent_once = self.clients.sent_once
        try:
            scripts = self._scripts or await self._load()
            async with self.clients.held() as line:
                reply = await _asked(line, scripts["claim"], name, (*codec.claim(ask), b"1"))
                answer = codec.answer(ask, reply)
                if not isinstance(answer, Granted):
                    return answer
                sent_once = False  # if the connection breaks from here on, the claim has happened
                reached = await line.ask(("WAIT", *wanted))
                if reached >= wanted.needed:
                    return answer
                back = codec.release(codec.give_back(ask, answer.record))
                await _asked(line, scripts["release"], name, back)
                # In the block, so that this connection is closed: a primary without replicas may
                # have been replaced, and only who connects is told so by Sentinel.
                raise wanted.short(self.clients.where, reached)
        except CAUGHT as error:
            raise explain(error, self.clients.where, sent_once=sent_once) from error

    async def _load(self) -> Scripts:
        try:
            facts = await self.clients.facts()
        except NoPermissionError:  # then use the oldest form, which every server can read
            facts = {}
        single = self.clients.settings is not None and codec.keeps_held(facts)
        self._held = codec.held_set(self.prefix) if single else None
        self._scripts = scripts_for(facts, self.prefix if single else None)
        return self._scripts

    def explained(self, error: Exception) -> Exception:
        """Return the error to raise in place of one of redis-py."""
        return explain(error, self.clients.where, sent_once=self.clients.sent_once)

    # How a page is read

    async def _names(self) -> list[bytes]:
        pattern = codec.pattern_of(self.prefix)
        try:
            async with self.clients.using() as client:
                found = client.scan_iter(match=pattern, count=1000, NEVER_DECODE=True)
                return [name async for name in found]
        except CAUGHT as error:
            raise self.explained(error) from error

    async def _read(self, places: list[codec.Place]) -> list[Record]:
        """Return those of the records at these places that have not expired, in one round trip."""
        try:
            script = (self._scripts or await self._load())["get"]
            async with self.clients.using() as client:
                replies = await self._gets(client, script, places)
        except CAUGHT as error:
            raise self.explained(error) from error
        records: list[Record] = []
        for (scope, key), reply in zip(places, replies, strict=True):
            if isinstance(reply, Exception):
                if "WRONGTYPE" in str(reply):  # a key of another program
                    continue
                raise self.explained(reply)
            record = codec.found(scope or None, key, reply)
            if record is not None:
                records.append(record)
        return records

    async def _gets(
        self, client: Any, script: Script, places: list[codec.Place], *, load: bool = True
    ) -> list[Any]:
        """Return the replies to the script at these places. `load` it if the server lacks it."""
        line = client.pipeline(transaction=False)
        for scope, key in places:
            name = codec.name_of(self.prefix, scope or None, key)
            line.execute_command("EVALSHA", script.sha, "1", name, NEVER_DECODE=True)
        replies: list[Any] = await line.execute(raise_on_error=False)
        if load and any(isinstance(reply, NoScriptError) for reply in replies):
            await client.script_load(script.text)
            return await self._gets(client, script, places, load=False)
        return replies


async def _asked(
    line: AsyncLine,
    script: Script,
    name: bytes,
    arguments: codec.Arguments,
) -> Any:
    """Run the script on this connection. Send its text if the server does not know it."""
    try:
        return await line.ask(call_of(script.sha, name, arguments))
    except NoScriptError:
        return await line.ask(("EVAL", script.text, "1", name, *arguments))
