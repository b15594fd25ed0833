"""What people do to a record by hand: say how it ended, or forget it."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

from oncekey.core.record import Record

How = Literal["result", "error", "retry"]
ENDINGS: Final[tuple[How, ...]] = get_args(How)
"""It was done, it failed for good, or it was not done and may run again."""


class ResolvedByHandError(Exception):
    """The failure that a person named; a duplicate hears its words."""


def ending(how: How, words: str = "") -> dict[str, Any]:
    """Return how a held record ended, as `Once.resolve` takes it.

    `words` are the result as JSON, or what went wrong. Raises `msgspec.DecodeError` where a result
    is not JSON.
    """
    if how == "retry":
        return {"retry": True}
    if how == "error":
        return {"error": ResolvedByHandError(words)}
    return {"result": msgspec.json.decode(words)}


def needs_force(record: Record) -> bool:
    """Return whether forgetting the record may lose an attempt, or what nobody knows the end of."""
    return record.status in ("running", "held")


def state_of(record: Record) -> str:
    """Return what is compared before an action: that the record is still as it was looked at."""
    return f"{record.token}.{record.status}"
