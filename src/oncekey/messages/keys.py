"""Functions that make the key of a message. Any function of the message can be used.

It returns a string. An empty string means the message id.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, Literal

from oncekey.core.fingerprint import of_value
from oncekey.core.key import escape, function_key
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.functions import made_key
from oncekey.messages.message import Message

KeyOfMessage = Callable[[Message], str]
OnMissingKey = Literal["error", "run", "hash"]

ON_MISSING_KEY: Final = ("error", "run", "hash")


def by_message_id(message: Message) -> str:
    """Return the id that the producer gave the message, the same for every delivery of it."""
    return message.id


def by_fields(*names: str) -> KeyOfMessage:
    """Return a key function that hashes (SHA-256) the type of the message and fields of its body.

    With `by_fields("user_id", "email")`, two messages about one registration have the same key,
    whatever their ids. Fields may be nested, as in `"order.lines.0"` for mappings with such keys.
    """
    if not names or not all(isinstance(name, str) and name for name in names):
        msg = "by_fields needs the names of fields, as in by_fields('order_id')"
        raise ConfigurationError(msg)

    def key(message: Message) -> str:
        values = [_escaped(_text(message, name)) for name in names]
        data = ":".join([_escaped(message.type), *values]) if message.type else ":".join(values)
        return sha256(data.encode()).hexdigest()

    return key


def by_attribute(name: str = "request_id") -> KeyOfMessage:
    """Return a key function for an attribute or header that another system has set.

    A message without it has an empty key, so that its id is used.
    """
    if not isinstance(name, str) or not name:
        msg = "by_attribute needs the name of an attribute, as in by_attribute('request_id')"
        raise ConfigurationError(msg)

    def key(message: Message) -> str:
        value = message.attributes.get(name)
        return "" if value is None else _plain(value)

    return key


def key_of(message: Message, strategy: KeyOfMessage, on_missing: OnMissingKey) -> str | None:
    """Return the key of the message, or None if it is to run without one.

    Raise InvalidKeyError if it has no key and `on_missing` is "error".
    """
    made = made_key(strategy(message)) or message.id
    if made:
        plain = made.isascii() and made.isprintable() and "%" not in made  # so no two keys collide
        return function_key(made if plain else _escaped(made))
    if on_missing == "run":
        return None
    if on_missing == "hash":
        body = message.body
        data = bytes(body) if isinstance(body, (bytearray, memoryview)) else body
        return of_value([message.type, data]).partition(":")[2]
    msg = (
        f"the message has no id: it lacks {message.lacks}; set it where the message is published, "
        f'or choose another key, or on_missing_key="run" or "hash"'
    )
    raise InvalidKeyError(msg)


def _text(message: Message, name: str) -> str:
    try:
        value = message.find(name)
    except KeyError:
        msg = f"the message has no field {name!r} to make its key from"
        raise InvalidKeyError(msg) from None
    if value is None or value in ("", b""):
        msg = f"the field {name!r} of the message is empty, so that it can be no key"
        raise InvalidKeyError(msg)
    return _plain(value)


def _escaped(text: str) -> str:
    try:
        return escape(text)
    except UnicodeEncodeError:
        msg = "what the key is made of holds half a character, which cannot be stored"
        raise InvalidKeyError(msg) from None


def _plain(value: Any) -> str:
    kind: Any = type(value)
    if kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__:
        # Its text is its address, which another object may have next.
        msg = f"a {kind.__name__} has no text of its own to make a key from; name a field of it"
        raise InvalidKeyError(msg)
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
