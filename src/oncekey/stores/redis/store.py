"""Records in Redis or Valkey, shared by any number of machines.

Each verb is one Lua script, which reads the server's clock and applies the rules of `machine.py`:
one round trip, whatever the answer. Redis removes expired records by itself.
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
from oncekey.stores.activity import Activity, Counts
from oncekey.stores.adapters import Threaded
from oncekey.stores.base import AsyncStore
from oncekey.stores.redis import commands as codec
from oncekey.stores.redis.client import Clients
from oncekey.stores.redis.commands import Script, Scripts, scripts_for
from oncekey.stores.redis.connection import Line, call_of
from oncekey.stores.redis.errors import CAUGHT, explain
from oncekey.stores.redis.replicas import Replicas, Wait, replicas_of, taken_out

DEFAULT_PREFIX: Final = "idempotency:"
_BATCH: Final = 500


class RedisStore:
    """A store in Redis, which uses a client of redis-py."""

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
        self.clients = Clients.of_client(client, fast=fast)
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
    ) -> RedisStore:
        """Return a store with connections of its own. The URL may contain `?wait=1,100ms`."""
        address, wait = taken_out(url, wait)
        return cls(Clients.of_url(address, fast=fast), prefix=prefix, wait=wait)

    @property
    def sends_once(self) -> bool:
        """Whether a request is sent once only: redis-py may be told to repeat commands."""
        return self.clients.sent_once

    # The verbs. Every call needs `claim` and `settle`, so these save the extra call of `_run`.

    def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not."""
        if self.replicas is not None:
            return self._claim_on_replicas(ask, self.replicas)
        name, arguments = codec.name_of(self.prefix, ask.scope, ask.key), codec.claim(ask)
        try:
            scripts = self._scripts or self._load()
            reply = self.clients.run(scripts["claim"].sha, name, arguments)
        except CAUGHT as error:
            reply = self._send_again("claim", name, arguments, error)
        return codec.answer(ask, reply)

    def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        return self._write("renew", ask.scope, ask.key, codec.renew(ask))

    def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        return self._write("note", ask.scope, ask.key, codec.note(ask))

    def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer."""
        name, arguments = codec.name_of(self.prefix, ask.scope, ask.key), codec.settle(ask)
        try:
            scripts = self._scripts or self._load()
            reply = self.clients.run(scripts["settle"].sha, name, arguments)
        except CAUGHT as error:
            reply = self._send_again("settle", name, arguments, error)
        return codec.verdict(ask.scope, ask.key, reply)

    def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        return self._write("release", ask.scope, ask.key, codec.release(ask))

    def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        verdict = self._write("resolve", ask.scope, ask.key, codec.resolve(ask))
        return self._written_down(ask, verdict)

    def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        reply = self._run("forget", ask.scope, ask.key, codec.forget(ask))
        verdict = codec.verdict(ask.scope, ask.key, reply)
        return verdict if reply == codec.GONE else self._written_down(ask, verdict)

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        return codec.found(scope, key, self._run("get", scope, key, ()))

    def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        """Wait until the attempt with this token may have ended, or `seconds` are over."""
        end = monotonic() + seconds
        channel = codec.channel_of(codec.name_of(self.prefix, scope, key))
        try:
            with self.clients.listening(channel) as ears:
                if ears.hears:
                    reply = self._run("watch", scope, key, codec.watch(token))
                    if not codec.running(scope, key, reply):
                        return
                ears.wait(end - monotonic())
        except CAUGHT as error:
            raise self.explained(error) from error

    def scan(self, ask: Scan, /) -> Page:
        """Return a page of the records that have not expired, ordered by scope and key.

        Every page scans all keys of the server. Records that change meanwhile may be missed.
        """
        places = codec.places(self.prefix, self._names(), ask)
        records: list[Record] = []
        for start in range(0, len(places), _BATCH):
            found = self._read(places[start : start + _BATCH])
            records += [record for record in found if ask.status in (None, record.status)]
            if len(records) > ask.limit:
                break
        return codec.page(records, ask)

    def purge(self, _grace: int, _limit: int, /) -> int:
        """Do nothing and return 0: the server removes expired records."""
        return 0

    def restore(self, record: Record, /) -> bool:
        """Keep a record of another store, unless there is one."""
        expires = -(-record.expires // 1000)
        arguments = codec.bytes_of(record), b"%d" % expires
        verdict = self._write("restore", record.scope, record.key, arguments)
        return verdict is Verdict.DONE

    def audit(self, entry: bytes, /) -> None:
        """Add an entry to the audit trail."""
        name = codec.audit_list(self.prefix)
        try:
            self.clients.ask(("EVAL", codec.ADD_ENTRY, "1", name, entry))
        except CAUGHT as error:
            raise self.explained(error) from error

    def audited(self, limit: int, /) -> list[tuple[int, bytes]]:
        """Return the newest entries of the audit trail, each with its time."""
        try:
            listed = self.clients.ask(("LRANGE", codec.audit_list(self.prefix), 0, limit - 1))
        except CAUGHT as error:
            raise self.explained(error) from error
        return codec.entries(listed)

    def add_activity(self, counts: Counts, ago: int, /) -> None:
        """Add the counts to the slots of that moment."""
        name = codec.activity_hash(self.prefix)
        try:
            self.clients.ask(("EVAL", codec.ADD_ACTIVITY, 1, name, ago, *counts))
        except CAUGHT as error:
            raise self.explained(error) from error

    def activity(self) -> Activity:
        """Return the sums that are kept."""
        try:
            name = codec.activity_hash(self.prefix)
            clock, slots = self.clients.ask(("EVAL", codec.ACTIVITY, 1, name))
        except CAUGHT as error:
            raise self.explained(error) from error
        return codec.activity(clock, slots)

    def close(self) -> None:
        """Close our own connections. The next use opens new ones."""
        self.clients.close()

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

    def _write(self, verb: str, scope: str | None, key: str, arguments: codec.Arguments) -> Verdict:
        return codec.verdict(scope, key, self._run(verb, scope, key, arguments))

    def _written_down(self, ask: Resolve | Forget, verdict: Verdict) -> Verdict:
        """Add the entry of the request where the script could not: in a cluster."""
        if ask.audit and self._held is None and verdict is Verdict.DONE:
            self.audit(ask.audit)
        return verdict

    def _run(self, verb: str, scope: str | None, key: str, arguments: codec.Arguments) -> Any:
        """Run the script of a verb and return its reply."""
        name = codec.name_of(self.prefix, scope, key)
        try:
            scripts = self._scripts or self._load()
            apart = verb == "renew"
            return self.clients.run(scripts[verb].sha, name, arguments, apart=apart)
        except CAUGHT as error:
            return self._send_again(verb, name, arguments, error)

    def _send_again(
        self, verb: str, name: bytes, arguments: codec.Arguments, failed: Exception
    ) -> Any:
        """Send the text of a script that the server does not know. Raise any other failure."""
        try:
            if self._scripts is None or not isinstance(failed, NoScriptError):
                raise failed
            text = self._scripts[verb].text
            return self.clients.ask(("EVAL", text, "1", name, *arguments))
        except CAUGHT as error:
            raise self.explained(error) from error

    def _claim_on_replicas(self, ask: Claim, wanted: Replicas) -> Answer:
        """Claim, and release the grant again if too few replicas have it. Raise StoreError then."""
        name = codec.name_of(self.prefix, ask.scope, ask.key)
        sent_once = self.clients.sent_once
        try:
            scripts = self._scripts or self._load()
            with self.clients.held() as line:
                reply = _asked(line, scripts["claim"], name, (*codec.claim(ask), b"1"))
                answer = codec.answer(ask, reply)
                if not isinstance(answer, Granted):
                    return answer
                sent_once = False  # if the connection breaks from here on, the claim has happened
                reached = line.ask(("WAIT", *wanted))
                if reached >= wanted.needed:
                    return answer
                back = codec.release(codec.give_back(ask, answer.record))
                _asked(line, scripts["release"], name, back)
                # In the block, so that this connection is closed: a primary without replicas may
                # have been replaced, and only who connects is told so by Sentinel.
                raise wanted.short(self.clients.where, reached)
        except CAUGHT as error:
            raise explain(error, self.clients.where, sent_once=sent_once) from error

    def _load(self) -> Scripts:
        try:
            facts = self.clients.facts()
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

    def _names(self) -> list[bytes]:
        pattern = codec.pattern_of(self.prefix)
        try:
            with self.clients.using() as client:
                found = client.scan_iter(match=pattern, count=1000, NEVER_DECODE=True)
                return [name for name in found]
        except CAUGHT as error:
            raise self.explained(error) from error

    def _read(self, places: list[codec.Place]) -> list[Record]:
        """Return those of the records at these places that have not expired, in one round trip."""
        try:
            script = (self._scripts or self._load())["get"]
            with self.clients.using() as client:
                replies = self._gets(client, script, places)
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

    def _gets(
        self, client: Any, script: Script, places: list[codec.Place], *, load: bool = True
    ) -> list[Any]:
        """Return the replies to the script at these places. `load` it if the server lacks it."""
        line = client.pipeline(transaction=False)
        for scope, key in places:
            name = codec.name_of(self.prefix, scope or None, key)
            line.execute_command("EVALSHA", script.sha, "1", name, NEVER_DECODE=True)
        replies: list[Any] = line.execute(raise_on_error=False)
        if load and any(isinstance(reply, NoScriptError) for reply in replies):
            client.script_load(script.text)
            return self._gets(client, script, places, load=False)
        return replies


def _asked(
    line: Line,
    script: Script,
    name: bytes,
    arguments: codec.Arguments,
) -> Any:
    """Run the script on this connection. Send its text if the server does not know it."""
    try:
        return line.ask(call_of(script.sha, name, arguments))
    except NoScriptError:
        return line.ask(("EVAL", script.text, "1", name, *arguments))
