"""The audit trail: who changed a record by hand, when and why.

A store that keeps one writes the entry in the same step as the change. It outlives the record.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncekey.core.key import readable

Action = Literal["resolve", "retry", "forget", "purge", "import"]
KEPT: Final = 10_000
"""The number of entries that a store keeps, the newest ones."""
_LONGEST: Final = 1000


class AuditEntry(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One change that somebody made by hand."""

    action: Action
    by: str
    """The login of the shell, or the user of the dashboard; empty if it is not known."""
    reason: str = ""
    scope: str | None = None
    key: str = ""
    was: str = ""
    """The status of the record before, and `became` the one after; empty if there is none."""
    became: str = ""
    count: int = 1
    """The number of records: more than one only for a purge or an import."""
    at: int = 0
    """The time of the store in microseconds."""

    def encode(self) -> bytes:
        """Return the bytes that a store keeps, without the time, which the store adds."""
        short = replace(
            self, by=readable(self.by, _LONGEST), reason=readable(self.reason, _LONGEST), at=0
        )
        return msgspec.json.encode(short)


def stamped(entry: bytes, now: int) -> bytes:
    """Return the entry with its time in front, as a record keeps it."""
    return now.to_bytes(_TIME) + entry if entry else b""


def entry_of(hand: bytes) -> AuditEntry | None:
    """Return the entry that a record keeps, or None if it keeps none."""
    return decode_entry(int.from_bytes(hand[:_TIME]), hand[_TIME:]) if hand else None


_TIME: Final = 8


def decode_entry(at: int, data: bytes) -> AuditEntry:
    """Return the entry that was made at this time."""
    return replace(msgspec.json.decode(data, type=AuditEntry), at=at)
