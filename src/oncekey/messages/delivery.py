"""The delivery of a message, as the code that processes it sees it, sync and async."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final, Protocol

from msgspec import Struct

from oncekey.core.call import Call
from oncekey.core.decide import served
from oncekey.core.record import Record
from oncekey.errors import ConfigurationError
from oncekey.messages.message import Message

_NOTHING: Final = object()


class Completing(Protocol):
    """The block that a delivery belongs to."""

    @property
    def may_repeat(self) -> bool:
        """Whether the message may be completed again."""
        ...

    def complete(self, result: object, connection: Any) -> None:
        """Complete the message with this result."""
        ...


class AsyncCompleting(Protocol):
    """The block that a delivery belongs to, for coroutines."""

    @property
    def may_repeat(self) -> bool:
        """Whether the message may be completed again."""
        ...

    async def complete(self, result: object, connection: Any) -> None:
        """Complete the message with this result."""
        ...


class BaseDelivery:
    """One delivery of a message, which is either processed now or was processed before."""

    def __init__(self, message: Message, call: Call, record: Record, number: int) -> None:
        """Take what the claim has found."""
        self.message = message
        self.number = number
        """The number of this attempt at the message; the first is 1."""
        self.duplicate = record.status in ("completed", "failed")
        """Whether the message was processed before: there is a result and nothing to do."""
        self._call = call
        self._record = record
        self._value: object = _NOTHING
        self._twin: BaseDelivery | None = None

    def is_like(self, twin: BaseDelivery) -> None:
        """Become a duplicate of an earlier message of the same batch. The block calls this."""
        self.duplicate = True
        self._twin = twin

    @property
    def key(self) -> str:
        """The key of the message."""
        return self._call.key

    @property
    def dead(self) -> bool:
        """Whether the message has failed for good and is not processed again."""
        return self._record.status == "failed"

    @property
    def token(self) -> int:
        """A number larger than that of every earlier attempt, for systems that can fence."""
        return self._record.token

    @property
    def result(self) -> Any:
        """The value that the message was completed with, now or the first time.

        Raise the failure if the message has failed for good, and ConfigurationError before
        `complete`.
        """
        if self._twin is not None:
            return self._twin.result
        if self.duplicate:
            return served(self._record, self._call)
        if self._value is _NOTHING:
            msg = f"{self._call.name} has no result before complete()"
            raise ConfigurationError(msg)
        return self._value

    @property
    def completed(self) -> bool:
        """Whether `complete` was called on this delivery."""
        return self._value is not _NOTHING

    def next_message(self) -> int:
        """Return the number of the next message that is put with this delivery, from 1 on.

        An outbox asks for it to give the message an id.
        """
        numbers: Iterator[int] = self.__dict__.setdefault("_messages", count(1))
        return next(numbers)

    def downstream_key(self, name: str) -> str:
        """Return a key for the effect `name` elsewhere, the same in every attempt."""
        return self._call.downstream_key(name)

    def ended_with(self, value: object) -> None:
        """Take the result of a block that ends without `complete`. The block calls this."""
        self._value = value

    def gave_way_to(self, record: Record) -> None:
        """Become a duplicate of the delivery that was quicker. The block calls this."""
        self.duplicate, self._record = True, record

    def _completes(self, value: object, *, again: bool) -> None:
        if self.duplicate or (self._value is not _NOTHING and not again):
            was = "a duplicate" if self.duplicate else "completed already"
            msg = (
                f"complete is for a message that is being processed, but {self._call.name} is {was}"
            )
            raise ConfigurationError(msg)
        self._value = value


class Delivery(BaseDelivery):
    """A delivery for code that blocks."""

    def __init__(
        self, block: Completing, message: Message, call: Call, record: Record, number: int
    ) -> None:
        """Take what the claim has found, and the block that completes the message."""
        super().__init__(message, call, record, number)
        self._block = block

    def complete(self, result: object = None, *, connection: Any = None) -> None:
        """Complete the message, so that duplicates get this result.

        In a leased block, `connection` makes the completion part of the transaction that the
        connection is in: the mark and your writes are committed together, or neither is.
        """
        self._completes(result, again=self._block.may_repeat)
        self._block.complete(result, connection)


class AsyncDelivery(BaseDelivery):
    """A delivery for coroutines."""

    def __init__(
        self, block: AsyncCompleting, message: Message, call: Call, record: Record, number: int
    ) -> None:
        """Take what the claim has found, and the block that completes the message."""
        super().__init__(message, call, record, number)
        self._block = block

    async def complete(self, result: object = None, *, connection: Any = None) -> None:
        """Complete the message, so that duplicates get this result.

        In a leased block, `connection` makes the completion part of the transaction that the
        connection is in: the mark and your writes are committed together, or neither is.
        """
        self._completes(result, again=self._block.may_repeat)
        await self._block.complete(result, connection)


class Claim(Struct, frozen=True):
    """The right to process one message, until its lease is over and another claim is made."""

    key: str
    number: int
    """The number of this attempt at the message; the first is 1."""
    token: int
    nonce: str
    ttl: int
