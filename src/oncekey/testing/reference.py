"""The machine applied to a dict: the least that is a store, and what others are compared with.

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
"""Which rule answers which request."""


class Reference:
    """Records in a dict, changed by nothing but the machine."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Empty; `clock` gives microseconds."""
        self.clock = clock
        self.records: dict[Place, Record] = {}

    def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        return self._apply(machine.claim, ask)

    def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return self._apply(machine.renew, ask)

    def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return self._apply(machine.note, ask)

    def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        return self._apply(machine.settle, ask)

    def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        return self._apply(machine.release, ask)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        return self._apply(machine.resolve, ask)

    def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        return self._apply(machine.forget, ask)

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        record = self.records.get((scope or "", key))
        return None if record is None or machine.expired(record, self.clock()) else record

    def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key."""
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
        """At most `limit` records that expired `grace` microseconds ago are gone; how many."""
        gone = self.purgeable(grace)[:limit]
        for place in gone:
            del self.records[place]
        return len(gone)

    def close(self) -> None:
        """Nothing to close; the records stay."""

    def purgeable(self, grace: int) -> list[Place]:
        """Where the records are that a purge without limit would remove."""
        now = self.clock()
        return [p for p, record in self.records.items() if machine.purgeable(record, now, grace)]

    def put(self, place: Place, record: Record | None) -> None:
        """What is stored there from now on."""
        if record is None:
            self.records.pop(place, None)
        else:
            self.records[place] = record

    def _apply(self, rule: Rule[R, A], ask: R) -> A:
        place = (ask.scope or "", ask.key)
        after, answer = rule(self.records.get(place), ask, self.clock())
        self.put(place, after)
        return answer
