"""Actions that a person takes on a record: resolve it or forget it."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

from oncekey.core.record import Record

How = Literal["result", "error", "retry"]
ENDINGS: Final[tuple[How, ...]] = get_args(How)
"""The ways to resolve a record: it was done, it failed for good, or it may run again."""


class ResolvedByHandError(Exception):
    """The failure that a person gave with `resolve`. Duplicates get its message."""


def ending(how: How, words: str = "") -> dict[str, Any]:
    """Return the keyword arguments for `Once.resolve` that end a held record this way.

    `words` is the result as JSON, or the text of the failure. Raise `msgspec.DecodeError` if a
    result is not JSON.
    """
    if how == "retry":
        return {"retry": True}
    if how == "error":
        return {"error": ResolvedByHandError(words)}
    return {"result": msgspec.json.decode(words)}


def needs_force(record: Record) -> bool:
    """Return whether the record is running or held, so that forgetting it needs `force`.

    A running record loses its attempt, and a held one has an outcome that is not known.
    """
    return record.status in ("running", "held")


def state_of(record: Record) -> str:
    """Return a text that changes with the record. Compare it before acting on the record."""
    return f"{record.token}.{record.status}"
