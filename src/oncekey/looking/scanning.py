"""Looking at a store that we do not know, by nothing but its verbs."""

from __future__ import annotations

import time
from typing import Final

from msgspec.structs import replace

from oncekey.core.key import stored_key
from oncekey.core.record import Record
from oncekey.core.requests import Scan
from oncekey.looking.ask import Counts, Look, Sight, bad_cursor, tally, wanted
from oncekey.looking.places import place_of
from oncekey.stores.base import Store

_STEP: Final = 1000
_MOST: Final = 10_000
"""Records that one page looks at, or that are counted one by one."""


def look(store: Store, ask: Look) -> Sight:
    """A page in the order of scope and key."""
    now = time.time_ns() // 1000
    place = None if ask.after is None else place_of(ask.after)
    if ask.after is not None and place is None:
        raise bad_cursor(ask.after)
    request = Scan(scope=ask.scope, any_scope=ask.any_scope, status=ask.status, limit=ask.limit)
    request.after = None if place is None else (place[0] or "", place[1])
    page = store.scan(request)
    told = [record for record in page.records if wanted(record, ask, now)]
    after = None if page.after is None else stored_key(page.after[0] or None, page.after[1])
    return without_results(told, after, newest_first=False, now=now)


def counts(store: Store, *, exact: bool) -> Counts:
    """What the first records show; all of them where there are not many."""
    seen: dict[str, int] = {}
    request = Scan(limit=_STEP)
    total = 0
    while True:
        page = store.scan(request)
        for record in page.records:
            seen[record.status] = seen.get(record.status, 0) + 1
        total += len(page.records)
        if page.after is None or (total >= _MOST and not exact):
            break
        request.after = page.after
    return Counts(
        total=total,
        by_status=tally(seen),
        exact=page.after is None,
        looked_at=total,
        now=time.time_ns() // 1000,
    )


def without_results(
    records: list[Record], after: str | None, *, newest_first: bool, now: int
) -> Sight:
    """The page, with the sizes of results in their place."""
    return Sight(
        records=[replace(one, result=None) for one in records],
        sizes=[None if one.result is None else len(one.result) for one in records],
        after=after,
        newest_first=newest_first,
        now=now,
    )


def read_newer(store: Store, scope: str | None, key: str) -> Record | None:
    """What the store itself says about it: how such a record is kept, nobody else knows."""
    return store.get(scope, key)


def due(store: Store, grace: int) -> int | None:  # noqa: ARG001 - as for every store
    """No verb tells."""
    return None
