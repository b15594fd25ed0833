"""What a router has done so far, in numbers."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from oncekey.events.observers import Happening

_COUNTED: Final = ("routed", "reclaimed", "trimmed", "dead", "lost")


class Tally:
    """An observer of events that counts; several threads may tell it."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def __call__(self, happening: Happening, /) -> None:
        """One more of these, or several."""
        with self._lock:
            self._counts[happening.name] += happening.count

    def fields(self) -> dict[str, Any]:
        """For programs."""
        with self._lock:
            return {"domain": self._domain, **{name: self._counts[name] for name in _COUNTED}}

    def line(self) -> str:
        """For people."""
        fields = self.fields()
        counts = ", ".join(f"{fields[name]} {name}" for name in _COUNTED)
        return f"{self._domain}: {counts}"
