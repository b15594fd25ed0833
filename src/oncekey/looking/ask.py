"""What somebody asks who looks at records, and what they see. No store, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from msgspec import Struct

from oncekey.core.record import Record, Status
from oncekey.errors import ConfigurationError

STATUSES: Final[tuple[Status, ...]] = get_args(Status)


class Look(Struct, kw_only=True, frozen=True):
    """Which living records to see, one page at a time."""

    status: Status | None = None
    scope: str | None = None
    any_scope: bool = True
    label: str = ""
    """The whole label; empty for any."""
    prefix: str = ""
    """How the key starts."""
    older: int = 0
    """Created at least so many microseconds ago; 0 for no limit."""
    newer: int = 0
    """Created at most so many microseconds ago; 0 for no limit."""
    after: str | None = None
    """Where the page starts: `Sight.after` of the page before."""
    limit: int = 100

    def __post_init__(self) -> None:
        """Refused at once where it cannot mean anything."""
        if self.status is not None and self.status not in STATUSES:
            msg = f"a status is one of {', '.join(STATUSES)}, not {self.status!r}"
            raise ConfigurationError(msg)
        if not _whole(self.limit, 1):
            msg = f"limit must be a number of records, at least 1, but it is {self.limit!r}"
            raise ConfigurationError(msg)
        if not _whole(self.older, 0) or not _whole(self.newer, 0):
            msg = "older and newer are ages in whole microseconds; 0 stands for no limit"
            raise ConfigurationError(msg)


class Sight(Struct, kw_only=True):
    """A page of records. Their results stay in the store, whatever their size.

    A page may have fewer records than the limit, even none, and yet be followed by others:
    how much one page looks at is bounded. Only `after` tells whether it was the last.
    """

    records: list[Record]
    sizes: list[int | None]
    """How many bytes of result each of the records keeps; None: none was kept."""
    after: str | None
    """What to ask for the next page with; None at the end."""
    newest_first: bool
    now: int
    """The time of the store, in microseconds."""


class Counts(Struct, kw_only=True):
    """How many living records there are; an estimate where counting them would take long."""

    total: int
    by_status: dict[str, int]
    """Every status, in the order of a life; those of newer releases follow."""
    exact: bool
    looked_at: int
    """How many records the numbers come from."""
    now: int


def wanted(record: Record, ask: Look, now: int) -> bool:
    """Whether the record is one of those that were asked for."""
    if ask.status is not None and record.status != ask.status:
        return False
    if not ask.any_scope and record.scope != ask.scope:
        return False
    if ask.label and record.label != ask.label:
        return False
    if not record.key.startswith(ask.prefix):
        return False
    return in_age(record.created, ask, now)


def in_age(created: int, ask: Look, now: int) -> bool:
    """Whether something that was created then is as old and as new as was asked for."""
    age = now - created
    return (not ask.older or age >= ask.older) and (not ask.newer or age <= ask.newer)


def tally(statuses: Mapping[str, float], share: float = 1.0) -> dict[str, int]:
    """How many there are of every status, where this is how many of that share were seen."""
    seen = {status: statuses.get(status, 0) for status in STATUSES} | dict(statuses)
    return {status: round(count * share) for status, count in seen.items()}


def at_least(estimate: dict[str, int], seen: dict[str, int]) -> dict[str, int]:
    """The estimate, corrected where more were seen than it says."""
    names = [*estimate, *(status for status in seen if status not in estimate)]
    return {name: max(estimate.get(name, 0), seen.get(name, 0)) for name in names}


def whole_number(text: str, limit: int = 2**63) -> int:
    """A number of a cursor; a ValueError where it is none that a store could have."""
    number = int(text)
    if not 0 <= number < limit:
        raise ValueError(text)
    return number


def bad_cursor(after: str | None) -> ConfigurationError:
    """The error for a cursor that no page of this store has handed out."""
    return ConfigurationError(f"{after!r} is no place to go on from; take what the last page said")


def _whole(value: Any, least: int) -> bool:  # noqa: ANN401 - whatever was given
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
