"""Print keys, parse typed keys, and find the record that a typed key names.

A key is written as `scope/key`, or alone if there is no scope.
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
    """Return the record's scope and key, or with `redact` the hash that logs have.

    Slashes inside of them are written as `%2F`, percent signs as `%25`.
    """
    stored = stored_key(record.scope, record.key)
    return hashed(stored) if redact else printable(stored)


def parse_key(typed: str, scope: str | None) -> ScopeAndKey:
    """Return the scope and the key that were typed.

    If `scope` is given, take the key as it is. Raise `CommandError` if the text is no scope/key.
    """
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
    """Return the record that was named. Raise `CommandError` if there is none.

    Read the record of a newer release as far as possible.
    """
    where = place(*parse_key(typed, scope))
    record = find_record(once.store, *where)
    if record is None:
        msg = f"there is no record of {stored_key(*where)!r}; `oncekey ls` lists what there is"
        raise CommandError(msg, NOTHING)
    return record
