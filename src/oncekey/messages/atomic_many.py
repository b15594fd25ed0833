"""Atomic mode for a batch: one statement claims all of its messages, and one completes them."""

# Generated from atomic_many_async.py by "make generate": do not edit.

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from oncekey.compat import call_blocking
from oncekey.core.call import Call
from oncekey.core.codec import encode_error
from oncekey.core.decide import in_progress
from oncekey.core.record import Record
from oncekey.core.requests import Granted, Settle
from oncekey.engine.ticket import new_nonce, unprotected
from oncekey.errors import ConfigurationError
from oncekey.messages.config import InboxConfig
from oncekey.messages.dead_letter import tell
from oncekey.messages.delivery import Delivery
from oncekey.messages.errors import WHOLE_TRANSACTION, outside_transaction, worth_another_try
from oncekey.messages.message import Message
from oncekey.messages.rules import (
    atomic_claim,
    burial,
    ended_inside,
    kept,
    last_error,
    observed,
    refusal,
)
from oncekey.messages.transaction import Transaction

_log = logging.getLogger("oncekey")


class AtomicMany:
    """The block of atomic mode for a batch. All of its messages are completed, or none is."""

    may_repeat = False
    _call: Call

    def __init__(
        self, config: InboxConfig, connection: Any, messages: Sequence[Message], returns: object
    ) -> None:
        """Raise ConfigurationError if the connection is outside a transaction."""
        self._config = config
        self._rules = config.rules
        self._observers = config.once.core.observers
        self._given = connection
        self._transaction = Transaction(config, connection)
        self._asked = [(message, config.rules.call(message, returns)) for message in messages]
        self._claimed: list[tuple[Call, Record, Delivery]] = []
        self._buried: list[Settle] = []
        self._begun = False

    def __enter__(self) -> list[Delivery]:
        """Claim the messages. Return a delivery for each of them, in the same order.

        Raise InProgressError if one of them is in progress elsewhere. Nothing is claimed then.
        """
        once = self._config.once
        once.core.engine()  # its keeper purges the table
        uses = [(message, *once.use(asked, self._rules.terms)) for message, asked in self._asked]
        calls = {call.key: call for _, _, active, call in uses if active}
        records: dict[str, Record] = {}
        took, started = 0.0, perf_counter()
        if calls:
            self._transaction.begin()
            try:
                records = self._claim([calls[key] for key in sorted(calls)])
            except BaseException as error:
                self._undo_claims(error, next(iter(calls.values())))
                raise
            self._begun = True
            took = (perf_counter() - started) / len(calls)
        found: list[Delivery] = []
        first: dict[str, Delivery] = {}
        for message, _, active, call in uses:
            self._call = call
            if not active:
                record = unprotected(call).record
                found.append(Delivery(self, message, call, record, message.deliveries or 1))
                continue
            twin = first.get(call.key)
            record = records[call.key]
            if twin is None and record.status == "running":
                record = self._judged(message, call, record)
            number = record.attempt
            if record.status == "running":
                number = message.deliveries or number
            delivery = Delivery(self, message, call, record, number)
            found.append(delivery)
            if twin is not None:
                delivery.is_like(twin)
                continue
            first[call.key] = delivery
            if record.status == "running":
                self._observers.tell(observed(record), call, number, took)
                self._claimed.append((call, record, delivery))
            else:
                self._observers.tell("duplicate", call, record.attempt, took)
        return found

    def _claim(self, calls: list[Call]) -> dict[str, Record]:
        """Return the records by key: running if they are claimed now, otherwise settled before."""
        asks = [atomic_claim(call, new_nonce()) for call in calls]
        answers = self._transaction.claim_many(asks)
        for call, answer in zip(calls, answers, strict=True):
            error = None if type(answer) is Granted else refusal(answer, call)
            if error is not None:
                raise error
        return {call.key: answer.record for call, answer in zip(calls, answers, strict=True)}

    def _undo_claims(self, error: BaseException, call: Call) -> None:
        """Roll back to the savepoint. Raise InProgressError as `AsyncAtomic` does."""
        over = False
        try:
            self._transaction.roll_back()
        except Exception as trouble:  # noqa: BLE001 - the connection may be gone, and the claims with it
            over = outside_transaction(trouble)
        if worth_another_try(error):
            if not over:
                raise in_progress(call, call.terms.retry_after) from error
            error.add_note(WHOLE_TRANSACTION)

    def _judged(self, message: Message, call: Call, record: Record) -> Record:
        """Return the record, as a dead one if there were too many attempts at the message."""
        number = message.deliveries or record.attempt
        if not self._rules.too_often(number):
            return record
        tell(self._config.box, self._rules.dead_letter(message, record, number, None))
        self._observers.tell("failed", call, number)
        ask = burial(call, record, message, last_error(record))
        self._buried.append(ask)
        return replace(record, status="failed", error=ask.error)

    def complete(self, result: object, connection: Any) -> None:  # noqa: ARG002 - kept for the end of the block
        """Check the connection. The results are written at the end of the block."""
        if connection is not None and connection is not self._given:
            msg = "an atomic block is completed in its own transaction; pass no other connection"
            raise ConfigurationError(msg)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the messages in the transaction, or roll the block back after an error."""
        if error is None:
            self._complete()
            return
        with suppress(Exception):  # the connection may be gone, and the claims with it
            self._transaction.roll_back()
        for call, _, delivery in self._claimed:
            self._observers.tell("released", call, delivery.number)

    def _complete(self) -> None:
        asks = list(self._buried)
        if not self._begun:
            return
        results = []
        for call, record, delivery in self._claimed:
            value = delivery.result if delivery.completed else None
            delivery.ended_with(value)
            results.append(kept(call, value))
            asks.append(call.settle(record, "completed", result=results[-1].data))
        inside = self._transaction.inside()
        try:
            lost = not inside or self._transaction.without_savepoint()
            done = not lost and self._transaction.settle_many(asks)
        except BaseException as error:
            with suppress(Exception):  # there may be nothing left to roll back
                self._transaction.roll_back()
            if outside_transaction(error):
                raise self._ended_inside(asks, complete=False) from error
            raise
        if not done:
            with suppress(Exception):  # as above
                self._transaction.roll_back()
            raise self._ended_inside(asks, complete=not inside)
        for (call, _, delivery), result in zip(self._claimed, results, strict=True):
            if result.why:
                self._observers.tell("not_kept", call, delivery.number, detail=result.why)
            self._observers.tell("completed", call, delivery.number)

    def _ended_inside(self, asks: list[Settle], *, complete: bool) -> ConfigurationError:
        """Return the error for a transaction that ended inside the block, as `AsyncAtomic` does."""
        error = ended_inside(self._call)
        table = self._config.tables("atomic mode")
        try:
            for ask, (call, record, _) in zip(
                asks[len(self._buried) :], self._claimed, strict=True
            ):
                dead = call.settle(record, "failed", error=encode_error(error))
                call_blocking(table.settle, ask if complete else dead)
        except Exception:  # noqa: BLE001 - the caller raises what led here
            _log.exception("a batch was committed half way, and is not settled")
        return error
