"""Write events to structlog. Needs the extra `oncekey[structlog]`."""

from __future__ import annotations

import logging
from typing import Any

from oncekey.extras import needing
from oncekey.observe import Event
from oncekey.observe.log import line
from oncekey.observe.redaction import Redact, Redaction

with needing("structlog", __name__):
    import structlog


class StructlogObserver:
    """Write each event to a logger of structlog, with the texts of `LogObserver`.

    Keys that clients chose are written as short hashes, others as they are, unless `redact` says
    otherwise.
    """

    def __init__(self, logger: Any = None, *, redact: Redact = None) -> None:
        """Use the logger `oncekey` if none is given, as structlog is configured when it writes."""
        self._log = logger if logger is not None else structlog.get_logger("oncekey")
        self._redaction = Redaction(redact)

    def __call__(self, event: Event, /) -> None:
        """Write the event. Leave out empty fields."""
        level, words = line(event)
        told = self._redaction.told(event)
        facts = {
            "idempotency_key": told.key,
            "task_type": event.label,
            "idempotency_scope": told.scope,
            "idempotency_record": told.name,
            "surface": event.surface if event.key else "",
            "attempt": event.attempt,
            "seconds": event.seconds,
            "size": event.size,
            "detail": told.detail,
            "reason": event.reason,
            "count": event.count if event.name == "purged" else 0,
        }
        write = getattr(self._log, logging.getLevelName(level).lower())
        write(words, **{name: fact for name, fact in facts.items() if fact})
