"""Arrays in PostgreSQL's binary form, for values that are in it already."""

from __future__ import annotations

from struct import Struct
from typing import Final

_HEAD: Final = Struct(">5i")
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_KINDS: Final = {"text": 25, "bigint": 20, "boolean": 16, "bytea": 17}
_SHORT: Final = tuple(_LENGTH.pack(length) for length in range(256))
"""How most lengths are written."""


def array(kind: str, values: tuple[bytes | None, ...]) -> bytes:
    """An array of one dimension."""
    first, count = values[0], len(values)
    head = _HEAD.pack(1, None in values, _KINDS[kind], count, 1)
    if values.count(first) == count:  # of most columns everybody gives the same
        return head + _element(first) * count
    return head + b"".join([_element(value) for value in values])


def _element(value: bytes | None) -> bytes:
    if value is None:
        return _NULL
    length = len(value)
    return (_SHORT[length] if length < len(_SHORT) else _LENGTH.pack(length)) + value
