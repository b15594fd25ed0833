"""The store of the simulated world: the machine on a dict, with a memory that can fail.

It decides on arrival, in one step and by its own clock. A replica follows it at a distance: a
fail-over takes back whatever was written last. Records may be evicted. Effects that share the
store's transaction stand and fall with it.
"""

from collections.abc import Callable
from typing import Any

from oncekey.core.record import Record
from oncekey.core.requests import Request, Settle, Verdict
from oncekey.testing.reference import Place, Reference, Rule

Seen = Callable[[Record | None, Request, Any, Record | None, int], None]
Undo = tuple[int, Place, Record | None, Callable[[], None] | None]


def nothing_seen(*_: object) -> None:
    return


class SimulatedStore(Reference):
    """A store as `machine.py` wants it, and what may befall its memory."""

    def __init__(self, clock: Callable[[], int], seen: Seen = nothing_seen) -> None:
        super().__init__(clock)
        self.seen = seen
        self.watchers: dict[Place, list[Callable[[Any], None]]] = {}
        self.staged: dict[tuple[int, str], tuple[Callable[[], None], Callable[[], None]]] = {}
        """What a settle with this token and nonce does in the same transaction, and its undoing."""
        self._log: list[Undo] = []

    def _apply(self, rule: Rule[Any, Any], ask: Any) -> Any:
        place = (ask.scope or "", ask.key)
        now = self.clock()
        before = self.records.get(place)
        after, answer = rule(before, ask, now)
        self.seen(before, ask, answer, after, now)
        if after is not before:
            undo = None
            if self.staged and isinstance(ask, Settle) and answer is Verdict.DONE:
                undo = self._commit(ask)
            self._log.append((now, place, before, undo))
            self.put(place, after)
            if place in self.watchers:
                self._wake(place)
        return answer

    def _commit(self, ask: Settle) -> Callable[[], None] | None:
        staged = self.staged.pop((ask.token, ask.nonce), None)
        if staged is None or ask.status != "completed":
            return None
        staged[0]()
        return staged[1]

    def watch(self, place: Place, wake: Callable[[Any], None]) -> None:
        """Somebody is woken when the record changes."""
        self.watchers.setdefault(place, []).append(wake)

    def _wake(self, place: Place) -> None:
        for wake in self.watchers.pop(place):
            wake(True)

    # What may befall it

    def fail_over(self, lag: int) -> set[Place]:
        """The replica takes over: what was written in the last `lag` microseconds never was."""
        since, lost = self.clock() - lag, set()
        while self._log and self._log[-1][0] > since:
            _, place, before, undo = self._log.pop()
            self.put(place, before)
            if undo is not None:
                undo()
            lost.add(place)
        return lost

    def evict(self, which: int) -> Place | None:
        """One of the records that may expire is gone."""
        places = [place for place, record in self.records.items() if record.expires]
        if not places:
            return None
        place = places[which % len(places)]
        self.put(place, None)
        self._log.clear()
        return place
