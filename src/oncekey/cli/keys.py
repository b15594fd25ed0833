"""Keys as they are printed and typed, and the record that one names.

A key is written as `scope/key`, or alone where there is no scope.
"""

from __future__ import annotations

from oncekey import Once, Record
from oncekey.cli.errors import NOTHING, WRONG, CommandError
from oncekey.core.key import stored_key
from oncekey.inspection.listing import find_record
from oncekey.inspection.text import printable
from oncekey.observe.redaction import hashed
from oncekey.records import place
from oncekey.stores.browse import ScopeAndKey, parse_stored_key


def name_of(record: Record, *, redact: bool = False) -> str:
    """The record's scope and key, or their hash as logs tell it.

    Slashes inside of them are `%2F`, percent signs `%25`.
    """
    stored = stored_key(record.scope, record.key)
    return hashed(stored) if redact else printable(stored)


def parse_key(typed: str, scope: str | None) -> ScopeAndKey:
    """Return scope and key of what was typed; where a scope was given too, the key is as it is."""
    if scope is not None:
        return scope or None, typed
    place = parse_stored_key(typed)
    if place is not None or not typed:
        return place or (None, typed)
    before, slash, after = typed.partition("/")
    if slash and (not before or not after or "/" in after):
        msg = (
            f"{typed!r} is no scope/key: one slash stands between the two; write others as %2F, "
            f"as `oncekey ls` prints them, or give --scope and the key as it is"
        )
        raise CommandError(msg, WRONG)
    return (before, after) if slash else (None, typed)


def named_record(once: Once, typed: str, scope: str | None) -> Record:
    """Return the record that was named, or end the command.

    A record of a newer release is read as far as it can be.
    """
    where = place(*parse_key(typed, scope))
    record = find_record(once.store, *where)
    if record is None:
        msg = f"there is no record of {stored_key(*where)!r}; `oncekey ls` lists what there is"
        raise CommandError(msg, NOTHING)
    return record
