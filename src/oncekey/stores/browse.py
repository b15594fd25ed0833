"""Pages and counts of records: queries, answers, and functions for any store.

The functions at the end use only the verbs of a store. The stores of this package have better ones
in their own modules.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from oncekey.core.key import stored_key
from oncekey.core.record import Record, Status
from oncekey.core.requests import Scan
from oncekey.errors import ConfigurationError
from oncekey.stores.base import Store

ScopeAndKey = tuple[str | None, str]


def parse_stored_key(stored: str) -> ScopeAndKey | None:
    """Return scope and key of a text that `stored_key` made, or None for any other text."""
    scope, slash, key = stored.rpartition("/")
    if not key or (slash and not scope):
        return None
    place = unquote(scope) or None, unquote(key)
    return place if stored_key(*place) == stored else None


STATUSES: Final[tuple[Status, ...]] = get_args(Status)


class RecordQuery(Struct, kw_only=True, frozen=True):
    """Which records to list, one page at a time. Expired ones are never listed."""

    status: Status | None = None
    scope: str | None = None
    any_scope: bool = True
    label: str = ""
    """The whole label, or empty for any."""
    prefix: str = ""
    """The beginning of the key."""
    older: int = 0
    """The minimum age in microseconds, or 0 for no limit."""
    newer: int = 0
    """The maximum age in microseconds, or 0 for no limit."""
    after: str | None = None
    """Where the page starts: `RecordPage.after` of the page before, or None for the first."""
    limit: int = 100

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a field is not valid."""
        if self.status is not None and self.status not in STATUSES:
            msg = f"a status is one of {', '.join(STATUSES)}, not {self.status!r}"
            raise ConfigurationError(msg)
        if not _whole(self.limit, 1):
            msg = f"limit must be a number of records, at least 1, but it is {self.limit!r}"
            raise ConfigurationError(msg)
        if not _whole(self.older, 0) or not _whole(self.newer, 0):
            msg = "older and newer are ages in whole microseconds; 0 stands for no limit"
            raise ConfigurationError(msg)


class RecordPage(Struct, kw_only=True):
    """A page of records, without their results, which may be large.

    A page may have fewer records than the limit, or even none, although others follow, because each
    page examines a limited number of records. Only `after` tells whether it was the last.
    """

    records: list[Record]
    sizes: list[int | None]
    """The size of each result in bytes, or None where none was kept."""
    after: str | None
    """The cursor of the next page, or None at the end."""
    newest_first: bool
    now: int
    """The time of the store, in microseconds."""


class RecordCounts(Struct, kw_only=True):
    """The number of records, or an estimate where counting would take long."""

    total: int
    by_status: dict[str, int]
    """Counts of all statuses in their usual order, then those that only newer releases know."""
    lapsed: int
    """How many of the running ones have a lease that is over."""
    exact: bool
    """Whether all numbers were counted."""
    held_exact: bool
    """Whether the held ones were counted, also if the others were not."""
    at_least: bool = False
    """Whether only the first records were counted, so that there are more than the numbers say."""
    held_since: int | None = None
    """Since when the oldest one is held; None if none is, or if it is not known."""
    looked_at: int
    """The number of records from which the numbers were computed."""
    now: int

    def counted(self, status: str) -> bool:
        """Return whether the number of this status was counted. If not, it is an estimate."""
        return self.exact or (status == "held" and self.held_exact)


class StoreSize(Struct, kw_only=True):
    """How much the records take, and how many came in the last day."""

    bytes: int
    exact: bool
    """Whether the bytes were read from the store. If not, they are estimated from a sample."""
    new: int | None
    """Living records that were created in the last day; None if it is not known."""


def wanted(record: Record, ask: RecordQuery, now: int) -> bool:
    """Return whether the record matches the query."""
    if ask.status is not None and record.status != ask.status:
        return False
    if not ask.any_scope and record.scope != ask.scope:
        return False
    if ask.label and record.label != ask.label:
        return False
    if not record.key.startswith(ask.prefix):
        return False
    return in_age(record.created, ask, now)


def in_age(created: int, ask: RecordQuery, now: int) -> bool:
    """Return whether something created at this time has the age of the query."""
    age = now - created
    return (not ask.older or age >= ask.older) and (not ask.newer or age <= ask.newer)


def lapsed(record: Record, now: int) -> bool:
    """Return whether the record is running although its lease is over."""
    return record.status == "running" and record.lease_end <= now


def per_status(statuses: Mapping[str, float], share: float = 1.0) -> dict[str, int]:
    """Return counts for every status, multiplied by `share` if `statuses` is only a sample."""
    seen = {status: statuses.get(status, 0) for status in STATUSES} | dict(statuses)
    return {status: round(count * share) for status, count in seen.items()}


def at_least(estimate: dict[str, int], seen: dict[str, int]) -> dict[str, int]:
    """Return the estimate, raised to the number of records that were really seen."""
    names = [*estimate, *(status for status in seen if status not in estimate)]
    return {name: max(estimate.get(name, 0), seen.get(name, 0)) for name in names}


def whole_number(text: str, limit: int = 2**63) -> int:
    """Return a number of a cursor. Raise ValueError if no store could have written it."""
    number = int(text)
    if not 0 <= number < limit:
        raise ValueError(text)
    return number


def bad_cursor(after: str | None) -> ConfigurationError:
    """Return the error for a cursor that is not from a page of this store."""
    return ConfigurationError(
        f"{after!r} is not a cursor of this store; use the one that the page before gave"
    )


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class NewestFirst(NamedTuple):
    """The cursor of a list that is ordered by age. It reveals nothing about a record."""

    created: int
    passed: int = 0
    """How many records of this same microsecond came on earlier pages."""

    def __str__(self) -> str:
        return f"{self.created}.{self.passed}"


FIRST: Final = NewestFirst(2**63 - 1)
"""The cursor before all records: none was created so late."""


def newest_first_from(after: str | None) -> NewestFirst:
    """Parse the cursor. Raise ConfigurationError if it is not valid."""
    if after is None:
        return FIRST
    created, _, passed = after.partition(".")
    try:
        return NewestFirst(whole_number(created), whole_number(passed))
    except ValueError:
        raise bad_cursor(after) from None


_STEP: Final = 1000
_MOST: Final = 10_000
"""The number of records that are counted one by one."""


def list_records(store: Store, ask: RecordQuery) -> RecordPage:
    """Return a page of records, ordered by scope and key."""
    now = time.time_ns() // 1000
    place = None if ask.after is None else parse_stored_key(ask.after)
    if ask.after is not None and place is None:
        raise bad_cursor(ask.after)
    request = Scan(scope=ask.scope, any_scope=ask.any_scope, status=ask.status, limit=ask.limit)
    request.after = None if place is None else (place[0] or "", place[1])
    page = store.scan(request)
    told = [record for record in page.records if wanted(record, ask, now)]
    after = None if page.after is None else stored_key(page.after[0] or None, page.after[1])
    return without_results(told, after, newest_first=False, now=now)


def count_records(store: Store, *, exact: bool) -> RecordCounts:
    """Count all records, or only the first 10,000 if there are more and `exact` is False."""
    now = time.time_ns() // 1000
    seen: dict[str, int] = {}
    since: list[int] = []
    request = Scan(limit=_STEP)
    total = over = 0
    while True:
        page = store.scan(request)
        for record in page.records:
            seen[record.status] = seen.get(record.status, 0) + 1
        since += [record.updated for record in page.records if record.status == "held"]
        over += sum(lapsed(record, now) for record in page.records)
        total += len(page.records)
        if page.after is None or (total >= _MOST and not exact):
            break
        request.after = page.after
    whole = page.after is None
    return RecordCounts(
        total=total,
        by_status=per_status(seen),
        lapsed=over,
        exact=whole,
        held_exact=whole,
        at_least=not whole,
        held_since=min(since, default=None) if whole else None,
        looked_at=total,
        now=now,
    )


def without_results(
    records: list[Record], after: str | None, *, newest_first: bool, now: int
) -> RecordPage:
    """Return the page without results, but with their sizes."""
    return RecordPage(
        records=[replace(one, result=None) for one in records],
        sizes=[None if one.result is None else len(one.result) for one in records],
        after=after,
        newest_first=newest_first,
        now=now,
    )


def read_newer(store: Store, scope: str | None, key: str) -> Record | None:
    """Return the record as `get` does: how other stores keep it is not known here."""
    return store.get(scope, key)


def measure(store: Store, total: int) -> StoreSize:
    """Estimate what the results take. Nothing else is known of other stores."""
    page = store.scan(Scan(limit=_STEP))
    seen = sum(
        len(one.result or b"") + len(one.error or b"") + len(one.noted) for one in page.records
    )
    return StoreSize(bytes=round(seen * total / max(len(page.records), 1)), exact=False, new=None)


def count_due(store: Store, grace: int) -> int | None:  # noqa: ARG001 - as for every store
    """Return None: no verb tells it."""
    return None


def where(store: Store) -> str:  # noqa: ARG001 - nothing is known of any store
    """Return where the store is; nothing, for one that is not known here."""
    return ""
