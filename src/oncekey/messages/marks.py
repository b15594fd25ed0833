"""Marks by key, for code that brings its own transactions and loops. Its twin awaits."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncekey.compat import invoke
from oncekey.core.call import Call
from oncekey.core.codec import encode_error
from oncekey.core.decide import lost
from oncekey.core.record import Record
from oncekey.core.requests import Granted, Release, Settle, Verdict
from oncekey.engine.ticket import new_nonce
from oncekey.messages.desk import Desk
from oncekey.messages.message import Message
from oncekey.messages.rules import kept, last_error
from oncekey.policy import Duration, microseconds, seconds
from oncekey.stores.base import Store

_MOST_OWNED: Final = 10_000


class Claim(Struct, frozen=True):
    """The right to process one message, until its lease is over and somebody else has taken it."""

    key: str
    number: int
    """Which attempt at the message this is, the first being 1."""
    token: int
    nonce: str
    ttl: int


class Marks:
    """`is_processed`, `mark_processing`, `mark_completed` and `mark_failed`.

    The lease of a mark is not renewed: choose one that is longer than the work takes.
    """

    _desk: Desk
    _owned: dict[str, Claim]

    def is_processed(self, key: str) -> bool:
        """Whether the message was completed, and that has not expired."""
        call = self._desk.rules.key(key)
        record = self._store.get(call.scope, call.key)
        return record is not None and record.status == "completed"

    def mark_processing(self, key: str, ttl: Duration | None = None) -> Claim | None:
        """A claim for one asker; None for everybody else, and for what was processed before."""
        call = self._call(key, ttl)
        answer = self._store.claim(call.claim(new_nonce()))
        if type(answer) is not Granted:
            return None
        record = answer.record
        if self._desk.rules.too_often(record.attempt):
            self._bury(call, record)
            return None
        claim = Claim(call.key, record.attempt, record.token, record.nonce, call.terms.ttl)
        while len(self._owned) >= _MOST_OWNED:  # those who forget to end what they began
            self._owned.pop(next(iter(self._owned)))
        self._owned[call.key] = claim
        return claim

    def mark_completed(self, claim: Claim | str, result: object = None) -> None:
        """The message is processed, and duplicates get this result."""
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
        self._owned.pop(call.key, None)

    def mark_failed(self, claim: Claim | str, error: BaseException | str) -> None:
        """The message was not processed, and may be processed again at once."""
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
            lease=call.terms.lease,
            ttl=owned.ttl,
        )
        if self._store.release(ask) is not Verdict.DONE:
            raise lost(call)
        self._owned.pop(call.key, None)

    @property
    def _store(self) -> Store:
        return self._desk.once.store

    def _call(self, key: str, ttl: Duration | None) -> Call:
        call = self._desk.rules.key(key)
        if ttl is None:
            return call
        return replace(call, terms=replace(call.terms, ttl=microseconds(seconds(ttl, "ttl"))))

    def _of(self, claim: Claim | str) -> tuple[Call, Claim]:
        """The call and the claim that is meant; refused when this inbox has none."""
        if isinstance(claim, Claim):
            return replace(self._desk.rules.key(claim.key), key=claim.key), claim
        call = self._desk.rules.key(claim)
        owned = self._owned.get(call.key)
        if owned is None:
            raise lost(call)
        return call, owned

    def _bury(self, call: Call, record: Record) -> None:
        desk = self._desk
        if desk.box is not None:
            message = Message(id=record.reference, type=record.label)
            letter = desk.rules.dead_letter(message, record, record.attempt, None)
            invoke(desk.box, letter)
        self._store.settle(call.settle(record, "failed", error=last_error(record)))
