"""Settled records kept in this process: a duplicate of them asks no store at all.

A record comes in with its first duplicate. Most calls have none, and to keep all of them would
cost every call some of its time, and the process its memory.

Bounded in bytes, oldest out first. A record leaves after `FRESH` seconds at the latest, so that
a `forget` made elsewhere is missed no longer than that.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from time import monotonic
from typing import Final

from oncekey.compat import renew_after_fork
from oncekey.core import machine
from oncekey.core.call import Identity
from oncekey.core.record import Record
from oncekey.core.requests import Answer

FRESH: Final = 30.0
_OVERHEAD: Final = 600  # bytes of a record's own objects, near enough


class Cache:
    """The settled records that were seen last."""

    def __init__(self, size: int) -> None:
        """Empty, and never larger than `size` bytes."""
        self._size = size
        self._used = 0
        self._dropped_at = 0.0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Identity, tuple[Answer, float, int]] = OrderedDict()
        renew_after_fork(self)

    def get(self, identity: Identity) -> Answer | None:
        """What the store would answer now, as far as it can be told without asking."""
        kept = self._kept.get(identity)
        if kept is None:
            return None
        answer, taken_at, _ = kept
        age = monotonic() - taken_at
        now = answer.now + round(age * 1_000_000)
        if age >= FRESH or machine.expired(answer.record, now):
            with self._lock:
                self._remove(identity)
            return None
        return Answer(answer.record, now)

    def put(self, record: Record, now: int, since: float) -> None:
        """The record is kept if it fits, and whatever is oldest makes room for it.

        The store was asked for it `since` then: what was dropped meanwhile may have been this one.
        """
        weight = _OVERHEAD + len(record.noted) + len(record.result or record.error or b"")
        if weight > self._size:
            return
        identity = (record.scope, record.key)
        with self._lock:
            if since <= self._dropped_at:
                return
            self._remove(identity)
            self._kept[identity] = Answer(record, now), monotonic(), weight
            self._used += weight
            while self._used > self._size:
                self._remove(next(iter(self._kept)))

    def drop(self, identity: Identity) -> None:
        """The record is not kept."""
        with self._lock:
            self._dropped_at = monotonic()
            self._remove(identity)

    def after_fork(self) -> None:
        """A child starts with an empty cache."""
        self._lock = threading.Lock()
        self._kept = OrderedDict()
        self._used = 0

    def _remove(self, identity: Identity) -> None:
        kept = self._kept.pop(identity, None)
        if kept is not None:
            self._used -= kept[2]
