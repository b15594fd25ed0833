"""A store that is the machine applied to a dict. Other stores are compared with it.

It takes no lock, so it serves one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from oncekey.core import machine
from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Note,
    Page,
    Release,
    Renew,
    Request,
    Resolve,
    Scan,
    Settle,
    Verdict,
)

R = TypeVar("R", bound=Request)
A = TypeVar("A")
Rule = Callable[[Record | None, R, int], tuple[Record | None, A]]
Place = tuple[str, str]

RULES: Final[dict[type[Request], Rule[Any, Any]]] = {
    Claim: machine.claim,
    Renew: machine.renew,
    Note: machine.note,
    Settle: machine.settle,
    Release: machine.release,
    Resolve: machine.resolve,
    Forget: machine.forget,
}
"""The rule of the machine for each request."""


class Reference:
    """Records in a dict, changed by nothing but the machine."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Start empty. `clock` returns microseconds."""
        self.clock = clock
        self.records: dict[Place, Record] = {}

    def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to one caller."""
        return self._apply(machine.claim, ask)

    def renew(self, ask: Renew, /) -> Verdict:
        """Move the end of the owner's lease."""
        return self._apply(machine.renew, ask)

    def note(self, ask: Note, /) -> Verdict:
        """Keep the owner's notes."""
        return self._apply(machine.note, ask)

    def settle(self, ask: Settle, /) -> Verdict:
        """Keep the owner's answer."""
        return self._apply(machine.settle, ask)

    def release(self, ask: Release, /) -> Verdict:
        """End the owner's claim."""
        return self._apply(machine.release, ask)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        return self._apply(machine.resolve, ask)

    def forget(self, ask: Forget, /) -> Verdict:
        """Delete the record."""
        return self._apply(machine.forget, ask)

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the living record, or None if there is none."""
        record = self.records.get((scope or "", key))
        return None if record is None or machine.expired(record, self.clock()) else record

    def scan(self, ask: Scan, /) -> Page:
        """Return some of the living records, in the order of scope and key."""
        now = self.clock()
        living = [
            place
            for place, record in sorted(self.records.items())
            if not machine.expired(record, now)
            and (ask.any_scope or record.scope == ask.scope)
            and ask.status in (None, record.status)
            and (ask.after is None or place > ask.after)
        ]
        page = living[: ask.limit]
        return Page([self.records[place] for place in page], page[-1] if living != page else None)

    def purge(self, grace: int, limit: int, /) -> int:
        """Delete at most `limit` records that expired `grace` microseconds ago. Return how many."""
        gone = self.purgeable(grace)[:limit]
        for place in gone:
            del self.records[place]
        return len(gone)

    def close(self) -> None:
        """Do nothing; the records stay."""

    def purgeable(self, grace: int) -> list[Place]:
        """Return the places of the records that a purge without limit would remove."""
        now = self.clock()
        return [p for p, record in self.records.items() if machine.purgeable(record, now, grace)]

    def put(self, place: Place, record: Record | None) -> None:
        """Store the record at this place, or remove the one there if it is None."""
        if record is None:
            self.records.pop(place, None)
        else:
            self.records[place] = record

    def _apply(self, rule: Rule[R, A], ask: R) -> A:
        place = (ask.scope or "", ask.key)
        after, answer = rule(self.records.get(place), ask, self.clock())
        self.put(place, after)
        return answer
