"""The Redis store for coroutines: the twin of `redis.py`, compared with it by a test."""

from __future__ import annotations

from typing import Any, Final

from redis.exceptions import NoPermissionError, NoScriptError

from oncekey.record import Record
from oncekey.stores import redis_codec as codec
from oncekey.stores.redis_clients import AsyncClients
from oncekey.stores.redis_errors import CAUGHT, explain
from oncekey.stores.redis_scripts import Scripts, scripts_for
from oncekey.verbs import (
    Answer,
    Claim,
    Forget,
    Note,
    Page,
    Release,
    Renew,
    Resolve,
    Scan,
    Settle,
    Verdict,
)

DEFAULT_PREFIX: Final = "idempotency:"
_BATCH: Final = 500


class AsyncRedisStore:
    """A store in Redis, asked through a client of redis.asyncio, one for each event loop."""

    remote = True

    def __init__(self, client: Any, *, prefix: str = DEFAULT_PREFIX) -> None:  # noqa: ANN401 - Redis or RedisCluster
        """The client is yours: its settings count, and you close it. Nothing is sent yet."""
        self._clients = AsyncClients.of_client(client)
        self._prefix = prefix.encode()
        self._scripts: Scripts | None = None

    @classmethod
    def from_url(cls, url: str, *, prefix: str = DEFAULT_PREFIX) -> AsyncRedisStore:
        """The store at a URL, with connections of its own."""
        return cls(AsyncClients.of_url(url), prefix=prefix)

    # The verbs

    async def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        return codec.answer(ask, await self._run("claim", ask.scope, ask.key, codec.claim(ask)))

    async def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return await self._write("renew", ask.scope, ask.key, codec.renew(ask))

    async def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return await self._write("note", ask.scope, ask.key, codec.note(ask))

    async def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        return await self._write("settle", ask.scope, ask.key, codec.settle(ask))

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

    # How a verb travels

    async def _write(
        self, verb: str, scope: str | None, key: str, arguments: tuple[codec.Argument, ...]
    ) -> Verdict:
        return codec.verdict(scope, key, await self._run(verb, scope, key, arguments))

    async def _run(
        self, verb: str, scope: str | None, key: str, arguments: tuple[codec.Argument, ...]
    ) -> Any:  # noqa: ANN401 - whatever the script answers
        """What the script answers. A server that does not know it has not run it: it is told."""
        name = codec.name_of(self._prefix, scope, key)
        try:
            client = await self._clients.client()
            script = (self._scripts or await self._load(client))[verb]
            try:
                return await client.execute_command(
                    "EVALSHA", script.sha, 1, name, *arguments, NEVER_DECODE=True
                )
            except NoScriptError:
                return await client.execute_command(
                    "EVAL", script.text, 1, name, *arguments, NEVER_DECODE=True
                )
        except CAUGHT as error:
            raise self._explained(error) from error

    async def _load(self, client: Any) -> Scripts:  # noqa: ANN401 - Redis or RedisCluster
        try:
            facts = await client.info("server")
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
        replies: list[Any] = []
        try:
            client = await self._clients.client()
            script = (self._scripts or await self._load(client))["get"]
            for _ in range(2):  # a server that does not know the script is told, and asked again
                line = client.pipeline(transaction=False)
                for scope, key in places:
                    name = codec.name_of(self._prefix, scope or None, key)
                    line.execute_command("EVALSHA", script.sha, 1, name, NEVER_DECODE=True)
                replies = await line.execute(raise_on_error=False)
                if not any(isinstance(reply, NoScriptError) for reply in replies):
                    break
                await client.script_load(script.text)
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
