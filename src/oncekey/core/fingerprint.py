"""Fingerprints: whether two calls with one key ask for the same thing.

A value is converted to a canonical form, and the form is hashed. Types count: 1, True, 1.0 and "1"
differ. Each fingerprint carries the version of its form, and fingerprints of two versions are never
compared.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from hashlib import sha256
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

import msgspec

from oncekey.errors import ConfigurationError

VERSION: Final = "1"

# Exact types that msgpack already encodes differently from each other. It cannot encode every
# integer: only those in _MSGPACK_INTEGERS.
_SCALARS: Final = frozenset({str, int, bool, float, bytes, type(None)})
_MSGPACK_INTEGERS: Final = range(-(2**63), 2**64)
_LONGEST_INTEGER: Final = 20  # the digits of the largest of them
_LONG_INTEGER: Final = re.compile(rb"[0-9]{20}")
_encode = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder(order="deterministic", decimal_format="number").encode


def of_arguments(arguments: Mapping[str, object]) -> str:
    """Return the fingerprint of a call from its bound arguments.

    Raise ConfigurationError, which names the argument, if one has no canonical form.
    """
    form: list[object] = []
    for name, value in arguments.items():
        form.append(name)
        if type(value) in _SCALARS:
            form.append(value)
            continue
        try:
            form.append(_canonical(value))
        except (_UnknownTypeError, RecursionError, UnicodeEncodeError) as error:
            raise _cannot(name, error) from None
    try:
        try:
            return _digest(form)
        except OverflowError:  # an integer outside of _MSGPACK_INTEGERS
            form = [_number(one) if type(one) is int else one for one in form]
            return _digest(form)
    except UnicodeEncodeError as error:
        raise _cannot(_unwritable(form), error) from None


def _cannot(name: object, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"the argument {name!r} cannot be fingerprinted ({_reason(error)}); choose what "
        f'counts with fingerprint=("{name}.id",), a function, or None'
    )


def _unwritable(form: list[object]) -> object:
    """Return the name of the argument that holds text which cannot be encoded as UTF-8."""
    return next(name for name, part in zip(form[::2], form[1::2], strict=True) if _lone(part))


def _lone(part: object) -> bool:
    try:
        _encode(part)
    except UnicodeEncodeError:
        return True
    return False


def of_value(value: object) -> str:
    """Return the fingerprint of a value. Raise ConfigurationError if it has no canonical form."""
    try:
        return _digest(_canonical(value))
    except (_UnknownTypeError, RecursionError, UnicodeEncodeError) as error:
        msg = f"the fingerprint cannot be made ({_reason(error)}); pass plain values or bytes"
        raise ConfigurationError(msg) from None


def of_json(body: bytes) -> str:
    """Return the fingerprint of a JSON text.

    White space and the order of keys do not count, and 100 is the same as 100.0. Raise ValueError
    if the text is not JSON.
    """
    try:
        value = _from_json(body)
        text = _to_json(_shortened(value) if _LONG_INTEGER.search(body) else value)
        return f"{VERSION}:{sha256(b'json' + text).hexdigest()}"
    except (ArithmeticError, RecursionError) as error:
        msg = f"the JSON text is too much to read: {error}"
        raise ValueError(msg) from None


def differ(one: str | None, other: str | None) -> bool:
    """Return whether both are known, are of the same version, and are not equal."""
    if one is None or other is None or one == other:
        return False
    return one.partition(":")[0] == other.partition(":")[0]


class _UnknownTypeError(Exception):
    """The value has no canonical form."""


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it contains itself or is nested too deeply"
    return str(error)


def _digest(form: object) -> str:
    return f"{VERSION}:{sha256(_encode(form)).hexdigest()}"


def _decimal(value: Decimal) -> str:
    """Return digits and exponent, without trailing zeros. `Decimal.normalize` would round."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short:
        return "0"
    return f"{'-' if sign else ''}{short}e{exponent + len(text) - len(short)}"


def _one_form(number: str | int) -> int | Decimal:
    """Return a number of JSON in the form that all equal numbers share: an integer if it is short.

    No digits are lost or added: 1e999999999 stays as short as it is.
    """
    sign, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - JSON has no NaN and no infinity
    kept = len(digits)
    while kept > 1 and digits[kept - 1] == 0:
        kept -= 1
    exponent += len(digits) - kept
    shortest = Decimal((sign, digits[:kept], exponent))
    if exponent >= 0 and kept + exponent <= _LONGEST_INTEGER:
        whole = int(shortest)
        return whole if whole in _MSGPACK_INTEGERS else shortest
    return shortest or 0


def _shortened(value: Any) -> Any:
    """Return the same value, with long integers in the form of `_one_form`."""
    if isinstance(value, dict):
        return {name: _shortened(one) for name, one in value.items()}
    if isinstance(value, list):
        return list(map(_shortened, value))
    return _one_form(value) if type(value) is int else value


_from_json = msgspec.json.Decoder(float_hook=_one_form).decode


def _number(value: int | Decimal) -> object:
    if type(value) is int:
        return value if value in _MSGPACK_INTEGERS else ["int", str(value)]
    return ["dec", _decimal(Decimal(value))]


def _canonical(value: Any) -> object:  # noqa: C901, PLR0911 - one line per kind of value reads best in one place
    """Return the value as lists of scalars. Each list begins with a tag."""
    kind: Any = type(value)
    if isinstance(value, (int, Decimal)) and kind in (int, Decimal):
        return _number(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, Mapping):
        pairs = [(_canonical(k), _canonical(v)) for k, v in value.items()]
        return ["map", sorted(_encode(pair) for pair in pairs)]
    if isinstance(value, (list, tuple)):
        return [_tag(kind), [_canonical(item) for item in value]]
    if isinstance(value, (set, frozenset)):
        return ["set", sorted(_encode(_canonical(item)) for item in value)]
    if isinstance(value, Enum):
        return [_tag(kind), value.name or _canonical(value.value)]  # a Flag may have no name
    if isinstance(value, (datetime, date, time)):
        return [_tag(kind), value.isoformat()]
    if isinstance(value, timedelta):
        return ["timedelta", value.days, value.seconds, value.microseconds]
    if isinstance(value, UUID):
        return [_tag(kind), str(value)]
    if isinstance(value, PurePath):  # no tag: the module of Path differs between versions of Python
        return ["path", str(value)]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, int, float, bytes)):  # a subclass: the tag distinguishes it
        plain: Any = next(base for base in (str, int, float, bytes) if isinstance(value, base))
        return [_tag(kind), _canonical(plain(value))]
    form = [[name, _canonical(getattr(value, name))] for name in _fields(kind)]
    extra = getattr(value, "__pydantic_extra__", None)
    return [_tag(kind), form, _canonical(extra)] if extra else [_tag(kind), form]


@cache
def _tag(kind: type[Any]) -> str:
    return (
        kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    )


@cache
def _fields(kind: type[Any]) -> Sequence[str]:
    """Return the fields of a dataclass, a Struct, an attrs class or a pydantic model.

    Raise _UnknownTypeError for any other type.
    """
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.compare]
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return [attribute.name for attribute in attributes if attribute.eq]
    model_fields = getattr(kind, "__pydantic_fields__", None)
    if model_fields is not None:
        return list(model_fields)
    msg = f"{kind.__module__}.{kind.__qualname__} has no canonical form"
    raise _UnknownTypeError(msg)
