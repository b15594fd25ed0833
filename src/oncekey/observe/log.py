"""Events as log records of the logger `oncekey`, with the key and the task in their fields."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from oncekey.observe import Event, Name

_LINES: Final[dict[Name, tuple[int, str]]] = {
    "new": (logging.DEBUG, "task claimed"),
    "taken_over": (logging.WARNING, "task taken over after an uncertain end"),
    "duplicate": (logging.DEBUG, "duplicate task skipped"),
    "busy": (logging.DEBUG, "duplicate task refused, the first is in progress"),
    "reused": (logging.WARNING, "key reused with other arguments, refused"),
    "held": (logging.WARNING, "outcome unknown, task held until it is resolved"),
    "refused": (logging.ERROR, "idempotency check failed, not processing"),
    "unprotected": (logging.WARNING, "idempotency check failed, processing anyway"),
    "completed": (logging.DEBUG, "task completed"),
    "failed": (logging.DEBUG, "task failed, failure kept"),
    "released": (logging.DEBUG, "task failed, key released"),
    "lost": (logging.WARNING, "lease lost, another attempt owns the key"),
    "not_kept": (logging.WARNING, "task completed, result not kept"),
    "not_recorded": (logging.ERROR, "task completed, but not recorded yet"),
    "renewal_failed": (logging.WARNING, "lease not renewed, trying again"),
    "purged": (logging.DEBUG, "expired records purged"),
}


class LogObserver:
    """Writes each event to a logger.

    `redact` turns a key into what may stand in a log, where keys hold personal data.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        """Without a logger the one named `oncekey` is used."""
        self._log = logger or logging.getLogger("oncekey")
        self._redact = redact

    def wants(self, name: Name) -> bool:
        """Whether the logger writes events of this name."""
        return self._log.isEnabledFor(_LINES[name][0])

    def __call__(self, event: Event, /) -> None:
        """Write the event, if its level is wanted."""
        level, words = _LINES[event.name]
        if not self._log.isEnabledFor(level):
            return
        key = self._redact(event.key) if self._redact and event.key else event.key
        extra = {
            "idempotency_key": key,
            "task_type": event.label,
            "idempotency_scope": event.scope,
            "attempt": event.attempt,
        }
        detail = f": {event.detail}" if event.detail else ""
        if event.key:
            self._log.log(level, "%s [%s]%s", words, key, detail, extra=extra)
        else:
            self._log.log(level, "%s (%d)%s", words, event.count, detail, extra=extra)
