"""Resolve or forget many records with one decision.

All records that match are read first, so that a person can confirm how many there are. Then each
one is changed by itself, and only if it is still as it was read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from oncekey.core.record import FORMAT, Record
from oncekey.inspection.actions import needs_force, state_of
from oncekey.inspection.listing import find_record, list_records
from oncekey.once import Once
from oncekey.stores.base import Store
from oncekey.stores.browse import RecordQuery

Done = Literal["done", "changed", "refused"]
Act = Callable[[Once, Record], Done]


class BulkOutcome(Struct):
    """What came of it: how many were done, how many had changed, and how many were refused."""

    done: int = 0
    changed: int = 0
    refused: int = 0

    def count(self, came: Done) -> None:
        """Count one record."""
        setattr(self, came, getattr(self, came) + 1)


def collect(
    store: Store, ask: RecordQuery, heard: Callable[[int], None] | None = None
) -> list[Record]:
    """Return all records that match, without their results. `heard` is told how many so far."""
    found: dict[tuple[str | None, str], Record] = {}
    while True:
        page = list_records(store, ask)
        found |= {(one.scope, one.key): one for one in page.records}
        if heard is not None:
            heard(len(found))
        if page.after is None:
            return list(found.values())
        ask = replace(ask, after=page.after)


def resolving(ended: dict[str, Any], *, by: str, reason: str) -> Act:
    """Return the action that ends a held record this way; see `actions.ending`."""

    def act(once: Once, record: Record) -> Done:
        if record.status != "held" or not _same(once, record):
            return "changed"
        done = once.resolve(record.key, scope=record.scope, by=by, reason=reason, **ended)
        return "done" if done else "changed"

    return act


def forgetting(*, force: bool, by: str, reason: str) -> Act:
    """Return the action that forgets a record, a running or held one only with `force`."""

    def act(once: Once, record: Record) -> Done:
        if needs_force(record) and not force:
            return "refused"
        if not _same(once, record):
            return "changed"
        forced = force and needs_force(record)
        done = once.forget(record.key, scope=record.scope, force=forced, by=by, reason=reason)
        return "done" if done else "changed"

    return act


def apply_to_all(
    once: Once,
    records: Iterable[Record],
    act: Act,
    *,
    per_second: float = 0.0,
    heard: Callable[[BulkOutcome], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> BulkOutcome:
    """Change the records one by one, at most so many in a second if that is not 0.

    `heard` is told after each one. What it raises, and what the store raises, ends the work; what
    was done stays done, and the same call again goes on with the rest.
    """
    outcome = BulkOutcome()
    begun = time.monotonic()
    for number, record in enumerate(records):
        if per_second:
            sleep(max(0.0, begun + number / per_second - time.monotonic()))
        outcome.count(act(once, record))
        if heard is not None:
            heard(outcome)
    return outcome


def _same(once: Once, record: Record) -> bool:
    """Return whether the record is as it was read, and can be changed by this release."""
    if record.version > FORMAT:
        return False
    present = find_record(once.store, record.scope, record.key)
    return present is not None and state_of(present) == state_of(record)
