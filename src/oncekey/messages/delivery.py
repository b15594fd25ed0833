"""A delivery, as the code that processes the message sees it, in both colours."""

from __future__ import annotations

from typing import Any, Final, Protocol

from msgspec import Struct

from oncekey.core.call import Call
from oncekey.core.decide import served
from oncekey.core.record import Record
from oncekey.errors import ConfigurationError
from oncekey.messages.message import Message

_NOTHING: Final = object()


class Completing(Protocol):
    """The block that the delivery belongs to."""

    @property
    def may_repeat(self) -> bool:
        """Whether the message may be completed again."""
        ...

    def complete(self, result: object, connection: Any) -> None:
        """The message is processed, with this result."""
        ...


class AsyncCompleting(Protocol):
    """The same for coroutines."""

    @property
    def may_repeat(self) -> bool:
        """Whether the message may be completed again."""
        ...

    async def complete(self, result: object, connection: Any) -> None:
        """The message is processed, with this result."""
        ...


class BaseDelivery:
    """One delivery of a message: to be processed now, or processed before."""

    def __init__(self, message: Message, call: Call, record: Record, number: int) -> None:
        """What the claim has found."""
        self.message = message
        self.number = number
        """Which attempt at the message this is, the first being 1."""
        self.duplicate = record.status in ("completed", "failed")
        """Whether the message was processed before: there is a result and nothing to do."""
        self._call = call
        self._record = record
        self._value: object = _NOTHING

    @property
    def key(self) -> str:
        """The key of the message."""
        return self._call.key

    @property
    def dead(self) -> bool:
        """Whether the message has failed for good, and is not processed again."""
        return self._record.status == "failed"

    @property
    def token(self) -> int:
        """A number larger than that of every earlier attempt, for systems that can fence."""
        return self._record.token

    @property
    def result(self) -> Any:
        """What the message was completed with, now or the first time.

        Of a message that has failed for good this raises the failure.
        """
        if self.duplicate:
            return served(self._record, self._call)
        if self._value is _NOTHING:
            msg = f"{self._call.name} has no result before complete()"
            raise ConfigurationError(msg)
        return self._value

    @property
    def completed(self) -> bool:
        """Whether complete() was called on this delivery."""
        return self._value is not _NOTHING

    def downstream_key(self, name: str) -> str:
        """A key for the effect `name` elsewhere, the same in every attempt at this message."""
        return self._call.downstream_key(name)

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

    _block: Completing

    def complete(self, result: object = None, *, connection: Any = None) -> None:
        """The message is processed, and duplicates get this result.

        In a leased block, `connection` makes it part of the transaction that the connection is
        in: the mark and your writes are committed together, or neither is.
        """
        self._completes(result, again=self._block.may_repeat)
        self._block.complete(result, connection)


class AsyncDelivery(BaseDelivery):
    """A delivery for coroutines."""

    _block: AsyncCompleting

    async def complete(self, result: object = None, *, connection: Any = None) -> None:
        """The message is processed, and duplicates get this result.

        In a leased block, `connection` makes it part of the transaction that the connection is
        in: the mark and your writes are committed together, or neither is.
        """
        self._completes(result, again=self._block.may_repeat)
        await self._block.complete(result, connection)


class Claim(Struct, frozen=True):
    """The right to process one message, until its lease is over and somebody else has taken it."""

    key: str
    number: int
    """Which attempt at the message this is, the first being 1."""
    token: int
    nonce: str
    ttl: int
