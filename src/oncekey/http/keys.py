"""Read keys from a header, bare or as a Structured Field string, or from the JSON body."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote

from oncekey.core.key import checked_key, function_key
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.http.errors import MissingMemberError

_STRING: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"(?: *;[^",]*)?')
_MUST: Final = "must be a string of 1 to 255 printable ASCII characters"
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_ESCAPED: Final = re.compile(r'\\(["\\])')


def of_header(name: str, values: list[bytes]) -> str:
    """Return the key in the values of a header. Raise InvalidKeyError if there is not one key.

    A value that starts with a quote is a Structured Field string, and means the same key as the
    text without quotes. Any other value is used as it is. A bare comma is refused: servers join
    repeated headers with commas, so it may separate two keys.
    """
    if len(values) != 1:
        msg = f"{name} was sent more than once; send one key"
        raise InvalidKeyError(msg)
    text = values[0].decode("latin-1").strip(" \t")
    if text[:1] == '"':
        string = _STRING.fullmatch(text)
        if string is None:
            msg = f"{name} starts with a quote, but is no Structured Field string"
            raise InvalidKeyError(msg)
        text = _ESCAPED.sub(r"\1", string[1])
    elif "," in text:
        msg = f"{name} holds a comma; send one key, in quotes if it has a comma in it"
        raise InvalidKeyError(msg)
    try:
        return checked_key(text)
    except InvalidKeyError:
        msg = f"{name} {_MUST}"
        raise InvalidKeyError(msg) from None


def echoed(value: bytes, key: str) -> bytes:
    """Return what is sent back for a header: the key as it was understood, and nothing else."""
    if value.lstrip(b" \t").startswith(b'"'):
        key = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return key.encode("ascii")


def of_member(pointer: str, value: object) -> str:
    """Return the key in a member of the body. Raise MissingMemberError if it is not valid."""
    try:
        return checked_key(value)
    except InvalidKeyError:
        raise MissingMemberError(pointer, _MUST) from None


def of_any_text(pointer: str, value: object, shortest: int) -> str:
    """Return the key in a member of the body that may hold any text of this length or longer.

    Characters beyond printable ASCII are percent-escaped, and what gets too long ends in a digest:
    different texts are different keys. Raise MissingMemberError if it is no such text.
    """
    if not isinstance(value, str) or len(value) < shortest:
        raise MissingMemberError(pointer, f"must be a string of {shortest} or more characters")
    return function_key(quote(value, safe=_PRINTABLE, errors="surrogatepass"))


def checked_pointer(pointer: str) -> str:
    """Return the JSON pointer. Raise ConfigurationError if it does not start with a slash."""
    if not isinstance(pointer, str) or not pointer.startswith("/") or pointer == "/":
        msg = f"a JSON pointer starts with a slash, as in '/idempotencyKey', but it is {pointer!r}"
        raise ConfigurationError(msg)
    return pointer


def pointed(value: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer. Raise KeyError if there is none."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict):
            value = value[name]
        else:
            raise KeyError(pointer)
    return value
