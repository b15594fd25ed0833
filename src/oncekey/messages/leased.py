"""Leased mode: the claim is committed first, and its lease is renewed."""

# Generated from leased_async.py by "make generate": do not edit.

from __future__ import annotations

from types import TracebackType
from typing import Any

from oncekey.compat import call_blocking
from oncekey.core.codec import encode_error
from oncekey.core.decide import lost
from oncekey.engine import run
from oncekey.engine.engine import Engine
from oncekey.engine.run import Run
from oncekey.messages.config import InboxConfig
from oncekey.messages.dead_letter import tell
from oncekey.messages.delivery import Delivery
from oncekey.messages.message import Message
from oncekey.messages.rules import burial, last_error, rolled_back
from oncekey.messages.transaction import Transaction


class Leased:
    """The block of leased mode. Others see that the message is being processed, and by whom."""

    _engine: Engine
    _run: Run
    _delivery: Delivery

    def __init__(self, config: InboxConfig, message: Message, returns: object) -> None:
        """Prepare the call. Nothing is claimed yet."""
        self._config = config
        self._rules = config.rules
        self._message = message
        self._asked = config.rules.call(message, returns)
        self._in_transaction = False
        if message.limit is not None:
            config.check_limit(message.limit)

    def __enter__(self) -> Delivery:
        """Claim the message. Return the delivery, or a duplicate with its result."""
        core, active, call = self._config.once.use(self._asked, self._rules.terms)
        self._engine = core.engine()
        running = run.enter(self._engine, call, active=active)
        most = self._message.max_attempts
        if not running.ticket.duplicate and self._rules.too_often(running.record.attempt, most):
            self._bury(running, None)
            running = run.enter(self._engine, call, active=active)
        self._run = running
        self._run.__enter__()
        number = running.record.attempt
        self._delivery = Delivery(self, self._message, call, running.record, number)
        return self._delivery

    @property
    def may_repeat(self) -> bool:
        """Whether the message may be completed again, as after a transaction that failed."""
        return self._in_transaction

    def complete(self, result: object, connection: Any) -> None:
        """Complete the message now, or with the commit of the transaction if there is a connection.

        Raise LeaseLostError if the claim is lost.
        """
        running = self._run
        if connection is None or not running.ticket.protected:
            running.complete(result)
            self._look_who_answered(running)
            return
        ticket = running.ticket
        transaction = Transaction(self._config, connection)
        transaction.begin()
        ask = running.settlement(result)
        # From here on the row is locked: it is not renewed, and it cannot be taken over.
        self._engine.let_go(ticket)
        if not transaction.settle(ask):
            ticket.lost = True
            self._engine.observers.tell("lost", ticket.call, running.record.attempt)
            raise lost(ticket.call)
        running.settled(result)
        self._in_transaction = True
        self._engine.observers.tell("completed", ticket.call, running.record.attempt)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the message, release it, or mark it as dead."""
        running = self._run
        if error is None and not running.ended:
            self._delivery.ended_with(None)
        try:
            if self._in_transaction:
                self._after_transaction(running, error)
            elif error is not None and self._dies(running, error):
                self._bury(running, error)
                running.ended = True
        finally:
            running.__exit__(kind, error, trace)
            self._look_who_answered(running)

    def _look_who_answered(self, running: Run) -> None:
        """If another delivery has processed the message meanwhile, its result is the answer."""
        if running.ticket.duplicate:
            self._delivery.gave_way_to(running.ticket.record)

    def _after_transaction(self, running: Run, error: BaseException | None) -> None:
        """Release the message after an error, or if its transaction was rolled back.

        Raise ConfigurationError if it was rolled back without an error. Do nothing if it was
        committed or is still open.
        """
        if error is not None:
            self._leave(running, error)
            return
        ticket = running.ticket
        ask = ticket.call.release(ticket.record)
        if call_blocking(self._config.tables("leased mode").undone, ask):
            raise rolled_back(ticket.call)

    def _leave(self, running: Run, error: BaseException) -> None:
        ticket = running.ticket
        self._engine.leave(ticket, ticket.call.release(ticket.record, encode_error(error)))

    def _dies(self, running: Run, error: BaseException) -> bool:
        live = not running.ended and running.ticket.protected
        return live and self._rules.is_last(running.record.attempt, error)

    def _bury(self, running: Run, error: BaseException | None) -> None:
        """Call the dead letter function and mark the message as dead.

        If that is interrupted, the next delivery does it again.
        """
        record = running.record
        ticket = running.ticket
        self._engine.begin(ticket, None)  # else the keeper releases what does not begin in time
        letter = self._rules.dead_letter(self._message, record, running.record.attempt, error)
        try:
            tell(self._config.box, letter)
        except BaseException as trouble:
            self._leave(running, trouble)
            raise
        data = last_error(record) if error is None else encode_error(error)
        self._engine.settle(ticket, burial(ticket.call, record, self._message, data))
