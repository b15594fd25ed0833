"""The decisions of the inbox, without I/O: pure functions and values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from oncekey.core.call import Call
from oncekey.core.codec import PLAIN, Codec, NotKeepableError, encode_error, error_words
from oncekey.core.decide import busy, reused
from oncekey.core.fingerprint import of_value
from oncekey.core.key import readable
from oncekey.core.record import Record
from oncekey.core.requests import Answer, Busy, Claim, Mismatch, Settle
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    InvalidKeyError,
    LeaseLostError,
    OncekeyError,
)
from oncekey.messages.errors import worth_another_try
from oncekey.messages.keys import ON_MISSING_KEY, KeyOfMessage, OnMissingKey, key_of
from oncekey.messages.message import Message, letter_of
from oncekey.messages.rows import LONGEST_ID, LONGEST_TYPE
from oncekey.messages.statements import LAPSED
from oncekey.policy import FUNCTION, Policy, Terms

INBOX: Final = Policy(wait=0, lease="30s").over(FUNCTION)
"""The default policy of a message. A message whose consumer died waits for the end of its lease."""

DEFAULT_GRACE: Final = "7d"

Fingerprint = Callable[[Message], Any]


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A message that is not processed again, and what became of it."""

    message: Message
    consumer: str
    key: str
    attempts: int
    first_seen: datetime | None
    error: str
    """The last error, in words."""
    exception: BaseException | None
    """The exception itself, if it was raised in this process just now."""


class InboxRules(Struct, frozen=True, kw_only=True):
    """The keys of one consumer's messages, and the terms on which they are processed."""

    consumer: str
    scope: str
    terms: Terms
    mark_lease: int
    """The lease of `mark_processing`, which is not renewed."""
    strategy: KeyOfMessage
    on_missing: OnMissingKey
    fingerprint: Fingerprint | None
    max_attempts: int | None

    def __post_init__(self) -> None:
        """Check everything that can be checked without a message."""
        if isinstance(self.strategy, type) or not callable(self.strategy):
            name = repr(self.strategy)
            msg = f"key must be a function of the message, such as by_message_id, not {name}"
            raise ConfigurationError(msg)
        if self.on_missing not in ON_MISSING_KEY:
            choices = ", ".join(ON_MISSING_KEY)
            msg = f"on_missing_key must be one of {choices}, but it is {self.on_missing!r}"
            raise ConfigurationError(msg)
        if self.fingerprint is not None and not callable(self.fingerprint):
            msg = f"fingerprint must be a function of the message, not {self.fingerprint!r}"
            raise ConfigurationError(msg)

    def call(self, message: Message, returns: object = None) -> Call | None:
        """Return the protected call for the message, or None if it runs without a key."""
        key = key_of(message, self.strategy, self.on_missing)
        if key is None:
            return None
        said = None if self.fingerprint is None else self.fingerprint(message)
        return Call(
            scope=self.scope,
            key=key,
            terms=replace(self.terms, wait=message.wait) if message.wait else self.terms,
            fingerprint=None if said is None else of_value(said),
            label=readable(message.type, LONGEST_TYPE),
            reference=readable(message.id or key, LONGEST_ID),
            surface="message",
            codec=_codec(returns),
        )

    def key(self, key: object) -> Call:
        """Return the call for a bare key. Raise InvalidKeyError if it is empty or not a string."""
        if not isinstance(key, str):
            msg = (
                f"a key must be a string, but it is {type(key).__name__}; pass message ids as text"
            )
            raise InvalidKeyError(msg)
        made = self.call(Message(id=key)) if key else None
        if made is None:
            msg = "a key must not be empty; pass the message id"
            raise InvalidKeyError(msg)
        return made

    def too_often(self, number: int, most: int | None = None) -> bool:
        """Return whether an attempt with this number exceeds `max_attempts`, or else `most`."""
        limit = most if self.max_attempts is None else self.max_attempts
        return limit is not None and number > limit

    def is_last(self, number: int, error: BaseException) -> bool:
        """Return whether the message is dead after this error in the attempt with this number."""
        return self.counts(error) and self.too_often(number + 1)

    def counts(self, error: BaseException) -> bool:
        """Return whether attempts are counted, and the error says something about the message."""
        definite = isinstance(error, Exception) and not isinstance(error, _NOBODYS_FAULT)
        return self.max_attempts is not None and definite and not worth_another_try(error)

    def dead_letter(
        self, message: Message, record: Record, number: int, error: BaseException | None
    ) -> DeadLetter:
        """Return the argument of the dead letter function."""
        if error is not None:
            words = error_words(encode_error(error))
        else:
            words = record.failure or (LAPSED if record.uncertain else "")
        return DeadLetter(
            message=message,
            consumer=self.consumer,
            key=record.key,
            attempts=number if error is not None else number - 1,
            first_seen=record.at("created"),
            error=words,
            exception=error,
        )


_NOBODYS_FAULT: Final = (InProgressError, LeaseLostError)


def _codec(returns: object) -> Codec:
    """Return the codec for results: the given codec, or one for the given type."""
    if isinstance(returns, Codec):
        return returns
    return PLAIN if returns is None else Codec(returns)


def inbox_terms(terms: Terms) -> Terms:
    """Return the terms without the limit of attempts, which the inbox keeps itself."""
    return replace(terms, max_attempts=None)


def refusal(answer: Answer, call: Call) -> OncekeyError | None:
    """Return the error for a busy or mismatched message, or None if it was settled before."""
    if isinstance(answer, Busy):
        return busy(answer, call)
    return reused(call) if isinstance(answer, Mismatch) else None


def atomic_claim(call: Call, nonce: str) -> Claim:
    """Return the claim of a transaction, which is not visible before the commit.

    Its lease lasts for the whole ttl. Should the transaction be committed half way, which it must
    not, then no other attempt takes the message over before a human has looked at it.
    """
    return replace(call.claim(nonce), lease=call.terms.ttl)


class KeptResult(Struct):
    """A result as it is kept. If it cannot be kept, `why` is the reason."""

    data: bytes | None
    why: str = ""


def kept(call: Call, value: object) -> KeptResult:
    """Return the result as bytes, or the reason why it cannot be kept."""
    try:
        data = call.codec.encode(value)
    except NotKeepableError as error:
        hint = "" if call.codec.typed else "; pass returns= so that it can be"
        return KeptResult(None, f"{error}{hint}")
    if len(data) > call.terms.max_result:
        return KeptResult(None, f"{len(data)} bytes are more than max_result")
    return KeptResult(data)


def ended_inside(call: Call) -> ConfigurationError:
    """Return the error for a transaction that ended inside the block."""
    msg = (
        f"the transaction of {call.name} was committed or rolled back inside the block, so that "
        f"its completion is not part of it; end the transaction after the block"
    )
    return ConfigurationError(msg)


def rolled_back(call: Call) -> ConfigurationError:
    """Return the error for a block that ends normally although its transaction was rolled back."""
    msg = (
        f"the transaction in which {call.name} was completed was rolled back inside the block; "
        f"the message is free to be delivered again, so do not acknowledge it: let the error that "
        f"rolled it back out of the block, or complete again in another transaction"
    )
    return ConfigurationError(msg)


def observed(record: Record) -> Literal["new", "taken_over"]:
    """Return the event to report for a claim that was granted."""
    return "taken_over" if record.uncertain else "new"


def burial(call: Call, record: Record, message: Message, error: bytes) -> Settle:
    """Return the request that marks the message as dead, and keeps it in place of a result."""
    letter = letter_of(message, call.terms.max_result)
    return call.settle(record, "failed", result=letter, error=error)


def last_error(record: Record) -> bytes:
    """Return the last error as bytes. An attempt that just vanished counts as timed out."""
    if record.error is not None and record.failure:
        return record.error
    return encode_error(TimeoutError(LAPSED))
