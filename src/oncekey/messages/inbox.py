"""The inbox of one consumer, for code that blocks: blocks around a message, and marks by key."""

# Generated from inbox_async.py by "make generate": do not edit.

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, Final, Unpack

from msgspec.structs import replace

from oncekey.compat import call_blocking
from oncekey.core.call import Call
from oncekey.core.codec import encode_error
from oncekey.core.decide import lost
from oncekey.core.machine import HOUR
from oncekey.core.record import Record
from oncekey.core.requests import Granted, Release, Settle, Verdict
from oncekey.engine.ticket import new_nonce
from oncekey.messages.atomic import Atomic
from oncekey.messages.atomic_many import AtomicMany
from oncekey.messages.config import (
    DeadLetterBox,
    InboxSettings,
    configure,
    refuse_coroutine_function,
)
from oncekey.messages.dead_letter import tell
from oncekey.messages.delivery import Claim
from oncekey.messages.keys import KeyOfMessage, OnMissingKey, by_message_id
from oncekey.messages.leased import Leased
from oncekey.messages.message import Message, message_of
from oncekey.messages.rules import DEFAULT_GRACE, Fingerprint, kept, last_error
from oncekey.observe import Observer
from oncekey.once import Once
from oncekey.policy import Duration, Policy, PolicyFields, microseconds, seconds
from oncekey.stores.base import Store

_MOST_OWNED: Final = 10_000


PURGE_BATCH: Final = 1000


class Inbox:
    """Makes a message that is delivered twice be processed once, for one consumer."""

    def __init__(
        self,
        target: str | Once,
        consumer: str,
        *,
        key: KeyOfMessage = by_message_id,
        on_missing_key: OnMissingKey = "error",
        fingerprint: Fingerprint | None = None,
        dead_letter: DeadLetterBox | None = None,
        lock_timeout: Duration | None = None,
        grace: Duration = DEFAULT_GRACE,
        observers: Iterable[Observer] | None = None,
        policy: Policy | None = None,
        **fields: Unpack[PolicyFields],
    ) -> None:
        """Configure the inbox. The first use opens the connections.

        `target` is a `Once`, or the URL of the database that has your data: PostgreSQL, MySQL,
        MariaDB and SQLite get the table `processed_messages`, other stores serve leased mode. A URL
        of SQLAlchemy, as `postgresql+asyncpg://...`, will do. `dead_letter` is called with each
        message that failed `max_attempts` times. `lock_timeout` is how long a duplicate waits in
        atomic mode, in whole seconds on MySQL. Rows stay for `grace` after they expired.
        """
        refuse_coroutine_function(dead_letter)
        self.config = configure(
            target,
            consumer,
            InboxSettings(
                key=key,
                on_missing_key=on_missing_key,
                fingerprint=fingerprint,
                dead_letter=dead_letter,
                lock_timeout=lock_timeout,
                grace=grace,
                observers=observers,
                policy=policy,
                fields=fields,
            ),
        )
        self._grace = grace
        self.claims: dict[str, Claim] = {}

    def for_consumer(self, consumer: str) -> Inbox:
        """Return the same inbox for another consumer. It shares settings and connections."""
        other = copy(self)
        other.config = self.config.for_consumer(consumer)
        other.claims = {}
        return other

    def atomic(self, connection: Any, message: Any, *, returns: object = None) -> Atomic:
        """Return a block for `with inbox.atomic(...) as delivery`.

        The claim, your work and the completion are one transaction. The connection must be inside a
        transaction. A concurrent duplicate waits for the end of it and then gets the result.
        `returns` is the type of the result, if it is more than plain values.
        """
        return Atomic(self.config, connection, message_of(message), returns)

    def atomic_many(
        self, connection: Any, messages: Iterable[Any], *, returns: object = None
    ) -> AtomicMany:
        """Return a block for `with inbox.atomic_many(...) as deliveries`.

        It does for a batch what `atomic` does for one message, with two statements for all of them.
        There is a delivery for each message, in the same order. An error undoes the whole batch and
        counts as no attempt of any message: process them one by one to find the one that fails.
        """
        told = [message_of(message) for message in messages]
        return AtomicMany(self.config, connection, told, returns)

    def leased(self, message: Any, *, returns: object = None) -> Leased:
        """Return a block for `with inbox.leased(message) as delivery`.

        Its claim is committed first. Use it for work that is long or has effects elsewhere.
        Complete it in your own transaction with `delivery.complete(result, connection=...)`.
        """
        return Leased(self.config, message_of(message), returns)

    def migrate(self) -> None:
        """Make the table or bring it up to date, which the first use would do otherwise."""
        call_blocking(self.config.tables("migrate").own.identity)

    def purge(
        self, *, grace: Duration | None = None, progress: Callable[[int], None] | None = None
    ) -> int:
        """Delete the rows that expired longer ago than `grace`. Return how many.

        `progress` is called with the total after each batch.
        """
        table = self.config.tables("purge")
        chosen = self._grace if grace is None else grace
        since = microseconds(seconds(chosen, "grace", zero=True))
        total = 0
        while True:
            count = call_blocking(table.purge_after, since, PURGE_BATCH)
            total += count
            if progress is not None:
                progress(total)
            if count < PURGE_BATCH:
                return total

    def close(self) -> None:
        """Close the inbox's own connections. The next use opens new ones."""
        self.config.once.close()

    def is_processed(self, key: str) -> bool:
        """Return whether the message was completed, and that has not expired."""
        call = self.config.rules.key(key)
        record = self._store.get(call.scope, call.key)
        return record is not None and record.status == "completed"

    def mark_processing(self, key: str, ttl: Duration | None = None) -> Claim | None:
        """Claim the message. Return None if it is claimed elsewhere or was processed before.

        The lease is not renewed: choose one that is longer than the work.
        """
        call = self._call(key, ttl)
        answer = self._store.claim(call.claim(new_nonce()))
        if type(answer) is not Granted:
            return None
        record = answer.record
        if self.config.rules.too_often(record.attempt):
            self._bury(call, record)
            return None
        claim = Claim(call.key, record.attempt, record.token, record.nonce, call.terms.ttl)
        while len(self.claims) >= _MOST_OWNED:  # left by callers that never end what they began
            self.claims.pop(next(iter(self.claims)))
        self.claims[call.key] = claim
        return claim

    def mark_completed(self, claim: Claim | str, result: object = None) -> None:
        """Complete the message, so that duplicates get this result.

        Raise LeaseLostError if the claim is lost.
        """
        call, owned = self._of(claim)
        ask = Settle(
            call.scope,
            call.key,
            token=owned.token,
            nonce=owned.nonce,
            status="completed",
            result=kept(call, result).data,
            error=None,
            ttl=owned.ttl,
        )
        if self._store.settle(ask) is not Verdict.DONE:
            raise lost(call)
        self.claims.pop(call.key, None)

    def mark_failed(self, claim: Claim | str, error: BaseException | str) -> None:
        """Release the message, so that it may be processed again at once.

        Raise LeaseLostError if the claim is lost.
        """
        call, owned = self._of(claim)
        raised = error if isinstance(error, BaseException) else RuntimeError(error)
        ask = Release(
            call.scope,
            call.key,
            token=owned.token,
            nonce=owned.nonce,
            error=encode_error(raised),
            uncertain=False,
            hold=False,
            unused=False,
            counted=call.terms.max_attempts is not None,
            bare_ttl=HOUR,
            ttl=owned.ttl,
        )
        if self._store.release(ask) is not Verdict.DONE:
            raise lost(call)
        self.claims.pop(call.key, None)

    @property
    def _store(self) -> Store:
        return self.config.once.store

    def _call(self, key: str, ttl: Duration | None) -> Call:
        call = self.config.rules.key(key)
        chosen = call.terms.ttl if ttl is None else microseconds(seconds(ttl, "ttl"))
        lease = self.config.rules.mark_lease
        return replace(call, terms=replace(call.terms, ttl=chosen, lease=lease))

    def _of(self, claim: Claim | str) -> tuple[Call, Claim]:
        """Return the call and the claim. Raise LeaseLostError if this inbox has no such claim."""
        if isinstance(claim, Claim):
            return replace(self.config.rules.key(claim.key), key=claim.key), claim
        call = self.config.rules.key(claim)
        owned = self.claims.get(call.key)
        if owned is None:
            raise lost(call)
        return call, owned

    def _bury(self, call: Call, record: Record) -> None:
        config = self.config
        message = Message(id=record.reference, type=record.label)
        tell(config.box, config.rules.dead_letter(message, record, record.attempt, None))
        self._store.settle(call.settle(record, "failed", error=last_error(record)))
