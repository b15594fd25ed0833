"""Decide how much of a key may be written to a log or a trace.

A key over HTTP was chosen by the client and may contain anything, so it is written as a short hash,
and so is its scope, which may identify the client. Other keys were made by the program itself, and
are written as they are, unless `redact` asks for more.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from oncekey.core.call import Surface
from oncekey.core.key import stored_key
from oncekey.errors import ConfigurationError
from oncekey.observe import Event

Redact = bool | Callable[[str], str] | None
"""True: hide every key. False: hide none. None: hide those of clients. Or a function that hides."""

FROM_OUTSIDE: Final[frozenset[Surface]] = frozenset({"http"})
_DIGITS: Final = 16


class Told(NamedTuple):
    """The parts of an event that may be written."""

    key: str
    scope: str | None
    detail: str
    name: str
    """Scope and key as one text, as pages and commands write and take it, or its hash."""


def hashed(text: str) -> str:
    """Return a short hash of the text, the same as `oncekey ls --redact` prints.

    A guess of the text can be checked against the hash. Where that matters, use a function with a
    secret instead.
    """
    return f"sha256:{sha256(text.encode()).hexdigest()[:_DIGITS]}"


class Redaction:
    """Remove from events what must not be written."""

    def __init__(self, redact: Redact) -> None:
        """Store the choice. Raise ConfigurationError if `redact` is not a valid one."""
        if redact is not None and not isinstance(redact, bool) and not callable(redact):
            msg = f"redact must be True, False, None or a function of the key, but it is {redact!r}"
            raise ConfigurationError(msg)
        self._all = redact is True or callable(redact)
        self._none = redact is False
        self._hide = redact if callable(redact) else None

    def told(self, event: Event) -> Told:
        """Return the key, the scope and the detail as they may be written."""
        hidden = self._all or (event.surface in FROM_OUTSIDE and not self._none)
        if not hidden or not event.key:
            name = stored_key(event.scope, event.key) if event.key else ""
            return Told(event.key, event.scope, event.detail, name)
        hide = self._hide or hashed
        key = hide(event.key if self._hide else stored_key(event.scope, event.key))
        scope = event.scope and hide(event.scope)
        name = f"{scope}/{key}" if scope and self._hide else key
        return Told(key, scope, event.detail.replace(event.key, key), name)
