"""Keys and scopes: their limits, the templates that make them, and the string that is stored.

A key has 1 to 255 printable ASCII characters. Values that a template fills in are percent-escaped,
so that two different sets of values never make the same key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from string import Formatter
from typing import Final
from urllib.parse import quote
from uuid import UUID

from oncekey.errors import ConfigurationError, InvalidKeyError

LONGEST: Final = 255

# Characters that are not escaped in a value: printable, and without a meaning in a key.
_SAFE = "!\"#$&'()*+,-.;<=>?@[\\]^_`|~"
_unsafe = re.compile(rf"[^A-Za-z0-9{re.escape(_SAFE)}]").search
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][\w.]*\}")
_PLAIN = (str, int, float, Decimal, UUID, bytes)

KeyFunction = Callable[..., str]


def checked_key(key: object) -> str:
    """Return the key. Raise InvalidKeyError if it is not valid."""
    if isinstance(key, str) and 0 < len(key) <= LONGEST and key.isascii() and key.isprintable():
        return key
    if not isinstance(key, str):
        msg = f"a key must be a string, but it is {type(key).__name__}; convert it first"
    elif not key:
        msg = "a key must not be empty; name the operation, for example 'charge:42'"
    elif len(key) > LONGEST:
        msg = f"a key has at most {LONGEST} characters, this one has {len(key)}; hash the long part"
    else:
        msg = _unprintable(key)
    raise InvalidKeyError(msg)


def _unprintable(key: str) -> str:
    return f"a key must be printable ASCII, but it is {key!r}; percent-encode or hash it"


def without_placeholder(key: str) -> str:
    """Return a key that was written in code. Raise InvalidKeyError if it has a placeholder.

    It is most likely an f-string without its f. It would be the same for every operation, and all
    but the first one would be taken for duplicates.
    """
    if "{" in key and _PLACEHOLDER.search(key):
        msg = (
            f"nothing fills in the placeholder of the key {key!r}; write f{key!r} (only the "
            f"decorator takes templates), or %7B for a brace that is meant"
        )
        raise InvalidKeyError(msg)
    return key


def checked_scope(scope: object) -> str | None:
    """Return the scope, or None for no scope. Raise ConfigurationError if it is not valid."""
    if scope is None:
        return None
    if not isinstance(scope, str) or not 0 < len(scope) <= LONGEST:
        msg = f"a scope must be None or a string of 1 to {LONGEST} characters, not {scope!r}"
        raise ConfigurationError(msg)
    if not (scope.isascii() and scope.isprintable()):
        msg = f"a scope must be printable ASCII, but it is {scope!r}; percent-encode it"
        raise ConfigurationError(msg)
    return scope


def function_key(key: str) -> str:
    """Return the key that a template or a function made, shortened by a digest if it is too long.

    Shortened keys have exactly 255 characters and others fewer, so they never collide.
    """
    return checked_key(key) if len(key) < LONGEST else _digested(key)


def _digested(key: str) -> str:
    if not (key.isascii() and key.isprintable()):
        raise InvalidKeyError(_unprintable(key))
    digest = sha256(key.encode()).hexdigest()
    return f"{key[: LONGEST - len(digest) - 1]}~{digest}"


def escape(value: str) -> str:
    """Percent-escape the characters that are not printable or have a meaning in a key."""
    return quote(value, safe=_SAFE) if _unsafe(value) else value


def readable(text: str, longest: int = LONGEST) -> str:
    """Return text for people, such as a label, in a form that every store can keep.

    The text may come from outside, as a path or the id of a message. Never raise, so that it cannot
    stop a call.
    """
    if text.isprintable():
        return text[:longest]
    return escape(text.encode("utf-8", "replace").decode())[:longest]


def stored_key(scope: str | None, key: str) -> str:
    """Return one string for scope and key. Different pairs give different strings."""
    plain = _without_slash(key)
    return plain if scope is None else f"{_without_slash(scope)}/{plain}"


def _without_slash(text: str) -> str:
    if "%" in text or "/" in text:  # rare
        return text.replace("%", "%25").replace("/", "%2F")
    return text


class ArgumentPath:
    """A dotted path into the arguments of a call, such as `order.id`."""

    def __init__(self, path: str, parameters: tuple[str, ...], where: str) -> None:
        """Parse the path. Raise ConfigurationError unless it starts at one of the parameters."""
        self.text = path
        self.root, *rest = path.split(".")
        self.rest = tuple(rest)
        if not all(part.isidentifier() for part in (self.root, *rest)):
            msg = f"{where} has the placeholder {{{path}}}; write an argument's name, or a.b.c"
            raise ConfigurationError(msg)
        if self.root not in parameters:
            known = ", ".join(parameters) or "none"
            msg = f"{where} uses the argument {self.root!r}, but the function has: {known}"
            raise ConfigurationError(msg)

    def of(self, arguments: Mapping[str, object]) -> object:
        """Return the value at the path. Each step is an attribute, or the key of a mapping.

        Raise InvalidKeyError if a step does not exist.
        """
        value = arguments[self.root]
        for part in self.rest:
            try:
                value = value[part] if isinstance(value, Mapping) else getattr(value, part)
            except (KeyError, AttributeError):
                msg = f"{self.text!r} leads nowhere: {type(value).__name__} has no {part!r}"
                raise InvalidKeyError(msg) from None
        return value


class Template:
    """A key with placeholders, such as `charge:{order.id}`."""

    def __init__(self, text: str, parameters: tuple[str, ...]) -> None:
        """Parse the template. Raise ConfigurationError if a placeholder names no parameter."""
        self.text = text
        self._parts: list[tuple[str, ArgumentPath | None]] = []
        where = f"the key template {text!r}"
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as error:
            msg = f"{where} cannot be read: {error}; write literal braces as {{{{ and }}}}"
            raise ConfigurationError(msg) from None
        for literal, placeholder, spec, conversion in parsed:
            if not (literal.isascii() and literal.isprintable()):
                msg = f"{where} must be printable ASCII"
                raise ConfigurationError(msg)
            if spec or conversion:
                msg = f"{where} formats {{{placeholder}}}; pass a key function for that"
                raise ConfigurationError(msg)
            path = None if placeholder is None else ArgumentPath(placeholder, parameters, where)
            self._parts.append((literal, path))
        self._also_escaped = self._separators(where)
        if not self._parts:
            msg = "a key template must not be empty; name the operation, for example 'charge:{id}'"
            raise ConfigurationError(msg)

    def _separators(self, where: str) -> str:
        """Return the characters between placeholders that must also be escaped in values.

        Each pair of neighbouring values needs a separator that no value contains. Raise
        ConfigurationError if there is nothing between two placeholders that can be one.
        """
        found, since, first = "", "", True
        for literal, path in self._parts:
            since += literal
            if path is None:
                continue
            if not first and not set(since) & _ESCAPED_ANYWAY:
                fit = [one for one in since if not one.isalnum() and one != "%"]
                if not fit:
                    msg = f"{where} runs {{{path.text}}} into the value before it; put ':' between"
                    raise ConfigurationError(msg)
                found += fit[0]
            since, first = "", False
        return found

    def fill(self, arguments: Mapping[str, object]) -> str:
        """Return the key for these arguments. Raise InvalidKeyError if a value cannot be used."""
        key = ""
        for literal, path in self._parts:
            key += literal
            if path is None:
                continue
            value = path.of(arguments) if path.rest else arguments[path.root]
            # The fast path: most keys are made of integers and of text that needs no escape.
            if type(value) is int:
                text = str(value)
            elif type(value) is str and value and not _unsafe(value):
                text = value
            else:
                text = _escaped(_as_text(value, path.text), path.text)
            for one in self._also_escaped:
                text = text.replace(one, f"%{ord(one):02X}")
            key += text
        # The parts have been checked, so the key is printable and not empty.
        return key if len(key) < LONGEST else _digested(key)


def _escaped(text: str, name: str) -> str:
    try:
        return escape(text)
    except UnicodeEncodeError:
        msg = f"the placeholder {{{name}}} holds half a character, which no store can keep"
        raise InvalidKeyError(msg) from None


_ESCAPED_ANYWAY: Final = frozenset("/: {}")
"""Separators that no escaped value contains."""


def _as_text(value: object, name: str) -> str:
    """Return text that is the same in every process for equal values."""
    if type(value) is str and value:
        return value
    if isinstance(value, Enum):
        value = value.value
    if value is None or value in ("", b""):
        msg = f"the placeholder {{{name}}} is {value!r}; a key needs a value there"
        raise InvalidKeyError(msg)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, _PLAIN) or _prints_itself(type(value)):
        return str(value)
    msg = (
        f"the placeholder {{{name}}} is a {type(value).__name__}, whose text is not the same "
        f"for equal values; use one of its fields, as in {{{name}.id}}"
    )
    raise InvalidKeyError(msg)


def _prints_itself(kind: type) -> bool:
    """Return whether the type defines its own text: no container, and with a `__str__`."""
    if issubclass(kind, (list, tuple, dict, set, frozenset)):
        return False
    return kind.__str__ is not object.__str__
