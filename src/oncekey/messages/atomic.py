"""Atomic mode: the claim, the work and the completion are one transaction."""

# Generated from atomic_async.py by "make generate": do not edit.

from __future__ import annotations

import logging
from contextlib import suppress
from time import perf_counter
from types import TracebackType
from typing import Any

from oncekey.compat import call_blocking
from oncekey.core import machine
from oncekey.core.call import Call
from oncekey.core.codec import encode_error
from oncekey.core.decide import in_progress
from oncekey.core.record import Record
from oncekey.core.requests import Granted, Settle, Verdict
from oncekey.engine.ticket import new_nonce, unprotected
from oncekey.errors import ConfigurationError, InProgressError, KeyReusedError
from oncekey.messages.config import InboxConfig
from oncekey.messages.dead_letter import tell
from oncekey.messages.delivery import Delivery
from oncekey.messages.errors import WHOLE_TRANSACTION, outside_transaction, worth_another_try
from oncekey.messages.message import Message, letter_of
from oncekey.messages.rules import (
    KeptResult,
    atomic_claim,
    burial,
    ended_inside,
    kept,
    last_error,
    observed,
    refusal,
)
from oncekey.messages.statements import SQLITE, Dialect
from oncekey.messages.transaction import Transaction

_log = logging.getLogger("oncekey")


class Atomic:
    """The block of atomic mode. One savepoint lasts from the claim to the completion."""

    may_repeat = False
    _delivery: Delivery
    _call: Call
    _claimed: Record | None = None

    def __init__(
        self,
        config: InboxConfig,
        connection: Any,
        message: Message,
        returns: object,
    ) -> None:
        """Raise ConfigurationError if the connection is outside a transaction."""
        self._config = config
        self._rules = config.rules
        self._observers = config.once.core.observers
        self._given = connection
        self._message = message
        self._transaction = Transaction(config, connection)
        self._asked = config.rules.call(message, returns)

    def __enter__(self) -> Delivery:
        """Claim the message. Return the delivery, or a duplicate with its result."""
        core, active, call = self._config.once.use(self._asked, self._rules.terms)
        core.engine()  # its keeper purges the table
        self._call = call
        if not active:
            record = unprotected(call).record
            return self._deliver(record, self._message.deliveries or 1)
        table = self._config.tables("atomic mode")
        if self._rules.max_attempts and not table.dialect.counts:
            self._must_be_counted(table.dialect)
        started = perf_counter()
        self._transaction.begin()
        try:
            record = self._claim()
        except BaseException as error:
            over = False
            try:
                self._transaction.roll_back()
            except Exception as trouble:  # noqa: BLE001 - the connection may be gone, and the claim with it
                over = outside_transaction(trouble)
            self._refused(error, perf_counter() - started, over=over)
            raise
        took = perf_counter() - started
        number = self._message.deliveries or record.attempt
        if record.status != "running":
            self._transaction.roll_back()
            self._observers.tell("duplicate", call, record.attempt, took)
            return self._deliver(record, record.attempt)
        if self._rules.too_often(number):
            return self._deliver(self._bury(record, number), number)
        self._observers.tell(observed(record), call, number, took)
        self._claimed = record
        return self._deliver(record, number)

    def complete(self, result: object, connection: Any) -> None:  # noqa: ARG002 - kept for the end of the block
        """Check the connection. The result is written at the end of the block."""
        if connection is not None and connection is not self._given:
            msg = "an atomic block is completed in its own transaction; pass no other connection"
            raise ConfigurationError(msg)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the message in the transaction, or roll the block back after an error."""
        record, self._claimed = self._claimed, None
        if record is None:
            return
        if error is None:
            self._complete(record)
        else:
            ended = not self._transaction.inside() or self._transaction.without_savepoint()
            try:
                self._transaction.roll_back()
            except Exception as trouble:  # noqa: BLE001 - the connection may be gone, and the claim with it
                ended = ended or outside_transaction(trouble)
            self._observers.tell("released", self._call, self._delivery.number)
            if ended and self._settle_alone(record, error):
                return
            self._count(record, error)

    def _deliver(self, record: Record, number: int) -> Delivery:
        self._delivery = Delivery(self, self._message, self._call, record, number)
        return self._delivery

    def _must_be_counted(self, dialect: Dialect) -> None:
        if self._message.deliveries is None:
            where, why = (
                ("SQLite", "the file has one writer")
                if dialect is SQLITE
                else ("MySQL", "a savepoint that is rolled back keeps its locks")
            )
            msg = (
                f"max_attempts in atomic mode on {where} needs the broker's count of deliveries: "
                f"{why}, and a rolled back transaction cannot count itself; set deliveries= of "
                f"the message"
            )
            raise ConfigurationError(msg)

    def _claim(self) -> Record:
        """Return the record: running if it is claimed now, otherwise settled before."""
        answer = self._transaction.claim(atomic_claim(self._call, new_nonce()))
        if type(answer) is not Granted:
            error = refusal(answer, self._call)
            if error is not None:
                raise error
        return answer.record

    def _refused(self, error: BaseException, took: float, *, over: bool) -> None:
        """Tell the observers why the claim was refused.

        Raise InProgressError if the database aborted it in favour of another transaction. Leave the
        error as it is if the whole transaction is over: what the user did before is undone then,
        which a message that is in progress elsewhere would not say.
        """
        call = self._call
        if worth_another_try(error):
            self._observers.tell("busy", call, seconds=took, detail=str(error))
            if over:
                error.add_note(WHOLE_TRANSACTION)
                return
            raise in_progress(call, call.terms.retry_after) from error
        if isinstance(error, InProgressError):
            self._observers.tell("busy", call, seconds=took)
        elif isinstance(error, KeyReusedError):
            self._observers.tell("reused", call, seconds=took)

    def _complete(self, record: Record) -> None:
        call, delivery = self._call, self._delivery
        value = delivery.result if delivery.completed else None
        delivery.ended_with(value)
        result = kept(call, value)
        ask = call.settle(record, "completed", result=result.data)
        inside = self._transaction.inside()
        try:
            lost = not inside or self._transaction.without_savepoint()
            done = not lost and self._transaction.settle_last(ask)
        except BaseException as error:
            with suppress(Exception):  # there may be nothing left to roll back
                self._transaction.roll_back()
            if outside_transaction(error):
                raise self._ended_inside(record, result, complete=False) from error
            self._count(record, error)  # a Session may write, and fail, as late as this
            raise
        if not done:
            with suppress(Exception):  # as above
                self._transaction.roll_back()
            raise self._ended_inside(record, result, complete=not inside)
        if result.why:
            self._observers.tell("not_kept", call, delivery.number, detail=result.why)
        self._observers.tell("completed", call, delivery.number)

    def _ended_inside(
        self, record: Record, result: KeptResult, *, complete: bool
    ) -> ConfigurationError:
        """Return the error for a transaction that ended inside the block.

        If it was committed, so was the claim, which nobody else could end. It is completed if
        nothing came after the commit. Otherwise what came after is lost, and the message is dead.
        """
        error = ended_inside(self._call)
        if complete:
            settle = self._call.settle(record, "completed", result=result.data)
            self._alone(settle)
        else:
            self._settle_alone(record, error)
        return error

    def _settle_alone(self, record: Record, error: BaseException) -> bool:
        """Mark the message as dead if its claim was committed inside the block.

        Return whether it was. A part of the work is done then, and it must not be done again.
        """
        settle = burial(self._call, record, self._message, encode_error(error))
        if not self._alone(settle):
            return False
        letter = self._rules.dead_letter(self._message, record, self._delivery.number, error)
        tell(self._config.box, letter)
        self._observers.tell("failed", self._call, self._delivery.number)
        return True

    def _alone(self, ask: Settle) -> bool:
        """Settle the message on a connection of the inbox. Return whether there was a claim."""
        try:
            table = self._config.tables("atomic mode")
            return call_blocking(table.settle, ask) is Verdict.DONE
        except Exception:  # noqa: BLE001 - the caller raises what led here
            _log.exception("%s was committed half way, and is not settled", self._call.name)
            return False

    def _bury(self, record: Record, number: int) -> Record:
        """Settle a message as dead in the user's transaction. Return its record."""
        call = self._call
        ask = burial(call, record, self._message, last_error(record))
        try:
            letter = self._rules.dead_letter(self._message, record, number, None)
            tell(self._config.box, letter)
            self._transaction.settle_last(ask)
        except BaseException:
            with suppress(Exception):  # the connection may be gone, and the claim with it
                self._transaction.roll_back()
            raise
        self._observers.tell("failed", call, number)
        return machine.settle(record, ask, record.started)[0] or record

    def _count(self, record: Record, error: BaseException) -> None:
        """Record an attempt that was rolled back. After the last one, mark the message as dead."""
        table = self._config.tables("atomic mode")
        if not self._rules.counts(error) or not table.dialect.counts:
            return
        number = self._delivery.number
        dead = self._rules.is_last(number, error)
        try:
            if dead:
                letter = self._rules.dead_letter(self._message, record, number, error)
                tell(self._config.box, letter)
            call_blocking(
                table.count,
                atomic_claim(self._call, new_nonce()),
                attempt=number,
                error=encode_error(error),
                dead=dead,
                letter=letter_of(self._message, self._call.terms.max_result) if dead else None,
            )
        except Exception as trouble:  # noqa: BLE001 - the error of the handler is what its caller must hear
            _log.exception("a failed message could not be counted")
            self._observers.tell("not_recorded", self._call, number, detail=str(trouble))
        else:
            if dead:
                self._observers.tell("failed", self._call, number)
