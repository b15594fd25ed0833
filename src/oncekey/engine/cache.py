"""The local cache: answer duplicates of settled records without asking the store.

A record is cached when its first duplicate arrives. Most calls have no duplicate, and caching
every record would cost time in every call, and memory.

The cache is bounded in bytes, and drops its oldest records first. It keeps a record for at most
`FRESH` seconds: that is the longest time for which a `forget` in another process goes unnoticed.
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
_OVERHEAD: Final = 600  # bytes that the objects of a record take, approximately


class Cache:
    """The settled records that were seen last, by scope and key."""

    def __init__(self, size: int) -> None:
        """Start empty. The cache holds at most `size` bytes."""
        self._size = size
        self._used = 0
        self._dropped_at = 0.0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Identity, tuple[Answer, float, int]] = OrderedDict()
        renew_after_fork(self)

    def get(self, identity: Identity) -> Answer | None:
        """Return the cached record with the store's present time, or None.

        The time is estimated: the time at which the store answered, plus what has passed since.
        """
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
        """Cache the record if it fits, and drop the oldest ones to make room.

        `since` is the time at which the store was asked for the record. If anything was dropped
        after that, the record is not cached, since it may be the one that was dropped.
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
        """Remove the record from the cache."""
        with self._lock:
            self._dropped_at = monotonic()
            self._remove(identity)

    def after_fork(self) -> None:
        """Start with an empty cache in a forked child."""
        self._lock = threading.Lock()
        self._kept = OrderedDict()
        self._used = 0

    def _remove(self, identity: Identity) -> None:
        kept = self._kept.pop(identity, None)
        if kept is not None:
            self._used -= kept[2]
