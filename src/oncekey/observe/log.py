"""Write events to the logger `oncekey`, with the key and the task as fields of the log record."""

from __future__ import annotations

import logging
from typing import Final

from oncekey.observe import Event, Name
from oncekey.observe.redaction import Redact, Redaction

LINES: Final[dict[Name, tuple[int, str]]] = {
    "new": (logging.DEBUG, "task claimed"),
    "taken_over": (logging.WARNING, "task taken over after an uncertain end"),
    "duplicate": (logging.DEBUG, "duplicate task skipped"),
    "waiting": (logging.DEBUG, "duplicate task waits for the first"),
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
    "never_recorded": (
        logging.ERROR,
        "task completed, but never recorded",
    ),
    "renewal_failed": (logging.WARNING, "lease not renewed, trying again"),
    "resolved": (logging.INFO, "outcome resolved by hand"),
    "forgotten": (logging.INFO, "record forgotten by hand"),
    "purged": (logging.DEBUG, "expired records purged"),
    "breaker_opened": (
        logging.WARNING,
        "store in trouble, nothing new is claimed until it is over",
    ),
    "breaker_closed": (logging.WARNING, "store works again"),
}
"""The level and the text of each event."""

_UNCHECKED: Final = (logging.WARNING, "processing without protection")


def line(event: Event) -> tuple[int, str]:
    """Return the level and the text for the event."""
    return _UNCHECKED if event.reason else LINES[event.name]


class LogObserver:
    """Write each event to a logger.

    Keys that clients chose are written as short hashes, others as they are, unless `redact` says
    otherwise.
    """

    def __init__(self, logger: logging.Logger | None = None, *, redact: Redact = None) -> None:
        """Use the logger named `oncekey` if none is given."""
        self._log = logger or logging.getLogger("oncekey")
        self._redaction = Redaction(redact)

    def wants(self, name: Name) -> bool:
        """Return whether the logger writes events of this name."""
        return self._log.isEnabledFor(LINES[name][0])

    def __call__(self, event: Event, /) -> None:
        """Write the event if its level is enabled."""
        level, words = line(event)
        if not self._log.isEnabledFor(level):
            return
        told = self._redaction.told(event)
        extra = {
            "idempotency_key": told.key,
            "task_type": event.label,
            "idempotency_scope": told.scope,
            "idempotency_record": told.name,
            "attempt": event.attempt,
        }
        about = f" [{told.name}]" if event.key else ""
        if event.name == "purged":
            about = f" ({event.count})"
        detail = f": {told.detail}" if told.detail else ""
        self._log.log(level, "%s%s%s", words, about, detail, extra=extra)
