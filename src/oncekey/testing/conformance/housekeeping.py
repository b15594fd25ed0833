"""Tests of reading, listing, forgetting and purging records."""
# ruff: noqa: D102, S101 - a test's name says what it proves, its asserts prove it

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from oncekey.core.machine import DAY, HOUR
from oncekey.core.record import Record
from oncekey.core.requests import Granted, Page, Scan
from oncekey.stores.activity import RINGS, Activity, Ring
from oncekey.testing.conformance.base import DONE, LOST, Desk, Line, Suite, Tick, has_method
from oncekey.testing.conformance.table import reach

MANY = 1000


def places(page: Page) -> list[tuple[str | None, str]]:
    """Return the scope and key of each record of a page."""
    return [(record.scope, record.key) for record in page.records]


def _sums(found: Activity, ring: Ring) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(slot.counts for slot in found.series(ring)), strict=True)))


class Housekeeping(Suite):
    """Get, scan, forget and purge."""

    def test_what_nobody_claimed_is_not_there(self, line: Line) -> None:
        assert line.get(None, "nothing") is None
        assert line.scan(Scan()) == Page([], None)
        assert line.purge(0, MANY) == 0

    def test_reading_changes_nothing(self, desk: Desk, tick: Tick) -> None:
        owner = desk.grant("a")
        tick(desk.lease)
        assert desk.get() == desk.get() == owner
        assert desk.store.scan(Scan()).records == [owner]

    def test_no_scope_and_each_scope_are_apart(self, desk: Desk) -> None:
        desks = [desk, desk.at(desk.key, "one"), desk.at(desk.key, "two")]
        records = [one.grant("a") for one in desks]
        assert [record.scope for record in records] == [None, "one", "two"]
        desks[1].settle(records[1])
        assert [one.status() for one in desks] == ["running", "completed", "running"]
        desks[2].forget(records[2], force=True)
        assert [one.status() for one in desks] == ["running", "completed", "none"]

    # Scan

    def _fill(self, desk: Desk) -> list[Record]:
        """Make seven records and return them in the order of a scan."""
        spots = [(None, "a"), (None, "b"), ("s", "a"), ("s", "c"), ("t", "a"), ("t", "b")]
        for scope, key in reversed(spots):
            reach(desk.at(key, scope), "completed" if key == "a" else "running")
        reach(desk.at("z", "t"), "held")
        return [desk.at(key, scope).read() for scope, key in [*spots, ("t", "z")]]

    def test_a_scan_tells_all_living_records_in_order(self, desk: Desk) -> None:
        records = self._fill(desk)
        assert desk.store.scan(Scan()) == Page(records, None)

    @pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
    def test_pages_follow_each_other_without_gap_or_overlap(self, limit: int, desk: Desk) -> None:
        records = self._fill(desk)
        found: list[Record] = []
        after: tuple[str, str] | None = None
        for _ in range(-(-len(records) // limit)):
            page = desk.store.scan(Scan(after=after, limit=limit))
            assert 0 < len(page.records) <= limit
            found += page.records
            after = page.after
        assert (found, after) == (records, None)

    def test_a_page_goes_on_where_the_last_one_ended_whatever_happened_since(
        self, desk: Desk
    ) -> None:
        records = self._fill(desk)
        page = desk.store.scan(Scan(limit=3))
        assert page.records == records[:3]
        desk.at("a", "s").forget(records[2])
        desk.at("aa", "s").grant("a")
        desk.at("0").grant("a")
        rest = desk.store.scan(Scan(after=page.after))
        assert places(rest) == [("s", "aa"), ("s", "c"), ("t", "a"), ("t", "b"), ("t", "z")]

    @pytest.mark.parametrize("scope", [None, "s", "t", "nowhere"])
    def test_a_scan_of_one_scope(self, scope: str | None, desk: Desk) -> None:
        records = [record for record in self._fill(desk) if record.scope == scope]
        ask = Scan(scope=scope, any_scope=False)
        assert desk.store.scan(ask) == Page(records, None)
        page = desk.store.scan(replace(ask, limit=1))
        assert page.records == records[:1]
        if page.after is not None:
            page = desk.store.scan(replace(ask, limit=MANY, after=page.after))
        assert page == Page(records[1:] or records, None)

    @pytest.mark.parametrize("status", ["running", "completed", "failed", "held"])
    def test_a_scan_of_one_status(self, status: str, desk: Desk) -> None:
        everything = self._fill(desk)
        records = [record for record in everything if record.status == status]
        assert desk.store.scan(Scan(status=status)) == Page(records, None)  # type: ignore[arg-type]  # pytest gives text
        both = [record for record in records if record.scope == "t"]
        ask = Scan(status=status, scope="t", any_scope=False)  # type: ignore[arg-type]  # pytest gives text
        assert desk.store.scan(ask) == Page(both, None)

    def test_a_scan_leaves_out_what_expired(self, desk: Desk, tick: Tick) -> None:
        reach(desk.at("settled"), "completed")
        reach(desk.at("running"), "running")
        tick(desk.ttl)
        assert places(desk.store.scan(Scan())) == [(None, "running")]
        assert places(desk.store.scan(Scan(limit=1))) == [(None, "running")]

    # Forget

    @pytest.mark.parametrize("status", ["running", "held"])
    def test_what_may_still_happen_is_forgotten_only_by_force(
        self, status: str, desk: Desk
    ) -> None:
        owner = reach(desk, status)
        before = desk.get()
        assert desk.forget(owner) is LOST
        assert desk.get() == before
        assert desk.forget(owner, force=True) is DONE
        assert desk.get() is None

    @pytest.mark.parametrize("status", ["running", "completed", "failed", "released", "held"])
    @pytest.mark.parametrize("by", [-1, 1])
    def test_forget_counts_only_for_the_record_as_it_was_read(
        self, by: int, status: str, desk: Desk
    ) -> None:
        owner = reach(desk, status)
        before = desk.get()
        assert desk.forget(replace(owner, token=owner.token + by), force=True) is LOST
        assert desk.get() == before

    def test_what_was_forgotten_starts_afresh(self, desk: Desk, tick: Tick) -> None:
        owner = desk.grant("a")
        desk.note(owner, b"noted", 1)
        desk.settle(owner)
        assert desk.forget(owner) is DONE
        assert desk.forget(owner) is DONE
        assert desk.store.scan(Scan()) == Page([], None)
        tick(1)
        fresh = desk.grant("a", fingerprint=None)
        assert (fresh.attempt, fresh.noted, fresh.revision, fresh.result) == (1, b"", 0, None)

    def test_a_late_copy_of_a_forget_leaves_the_next_record_alone(
        self, desk: Desk, tick: Tick
    ) -> None:
        owner = reach(desk, "completed")
        desk.forget(owner)
        tick(1)
        second = desk.grant("b")
        assert desk.forget(owner, force=True) is LOST
        assert desk.get() == second

    def test_what_expired_is_forgotten_already(self, desk: Desk, tick: Tick) -> None:
        owner = reach(desk, "completed")
        tick(desk.ttl)
        assert desk.forget(replace(owner, token=1)) is DONE
        assert isinstance(desk.claim("b"), Granted)

    # Restoring, where the store can

    @pytest.mark.parametrize("status", ["running", "completed", "failed", "released", "held"])
    def test_a_record_that_was_removed_is_restored_as_it_was(self, status: str, desk: Desk) -> None:
        if not has_method(desk.store, "restore"):
            return
        store: Any = desk.store
        reach(desk, status)
        record = desk.read()
        assert store.restore(record) is False  # there is one
        assert desk.forget(record, force=True) is DONE
        assert store.restore(record) is True
        assert desk.read() == record
        assert store.restore(replace(record, token=record.token + 1)) is False
        assert desk.read() == record

    def test_what_has_expired_is_not_restored(self, desk: Desk, tick: Tick) -> None:
        if not has_method(desk.store, "restore") or not self.purges:
            return
        store: Any = desk.store
        reach(desk, "completed")
        record = desk.read()
        desk.forget(record)
        tick(desk.ttl)
        assert store.restore(record) is False
        assert desk.get() is None

    # The audit trail, where the store keeps one

    def test_what_is_done_by_hand_is_written_down_once(self, desk: Desk) -> None:
        if not has_method(desk.store, "audited"):
            return
        store: Any = desk.store
        assert store.audited(5) == []
        held = reach(desk, "held")
        assert desk.resolve(held, audit=b'{"first":1}') is DONE
        assert desk.resolve(held, audit=b'{"first":1}') is LOST  # sent again
        assert desk.resolve(held) is LOST
        resolved = desk.read()
        assert desk.forget(replace(resolved, token=1), audit=b"{}") is LOST
        assert desk.forget(resolved, audit=b'{"second":2}') is DONE
        assert desk.forget(resolved, audit=b'{"second":2}') is DONE  # it is gone already
        store.audit(b'{"third":3}')
        found = store.audited(5)
        assert [entry for _, entry in found] == [b'{"third":3}', b'{"second":2}', b'{"first":1}']
        assert found[1][0] >= found[2][0]
        if self.purges:  # a cluster writes it down in a step of its own, with a time of its own
            assert found[2][0] == resolved.updated
        assert [entry for _, entry in store.audited(1)] == [b'{"third":3}']

    def test_who_resolved_it_stays_in_the_record_while_it_lives(
        self, desk: Desk, tick: Tick
    ) -> None:
        if not has_method(desk.store, "audited"):
            return
        held = reach(desk, "held")
        assert held.hand == b""
        assert desk.resolve(held, status="released", audit=b'{"why":1}') is DONE
        released = desk.read()
        kept = released.updated.to_bytes(8) + b'{"why":1}'
        assert released.hand == kept
        second = desk.grant("b", reference="another", label="other")
        assert desk.read() == second
        assert (second.hand, second.reference) == (kept, "another")
        desk.note(second, b"noted", 1)
        desk.release(second)
        third = desk.grant("c")
        assert (third.hand, third.reference, third.noted) == (kept, "another", b"noted")
        desk.settle(third)
        assert (desk.read().hand, desk.read().status) == (kept, "completed")
        tick(desk.ttl)
        if self.purges:
            assert desk.grant("d").hand == b""

    def test_what_nobody_did_by_hand_is_not_written_down(self, desk: Desk) -> None:
        if not has_method(desk.store, "audited"):
            return
        held = reach(desk, "held")
        desk.resolve(held)
        assert desk.read().hand == b""
        desk.forget(desk.read())
        store: Any = desk.store
        assert store.audited(5) == []

    # Counts for charts, where the store keeps them

    def test_counts_are_added_up_in_slots(self, desk: Desk) -> None:
        if not has_method(desk.store, "add_activity"):
            return
        store: Any = desk.store
        assert store.activity().slots == []
        store.add_activity((3, 2, 0, 1), 0)
        store.add_activity((1, 0, 4, 0), 0)
        store.add_activity((9, 0, 0, 0), 2 * HOUR)  # of a process that could not reach the store
        store.add_activity((7, 0, 0, 0), 400 * DAY)  # nobody looks back so far
        found = store.activity()
        minutes, parts, hours = (_sums(found, ring) for ring in RINGS)
        assert minutes == (4, 2, 4, 1)
        assert parts == hours == (13, 2, 4, 1)
        assert all(slot.at % slot.width == 0 for slot in found.slots)
        assert desk.get() is None  # they are no records
        assert store.scan(Scan()).records == []

    def test_counts_take_no_more_room_than_one_round(self, desk: Desk) -> None:
        if not has_method(desk.store, "add_activity"):
            return
        store: Any = desk.store
        ring = RINGS[0]
        for number in range(ring.length + 5):
            store.add_activity((1, 0, 0, 0), number * ring.width)
        found = store.activity()
        slots = [slot for slot in found.slots if slot.width == ring.width]
        assert ring.length - 1 <= len(slots) <= ring.length
        assert min(slot.at for slot in slots) > found.now - ring.span
        assert {slot.counts for slot in slots} <= {(1, 0, 0, 0), (2, 0, 0, 0)}  # a minute passed

    def test_a_slot_begins_anew_with_every_round(self, desk: Desk, tick: Tick) -> None:
        if not has_method(desk.store, "add_activity") or not self.purges:
            return  # a server that removes what has expired by itself has a clock of its own
        store: Any = desk.store
        store.add_activity((5, 5, 5, 5), 0)
        tick(RINGS[0].span)
        assert _sums(store.activity(), RINGS[0]) == (0, 0, 0, 0)
        store.add_activity((1, 0, 2, 0), 0)
        assert _sums(store.activity(), RINGS[0]) == (1, 0, 2, 0)
        assert _sums(store.activity(), RINGS[2]) == (6, 5, 7, 5)

    # Purge

    def _purged(self, count: int) -> int:
        return count if self.purges else 0

    def test_purge_removes_what_expired_and_nothing_else(self, desk: Desk, tick: Tick) -> None:
        for status in ("completed", "failed", "running", "released", "held"):
            reach(desk.at(status), status)
        tick(self.almost(desk.ttl))
        assert desk.store.purge(0, MANY) == 0
        tick(self.rest)
        assert desk.store.purge(0, MANY) == self._purged(2)
        assert desk.store.purge(0, MANY) == 0
        left = [key for _, key in places(desk.store.scan(Scan()))]
        assert left == ["held", "released", "running"]

    def test_purge_leaves_the_grace_period_alone(self, desk: Desk, tick: Tick) -> None:
        grace = desk.lease
        reach(desk, "completed")
        tick(desk.ttl + self.almost(grace))
        assert desk.store.purge(grace, MANY) == 0
        tick(self.rest)
        assert desk.store.purge(grace, MANY) == self._purged(1)

    def test_purge_removes_at_most_as_many_as_it_is_told(self, desk: Desk, tick: Tick) -> None:
        for number in range(5):
            reach(desk.at(f"key-{number}"), "completed")
        reach(desk.at("running"), "running")
        tick(desk.ttl)
        counts = [desk.store.purge(0, 2) for _ in range(4)]
        assert counts == [self._purged(count) for count in (2, 2, 1, 0)]
        assert places(desk.store.scan(Scan())) == [(None, "running")]

    def test_purge_goes_by_the_expiry_that_counts_now(self, desk: Desk, tick: Tick) -> None:
        reach(desk, "completed")
        tick(desk.ttl)
        second = desk.grant("b")
        assert desk.store.purge(0, MANY) == 0
        assert desk.get() == second
        desk.settle(second)
        tick(desk.ttl)
        assert desk.store.purge(0, MANY) == self._purged(1)
