"""Finding the record that was named."""

from __future__ import annotations

from oncekey import Once, Record
from oncekey.cli.exits import NOTHING, CommandError
from oncekey.cli.names import name_of, place_typed
from oncekey.core.key import stored_key
from oncekey.inspection.listing import find_record
from oncekey.records import place


def found(once: Once, typed: str, scope: str | None) -> Record:
    """The record, or the command ends. One of a newer release is read as far as it can be."""
    where = place(*place_typed(typed, scope))
    record = find_record(once.store, *where)
    if record is None:
        msg = f"there is no record of {stored_key(*where)!r}; `oncekey ls` lists what there is"
        raise CommandError(msg, NOTHING)
    return record


def named(record: Record) -> str:
    """The record in a sentence."""
    return repr(name_of(record))
