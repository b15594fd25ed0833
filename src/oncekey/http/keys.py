"""Keys as clients send them: in a header, bare or as a Structured Field string, or in the body."""

from __future__ import annotations

import re
from typing import Any, Final

from oncekey.core.key import checked_key
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.http.errors import MissingMemberError

_STRING: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"(?: *;[^",]*)?')
# Most keys: what is neither quoted nor trimmed nor refused below.
_PLAIN: Final = re.compile(
    rb"[\x21\x23-\x2b\x2d-\x7e](?:[\x20-\x2b\x2d-\x7e]{0,253}[\x21-\x2b\x2d-\x7e])?"
)
_MUST: Final = "must be a string of 1 to 255 printable ASCII characters"
_ESCAPED: Final = re.compile(r'\\(["\\])')


def of_header(name: str, values: list[bytes]) -> str:
    """The key in the values of a header, or InvalidKeyError.

    A value that starts with a quote is a Structured Field string and is the same key without its
    quotes; any other is taken as it stands. Servers join repeated headers with commas, so that a
    bare comma may be two keys.
    """
    if len(values) != 1:
        msg = f"{name} was sent more than once; send one key"
        raise InvalidKeyError(msg)
    value = values[0]
    if _PLAIN.fullmatch(value):
        return value.decode("ascii")
    text = value.decode("latin-1").strip(" \t")
    if text.startswith('"'):
        string = _STRING.fullmatch(text)
        if string is None:
            msg = f"{name} starts with a quote, but is no Structured Field string"
            raise InvalidKeyError(msg)
        text = _ESCAPED.sub(r"\1", string[1])
    elif "," in text:
        msg = f"{name} holds a comma; send one key, in quotes if it has a comma in it"
        raise InvalidKeyError(msg)
    return _checked(name, text)


def of_member(pointer: str, value: object) -> str:
    """The key that a member of the body is, or MissingMemberError."""
    try:
        return checked_key(value)
    except InvalidKeyError:
        raise MissingMemberError(pointer, _MUST) from None


def _checked(name: str, text: str) -> str:
    try:
        return checked_key(text)
    except InvalidKeyError:
        msg = f"{name} {_MUST}"
        raise InvalidKeyError(msg) from None


def checked_pointer(pointer: str) -> str:
    """A JSON pointer, which starts with a slash."""
    if not isinstance(pointer, str) or not pointer.startswith("/") or pointer == "/":
        msg = f"a JSON pointer starts with a slash, as in '/idempotencyKey', but it is {pointer!r}"
        raise ConfigurationError(msg)
    return pointer


def pointed(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to; KeyError where it leads nowhere."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict):
            value = value[name]
        else:
            raise KeyError(pointer)
    return value
