"""How the messages of one handler of FastStream are protected, and what FastStream is told."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from faststream.exceptions import AckMessage, RejectMessage

from oncekey.compat import pause_async
from oncekey.core.codec import Codec
from oncekey.errors import (
    ConfigurationError,
    LeaseLostError,
    NotRecordedError,
    ResultNotKeptError,
    UnreadableError,
)
from oncekey.messages.acknowledge import NEVER, NOT_NOW
from oncekey.messages.delivery import AsyncDelivery
from oncekey.messages.faststream_message import UnfitError, alive, checked, message_from, put_back
from oncekey.messages.faststream_reply import ACKED
from oncekey.messages.inbox_async import AsyncInbox
from oncekey.messages.message import Message
from oncekey.messages.trouble import worth_another_try
from oncekey.policy import Duration, seconds

if TYPE_CHECKING:
    from faststream.message import StreamMessage

_log = logging.getLogger("oncekey")

Transaction = Callable[[], AbstractAsyncContextManager[Any]]
"""Gives a connection inside a transaction, which is committed when the block ends."""
Run = Callable[[AsyncDelivery, Any], Awaitable[Any]]

DEFAULT_WAIT: Final = "10s"


class _LaterError(Exception):
    """The message cannot be processed now, and not because of anything that its handler does."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why
        self.seconds = float(getattr(why, "retry_after", 1.0))


class Guard:
    """An inbox, and what every message of its handler is processed in."""

    def __init__(self, inbox: AsyncInbox, transaction: Transaction | None, wait: Duration) -> None:
        """Every mistake that can be seen without a message shows now."""
        if not isinstance(inbox, AsyncInbox):
            msg = f"handlers of FastStream need an AsyncInbox, not {inbox!r}"
            raise ConfigurationError(msg)
        if transaction is not None and not callable(transaction):
            msg = (
                f"transaction must be a function that gives an async context manager with a "
                f"connection inside a transaction, not {transaction!r}"
            )
            raise ConfigurationError(msg)
        self.inbox = inbox
        self.transaction = transaction
        self._wait = seconds(wait, "wait", zero=True)
        if transaction is not None:
            inbox._desk.tables("transaction=")  # noqa: SLF001 - the same package

    @property
    def consumer(self) -> str:
        """Whose messages these are."""
        return self.inbox._desk.rules.consumer  # noqa: SLF001 - the same package

    def of(self, handler: str) -> Guard:
        """The same for one of several handlers, which is a consumer of its own."""
        return Guard(
            self.inbox.for_consumer(f"{self.consumer}/{handler}"), self.transaction, self._wait
        )

    async def reply(
        self,
        told: StreamMessage[Any],
        subscriber: Any,  # noqa: ANN401 - of any broker
        codec: Codec,
        run: Run,
    ) -> Any:  # noqa: ANN401 - the handler's own
        """What the handler returns, now or the first time; or what FastStream is to do instead."""
        try:
            checked(subscriber)
            message = message_from(told)
        except UnfitError as error:
            _log.error("a subscriber was stopped: %s", error)
            raise
        until = monotonic() + self._wait
        async with alive(told, subscriber):
            while True:
                try:
                    return await _Try(self, message, codec, run).reply()
                except _LaterError as later:
                    left = until - monotonic()
                    if left > 0:
                        await pause_async(min(later.seconds, left))
                        continue
                    _log.info("a message was put back: %s", later)
                    rest, nack = put_back(told, later.seconds)
                    await pause_async(rest)
                    raise nack from later.why

    @asynccontextmanager
    async def block(
        self, message: Message, codec: Codec
    ) -> AsyncIterator[tuple[AsyncDelivery, Any]]:
        """A delivery, and the connection whose transaction it is part of."""
        if self.transaction is None:
            async with self.inbox.leased(message, returns=codec) as delivery:
                yield delivery, None
        else:
            async with (
                self.transaction() as connection,
                self.inbox.atomic(connection, message, returns=codec) as delivery,
            ):
                yield delivery, connection


class _Try:
    """One claim of a message, and what came of it."""

    def __init__(self, guard: Guard, message: Message, codec: Codec, run: Run) -> None:
        self._guard = guard
        self._message = message
        self._codec = codec
        self._run = run
        self._begun = False
        self._key = ""

    async def reply(self) -> Any:  # noqa: ANN401 - the handler's own
        try:
            async with self._guard.block(self._message, self._codec) as (delivery, connection):
                value = await self._value(delivery, connection)
        except NOT_NOW as error:
            lost = isinstance(error, LeaseLostError) and error.key == self._key
            if self._begun and not lost:  # of a call inside the handler
                raise
            raise _LaterError(error) from error
        except NEVER as error:
            if self._begun:
                raise
            _log.error("a message was rejected: %s", error)
            raise RejectMessage from error
        except Exception as error:
            if self._guard.transaction is None or not worth_another_try(error):
                raise
            raise _LaterError(error) from error
        if isinstance(value, AckMessage):
            raise value
        return value

    async def _value(self, delivery: AsyncDelivery, connection: Any) -> Any:  # noqa: ANN401 - as above
        """The reply, or the AckMessage that stands for none."""
        if delivery.duplicate:
            return _first_reply(delivery)
        self._begun, self._key = True, delivery.key
        try:
            value = await self._run(delivery, connection)
        except AckMessage as told:
            await self._complete(delivery, ACKED)
            return told
        if delivery.completed:  # by the handler, in a transaction of its own
            return delivery.result
        await self._complete(delivery, value)
        return value

    async def _complete(self, delivery: AsyncDelivery, value: object) -> None:
        if delivery.completed:
            return
        try:
            await delivery.complete(value)
        except NotRecordedError:
            # Done, and being recorded: if it were delivered again it might only be done again.
            return


def _first_reply(delivery: AsyncDelivery) -> Any:  # noqa: ANN401 - as the handler returned it
    if delivery.dead:
        _log.warning("a message that failed for good was acknowledged: %s", delivery.key)
        return AckMessage()
    try:
        value = delivery.result
    except (ResultNotKeptError, UnreadableError) as error:
        _log.error("a message was acknowledged without its reply: %s", error)
        return AckMessage()
    return AckMessage() if value is ACKED else value
