"""Finding the record that was named."""

from __future__ import annotations

from oncekey import Once, Record
from oncekey.cli.exits import NOTHING, CommandError


def found(once: Once, scope: str | None, key: str) -> Record:
    """The record, or the command ends."""
    record = once.get(key, scope=scope)
    if record is None:
        where = "without a scope" if scope is None else f"in the scope {scope!r}"
        msg = f"there is no record of {key!r} {where}; `oncekey ls` lists keys and scopes"
        raise CommandError(msg, NOTHING)
    return record


def named(record: Record) -> str:
    """The record in a sentence."""
    return repr(record.key) + ("" if record.scope is None else f" in {record.scope!r}")
