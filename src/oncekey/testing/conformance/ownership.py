"""Tests that only the owner writes: the attempt with the token and nonce of the record."""
# ruff: noqa: D102, S101, PLR2004 - a test's name says what it proves, its asserts prove it

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from msgspec.structs import replace

from oncekey.core.machine import DAY
from oncekey.core.record import Record
from oncekey.core.requests import Busy, Verdict
from oncekey.testing.conformance.base import DONE, ENDED, LOST, Desk, Suite, Tick
from oncekey.testing.conformance.table import reach

Write = Callable[[Desk, Record], Verdict]

WRITES: Final[dict[str, Write]] = {
    "renew": lambda desk, owner: desk.renew(owner),
    "note": lambda desk, owner: desk.note(owner, b"mine", 9),
    "settle": lambda desk, owner: desk.settle(owner, result=b"mine"),
    "fail": lambda desk, owner: desk.settle(owner, status="failed", result=None, error=b"mine"),
    "release": lambda desk, owner: desk.release(owner),
    "hold": lambda desk, owner: desk.hold(owner),
}
STATUSES: Final = ("running", "completed", "failed", "released", "held")

each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


class Ownership(Suite):
    """Writes: which attempt may write, and what is in the record afterwards."""

    @each_write
    @pytest.mark.parametrize("status", STATUSES)
    def test_the_token_alone_is_not_enough(self, status: str, write: Write, desk: Desk) -> None:
        owner = reach(desk, status)
        before = desk.get()
        assert write(desk, replace(owner, nonce="b")) is LOST
        assert desk.get() == before

    @each_write
    @pytest.mark.parametrize("status", STATUSES)
    @pytest.mark.parametrize("by", [-1, 1])
    def test_the_nonce_alone_is_not_enough(
        self, by: int, status: str, write: Write, desk: Desk
    ) -> None:
        owner = reach(desk, status)
        before = desk.get()
        assert write(desk, replace(owner, token=owner.token + by)) is LOST
        assert desk.get() == before

    @each_write
    def test_where_there_is_no_record_nobody_owns_it(self, write: Write, desk: Desk) -> None:
        elsewhere = desk.at("elsewhere").grant("a")
        assert write(desk, elsewhere) is LOST
        assert desk.get() is None

    @each_write
    def test_an_attempt_that_was_taken_over_can_do_no_harm(
        self, write: Write, desk: Desk, tick: Tick
    ) -> None:
        first = desk.grant("a")
        tick(desk.lease)
        second = desk.grant("b")
        assert write(desk, first) is LOST
        assert desk.get() == second
        assert desk.settle(second) is DONE

    @each_write
    def test_an_attempt_that_was_forgotten_can_do_no_harm(self, write: Write, desk: Desk) -> None:
        owner = desk.grant("a")
        assert desk.forget(owner, force=True) is DONE
        assert write(desk, owner) is LOST
        assert desk.get() is None

    @each_write
    def test_the_same_nonce_granted_anew_does_not_revive_the_old_token(
        self, write: Write, desk: Desk, tick: Tick
    ) -> None:
        first = desk.grant("a")
        desk.forget(first, force=True)
        tick(1)
        second = desk.grant("a")  # a copy of the claim that came late
        assert write(desk, first) is LOST
        assert desk.get() == second

    @each_write
    def test_an_expired_record_has_no_owner(self, write: Write, desk: Desk, tick: Tick) -> None:
        owner = desk.grant("a")
        desk.settle(owner)
        tick(desk.ttl)
        assert write(desk, owner) is LOST
        assert desk.get() is None

    def test_a_write_reaches_only_its_own_scope_and_key(self, desk: Desk) -> None:
        owner = desk.grant("a")
        others = [desk.at(desk.key, "scope"), desk.at("order-2")]
        for other in others:
            assert other.settle(owner) is LOST
            assert other.get() is None
        assert desk.status() == "running"

    # Renewals

    def test_a_renewal_counts_from_the_moment_it_is_made(self, desk: Desk, tick: Tick) -> None:
        owner = desk.grant("a")
        tick(desk.lease // 2)
        assert desk.renew(owner, lease=2 * desk.lease, ttl=2 * DAY) is DONE
        renewed = desk.read()
        assert renewed.updated >= owner.updated + desk.lease // 2
        assert renewed.lease_end == renewed.updated + 2 * desk.lease
        assert renewed.expires == renewed.lease_end + 2 * DAY
        same = {"lease_end": 0, "expires": 0, "updated": 0}
        assert replace(renewed, **same) == replace(owner, **same)

    def test_a_renewed_lease_keeps_others_out(self, desk: Desk, tick: Tick) -> None:
        owner = desk.grant("a")
        tick(desk.lease // 2)
        desk.renew(owner)
        tick(self.almost(desk.lease))
        assert isinstance(desk.claim("b"), Busy)
        tick(self.rest)
        assert desk.grant("b").attempt == 2

    def test_a_late_renewal_holds_while_nobody_came(self, desk: Desk, tick: Tick) -> None:
        owner = desk.grant("a")
        tick(2 * desk.lease)
        assert desk.renew(owner) is DONE
        assert isinstance(desk.claim("b"), Busy)
        assert desk.read().token == owner.token

    # Notes

    def test_notes_are_kept(self, desk: Desk) -> None:
        owner = desk.grant("a")
        assert desk.note(owner, b"one", 1) is DONE
        assert desk.note(owner, b"two", 2) is DONE
        noted = desk.read()
        assert (noted.noted, noted.revision) == (b"two", 2)
        same = {"noted": b"", "revision": 0, "updated": 0}
        assert replace(noted, **same) == replace(owner, **same)

    def test_older_notes_do_not_undo_newer_ones(self, desk: Desk) -> None:
        owner = desk.grant("a")
        desk.note(owner, b"two", 2)
        newest = desk.read()
        assert desk.note(owner, b"one", 1) is DONE
        assert desk.note(owner, b"another two", 2) is DONE
        assert desk.get() == newest

    @pytest.mark.parametrize("uncertain", [False, True])
    def test_notes_are_kept_over_a_release(self, uncertain: bool, desk: Desk) -> None:  # noqa: FBT001 - pytest passes it by name
        owner = desk.grant("a")
        desk.note(owner, b"noted", 3)
        desk.release(owner, uncertain=uncertain)
        assert (desk.read().noted, desk.read().revision) == (b"noted", 3)
        second = desk.grant("b")
        assert (second.noted, second.revision) == (b"noted", 3)
        assert desk.note(second, b"late", 3) is DONE
        assert desk.read().noted == b"noted"
        assert desk.note(second, b"more", 4) is DONE
        assert desk.read().noted == b"more"

    def test_notes_are_kept_over_take_over_hold_and_resolve(self, desk: Desk, tick: Tick) -> None:
        desk.note(desk.grant("a"), b"noted", 1)
        tick(desk.lease)
        second = desk.grant("b")
        assert second.noted == b"noted"
        desk.hold(second)
        assert desk.read().noted == b"noted"
        desk.resolve(desk.read(), status="released", result=None)
        assert desk.read().noted == b"noted"
        third = desk.grant("c")
        assert third.noted == b"noted"
        desk.settle(third)
        assert desk.read().noted == b"noted"

    def test_a_held_attempt_may_still_note(self, desk: Desk) -> None:
        owner = reach(desk, "held")
        assert desk.note(owner, b"late", 1) is DONE
        assert (desk.status(), desk.read().noted) == ("held", b"late")

    @pytest.mark.parametrize("status", ["completed", "failed", "released"])
    def test_an_ended_attempt_is_told_so(self, status: str, desk: Desk) -> None:
        owner = reach(desk, status)
        before = desk.get()
        assert desk.note(owner, b"late", 1) is ENDED
        assert desk.renew(owner) is ENDED
        assert desk.get() == before
