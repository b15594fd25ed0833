"""What is put into the outbox: a message that was checked, where it goes, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from os import urandom
from typing import Any, Final, Protocol

from msgspec import MsgspecError, Struct, json, to_builtins

from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.messages.message import Message
from oncekey.messages.rows import LONGEST_ID, LONGEST_TYPE
from oncekey.policy import Duration, seconds

_LONGEST_DESTINATION: Final = 255
_LONGEST_KEY: Final = 256
_ASKED: Final = ("downstream_key", "next_message")


class Sender(Protocol):
    """An attempt, or a delivery of an inbox."""

    def downstream_key(self, name: str) -> str:
        """Return a key for the effect `name`, the same in every attempt."""
        ...

    def next_message(self) -> int:
        """Return the number of the next message that this sender puts, from 1 on."""
        ...


def id_from(sender: Sender, message: Message) -> str:
    """Return the id of a message that this sender gives it in every attempt.

    Raise ConfigurationError for what is neither an attempt nor a delivery.
    """
    if not all(callable(getattr(sender, name, None)) for name in _ASKED):
        msg = f"a sender is an attempt or the delivery of an inbox, not {sender!r}"
        raise ConfigurationError(msg)
    if message.id:
        return sender.downstream_key(message.id)
    return sender.downstream_key(f"message {sender.next_message()}")


class OutboxRow(Struct, frozen=True, kw_only=True):
    """A message as it is kept in the outbox."""

    id: str
    """The same in every try to send it."""
    to: str
    key: str | None
    type: str
    attributes: bytes
    """The attributes as JSON."""
    body: bytes
    after: float
    """After how many seconds it may be sent."""


def new_row(
    message: object, *, to: object, key: object, after: Duration | None, largest: int
) -> OutboxRow:
    """Return the message as it is kept.

    Raise ConfigurationError if it could not be sent, and InvalidKeyError if the key is no text.
    """
    if not isinstance(message, Message):
        msg = f"the outbox takes a Message(type=..., body=...), not a {type(message).__name__}"
        raise ConfigurationError(msg)
    if after is not None and key is not None:
        msg = "a message with a key waits for those before it, so that it cannot have after= too"
        raise ConfigurationError(msg)
    attributes = _attributes(message.attributes)
    body = _body(message.body)
    if len(body) + len(attributes) > largest:
        msg = (
            f"the message has {len(body) + len(attributes):,} bytes, and the outbox takes at most "
            f"{largest:,}; store it elsewhere and send where it is, or set max_size= if the broker "
            f"takes more"
        )
        raise ConfigurationError(msg)
    own = message.id and _text("the id of a message", message.id, LONGEST_ID)
    return OutboxRow(
        id=own or urandom(16).hex(),
        to=_destination(to),
        key=None if key is None else _key(key),
        type=_text("the type of a message", message.type, LONGEST_TYPE) if message.type else "",
        attributes=attributes,
        body=body,
        after=0.0 if after is None else seconds(after, "after", zero=True),
    )


def _text(what: str, value: object, longest: int) -> str:
    """Return the text. It goes into headers of brokers and into columns of databases."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{what} must be text that is not empty, not {value!r}")
    if len(value) > longest:
        raise ConfigurationError(f"{what} has {len(value)} characters, more than {longest}")
    if not value.isprintable() or value != value.strip():
        msg = f"{what} has characters that no header can carry, or blanks around it: {value!r}"
        raise ConfigurationError(msg)
    return value


def _destination(to: object) -> str:
    name = _text("the destination of a message", to, _LONGEST_DESTINATION)
    if " " in name or "*" in name:
        msg = f"a destination has no blanks and no *, as in to='orders.paid', not {name!r}"
        raise ConfigurationError(msg)
    return name


def _key(key: object) -> str:
    if not isinstance(key, str):
        msg = f"a key must be a string, but it is {type(key).__name__}; pass str(order.id)"
        raise InvalidKeyError(msg)
    try:
        return _text("the key of a message", key, _LONGEST_KEY)
    except ConfigurationError as error:
        raise InvalidKeyError(str(error)) from None


def _attributes(attributes: object) -> bytes:
    if not attributes and type(attributes) is dict:
        return b"{}"
    if not isinstance(attributes, Mapping):
        msg = f"the attributes of a message are a mapping, not {attributes!r}"
        raise ConfigurationError(msg)
    for name, value in attributes.items():
        _text("the name of an attribute", name, LONGEST_ID)
        if not name.isascii() or ":" in name or " " in name:
            msg = f"the name of an attribute is ASCII without blanks and colons, not {name!r}"
            raise ConfigurationError(msg)
        if not isinstance(value, (str, int, float, bool)):
            msg = f"the attribute {name!r} must be a text or a number, not {value!r}"
            raise ConfigurationError(msg)
        if isinstance(value, float) and not isfinite(value):
            msg = f"the attribute {name!r} must be a finite number, since JSON has no {value!r}"
            raise ConfigurationError(msg)
        if isinstance(value, str) and not value.isprintable():
            msg = f"the attribute {name!r} has characters that no header can carry: {value!r}"
            raise ConfigurationError(msg)
    return json.encode(dict(attributes))


def _is_finite(body: object) -> bool:
    """Return whether all numbers are finite: msgspec writes null for others."""
    left = [to_builtins(body, str_keys=True)]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, (list, tuple)):
            left += value
        elif isinstance(value, float) and not isfinite(value):
            return False
    return True


def _body(body: Any) -> bytes:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    try:
        encoded = body.encode() if isinstance(body, str) else json.encode(body)
    except (MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"the body of a message must be bytes, text, or what JSON can say: {error}"
        raise ConfigurationError(msg) from error
    if b"null" in encoded and not _is_finite(body):
        raise ConfigurationError("the body of a message has a number for which JSON has no word")
    return encoded
