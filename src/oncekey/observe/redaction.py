"""What may stand in a log or a trace of a key.

A key over HTTP was chosen by whoever sent the request, and may hold anything: it is told as a
short hash, and its scope, which may hold who sent it, likewise. Other keys were made by the program
for its own records, and are told as they are, unless somebody asks for more.
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
"""True: every key. False: none. None: those that came from outside. Or how it is done."""

FROM_OUTSIDE: Final[frozenset[Surface]] = frozenset({"http"})
_DIGITS: Final = 16


class Told(NamedTuple):
    """What is told of an event."""

    key: str
    scope: str | None
    detail: str


def hashed(text: str) -> str:
    """A short name for a text, the same everywhere, and the same as `oncekey ls --redact` prints.

    Whoever guesses the text can check the guess; where that matters, pass a function with a secret.
    """
    return f"sha256:{sha256(text.encode()).hexdigest()[:_DIGITS]}"


class Redaction:
    """Takes out of events what must not be told."""

    def __init__(self, redact: Redact) -> None:
        """What the user chose."""
        if redact is not None and not isinstance(redact, bool) and not callable(redact):
            msg = f"redact must be True, False, None or a function of the key, but it is {redact!r}"
            raise ConfigurationError(msg)
        self._all = redact is True or callable(redact)
        self._none = redact is False
        self._hide = redact if callable(redact) else None

    def told(self, event: Event) -> Told:
        """The key, the scope and the reason as they may be told."""
        hidden = self._all or (event.surface in FROM_OUTSIDE and not self._none)
        if not hidden or not event.key:
            return Told(event.key, event.scope, event.detail)
        hide = self._hide or hashed
        key = hide(event.key if self._hide else stored_key(event.scope, event.key))
        scope = event.scope and hide(event.scope)
        return Told(key, scope, event.detail.replace(event.key, key))
