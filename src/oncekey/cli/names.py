"""Keys as they are printed and typed: `scope/key`, or the key alone where there is no scope."""

from __future__ import annotations

from oncekey import Record
from oncekey.cli.exits import WRONG, CommandError
from oncekey.cli.text import printable
from oncekey.core.key import stored_key
from oncekey.observe.redaction import hashed
from oncekey.stores.browse import ScopeAndKey, parse_stored_key


def name_of(record: Record, *, redact: bool = False) -> str:
    """The record's scope and key, or their hash as logs tell it.

    Slashes inside of them are `%2F`, percent signs `%25`.
    """
    stored = stored_key(record.scope, record.key)
    return hashed(stored) if redact else printable(stored)


def place_typed(typed: str, scope: str | None) -> ScopeAndKey:
    """Scope and key of what was typed; where a scope was given too, the key is as it is."""
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
