"""Tests of how attempts end (settled, released, held, resolved) and how long records live."""
# ruff: noqa: D102, S101 - a test's name says what it proves, its asserts prove it

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncekey.core.machine import DAY, HOUR
from oncekey.core.requests import Granted, Held, Replay, Spent
from oncekey.testing.conformance.base import DONE, ENDED, LOST, Desk, Suite, Tick
from oncekey.testing.conformance.table import reach

NEVER = 0


class Endings(Suite):
    """Settle, release and resolve, and what happens when they are repeated."""

    @pytest.mark.parametrize(
        ("status", "result", "error"),
        [("completed", b"value", None), ("failed", None, b"why"), ("completed", None, None)],
    )
    def test_a_settled_record_says_how_it_ended(
        self, status: str, result: bytes | None, error: bytes | None, desk: Desk, tick: Tick
    ) -> None:
        owner = desk.grant("a")
        tick(desk.lease // 2)
        assert desk.settle(owner, status=status, result=result, error=error) is DONE
        settled = desk.read()
        assert (settled.status, settled.result, settled.error) == (status, result, error)
        assert settled.updated == settled.finished >= owner.started + desk.lease // 2
        assert settled.expires == settled.finished + desk.ttl
        assert (settled.token, settled.nonce, settled.attempt) == (owner.token, "a", 1)
        assert (settled.created, settled.started) == (owner.created, owner.started)

    def test_a_settle_that_comes_twice_changes_nothing_the_second_time(
        self, desk: Desk, tick: Tick
    ) -> None:
        owner = reach(desk, "completed")
        settled = desk.read()
        tick(1)
        assert desk.settle(owner) is DONE
        assert desk.settle(owner, status="failed") is ENDED
        assert desk.release(owner) is ENDED
        assert desk.hold(owner) is ENDED
        assert desk.get() == settled

    def test_the_owner_may_settle_late_while_nobody_else_was_granted(
        self, desk: Desk, tick: Tick
    ) -> None:
        owner = desk.grant("a")
        tick(2 * desk.lease)
        assert desk.settle(owner) is DONE
        assert isinstance(desk.claim("b"), Replay)

    def test_the_owner_of_a_held_record_may_settle_late(self, desk: Desk, tick: Tick) -> None:
        owner = desk.grant("a")
        tick(desk.lease)
        assert isinstance(desk.claim("b", on_expired="hold"), Held)
        assert desk.settle(owner) is DONE
        settled = desk.read()
        assert (settled.status, settled.uncertain) == ("completed", False)
        assert settled.expires == settled.finished + desk.ttl

    def test_a_second_settle_clears_what_an_earlier_attempt_left(self, desk: Desk) -> None:
        desk.release(desk.grant("a"), error=b"first", uncertain=True)
        second = desk.grant("b")
        assert (second.error, second.uncertain) == (b"first", True)
        desk.settle(second)
        assert (desk.read().error, desk.read().uncertain) == (None, False)

    # Release

    def test_a_release_frees_the_key_at_once_and_keeps_its_history(self, desk: Desk) -> None:
        owner = desk.grant("a")
        assert desk.release(owner, error=b"why") is DONE
        free = desk.read()
        assert (free.status, free.error, free.uncertain) == ("released", b"why", False)
        assert free.finished == free.updated == free.lease_end
        assert (free.token, free.nonce, free.attempt) == (owner.token, "a", 1)
        second = desk.grant("b")
        assert (second.attempt, second.error, second.created) == (2, b"why", owner.created)

    def test_a_release_that_comes_twice_changes_nothing_the_second_time(
        self, desk: Desk, tick: Tick
    ) -> None:
        owner = reach(desk, "released")
        free = desk.read()
        tick(1)
        assert desk.release(owner) is DONE
        assert desk.release(owner, unused=True) is DONE
        assert desk.hold(owner) is ENDED
        assert desk.settle(owner) is ENDED
        assert desk.get() == free

    def test_a_release_without_an_error_keeps_the_last_one(self, desk: Desk) -> None:
        desk.release(desk.grant("a"), error=b"why")
        desk.release(desk.grant("b"), error=None)
        assert desk.read().error == b"why"

    def test_an_unused_claim_is_no_attempt(self, desk: Desk) -> None:
        assert desk.release(desk.grant("a"), unused=True, error=None) is DONE
        assert desk.read().attempt == 0
        assert isinstance(desk.claim("a"), Spent)
        second = desk.grant("b", max_attempts=1)
        assert second.attempt == 1
        desk.release(second)
        assert isinstance(desk.claim("c", max_attempts=1), Held)

    def test_a_held_record_waits_for_somebody_to_decide(self, desk: Desk, tick: Tick) -> None:
        owner = desk.grant("a")
        assert desk.hold(owner) is DONE
        held = desk.read()
        assert (held.status, held.uncertain, held.expires) == ("held", True, NEVER)
        assert held.finished == held.updated
        tick(2 * max(desk.lease, desk.ttl))
        assert isinstance(desk.claim("b"), Held)
        assert desk.hold(owner) is DONE
        assert desk.release(owner, uncertain=True) is ENDED
        assert desk.renew(owner) is ENDED
        assert desk.get() == held

    # The time since when it is uncertain

    def test_finished_stays_at_the_uncertain_end_until_the_record_is_certain(
        self, desk: Desk, tick: Tick
    ) -> None:
        desk.release(desk.grant("a"), uncertain=True)
        uncertain = desk.read()
        assert (uncertain.uncertain, uncertain.finished) == (True, uncertain.updated)
        tick(1)
        second = desk.grant("b")
        assert (second.uncertain, second.finished) == (True, uncertain.finished)
        tick(1)
        desk.release(second)  # a definite end says nothing about the earlier one
        third = desk.grant("c")
        assert (third.uncertain, third.finished) == (True, uncertain.finished)
        tick(1)
        desk.release(third, uncertain=True)
        assert desk.read().finished == desk.read().updated > uncertain.finished
        desk.settle(desk.grant("d"))
        assert (desk.read().uncertain, desk.read().finished) == (False, desk.read().updated)

    def test_finished_is_the_end_of_a_lease_that_ran_out(self, desk: Desk, tick: Tick) -> None:
        first = desk.grant("a")
        tick(2 * desk.lease)
        second = desk.grant("b")
        assert (second.uncertain, second.finished) == (True, first.lease_end)
        tick(1)
        desk.release(second)
        assert (desk.read().uncertain, desk.read().finished) == (True, first.lease_end)

    # Resolve

    @pytest.mark.parametrize("status", ["completed", "failed"])
    def test_a_resolved_record_answers_like_any_settled_one(self, status: str, desk: Desk) -> None:
        reach(desk, "held")
        held, ttl = desk.read(), desk.ttl + 7
        assert desk.resolve(held, status=status, result=b"said", error=b"so", ttl=ttl) is DONE
        settled = desk.read()
        assert (settled.status, settled.result, settled.error) == (status, b"said", b"so")
        assert (settled.uncertain, settled.expires) == (False, settled.finished + ttl)
        assert isinstance(desk.claim("b"), Replay)

    def test_retry_gives_all_attempts_again(self, desk: Desk, tick: Tick) -> None:
        desk.grant("a", max_attempts=1)
        tick(desk.lease)
        assert isinstance(desk.claim("b", max_attempts=1), Held)
        assert desk.resolve(desk.read(), status="released", result=None) is DONE
        free = desk.read()
        assert (free.status, free.attempt, free.uncertain) == ("released", 0, False)
        assert free.finished == free.updated
        assert isinstance(desk.claim("a", max_attempts=1), Spent)
        assert desk.grant("c", max_attempts=1).attempt == 1

    @pytest.mark.parametrize("status", ["completed", "failed", "released"])
    def test_resolve_shuts_the_old_attempt_out(self, status: str, desk: Desk) -> None:
        owner = reach(desk, "held")
        desk.resolve(desk.read(), status=status)
        resolved = desk.read()
        assert resolved.token > owner.token
        assert desk.settle(owner) is LOST
        assert desk.release(owner) is LOST
        assert desk.note(owner, b"late", 9) is LOST
        assert desk.renew(owner) is LOST
        assert desk.get() == resolved

    @pytest.mark.parametrize("status", ["running", "completed", "failed", "released", "none"])
    def test_only_a_held_record_is_resolved(self, status: str, desk: Desk) -> None:
        owner = reach(desk, status)
        before = desk.get()
        assert desk.resolve(owner) is LOST
        assert desk.get() == before

    def test_a_decision_counts_only_for_the_record_as_it_was_read(self, desk: Desk) -> None:
        held = reach(desk, "held")
        before = desk.get()
        assert desk.resolve(replace(held, token=held.token - 1)) is LOST
        assert desk.resolve(replace(held, token=held.token + 1)) is LOST
        assert desk.get() == before
        assert desk.resolve(held, status="released") is DONE
        desk.hold(desk.grant("b"))
        before = desk.get()
        assert desk.resolve(held, status="completed") is LOST
        assert desk.get() == before

    def test_a_decision_that_comes_twice_changes_nothing_the_second_time(self, desk: Desk) -> None:
        held = reach(desk, "held")
        desk.resolve(held, status="completed", result=b"first")
        resolved = desk.get()
        desk.resolve(held, status="failed", result=None, error=b"second")
        assert desk.get() == resolved

    # The lifetime of a record

    def test_a_settled_record_lives_for_its_ttl_to_the_microsecond(
        self, desk: Desk, tick: Tick
    ) -> None:
        reach(desk, "completed")
        tick(self.almost(desk.ttl))
        assert isinstance(desk.claim("b"), Replay)
        assert desk.get() is not None
        tick(self.rest)
        assert desk.get() is None
        answer = desk.claim("b")
        assert isinstance(answer, Granted)
        assert (answer.record.attempt, answer.record.result) == (1, None)

    def test_a_released_record_with_nothing_to_remember_is_soon_forgotten(
        self, desk: Desk, tick: Tick
    ) -> None:
        desk.release(desk.grant("a"), bare_ttl=desk.ttl)
        assert desk.read().expires == desk.read().updated + desk.ttl
        tick(self.almost(desk.ttl))
        assert desk.status() == "released"
        tick(self.rest)
        fresh = desk.grant("b")
        assert (fresh.attempt, fresh.noted, fresh.revision, fresh.error) == (1, b"", 0, None)

    @pytest.mark.parametrize("ttl", [1, 3 * DAY])
    @pytest.mark.parametrize("why", ["notes", "uncertain", "counted"])
    def test_a_released_record_with_something_to_remember_lives_for_a_day_or_its_ttl(
        self, why: str, ttl: int, desk: Desk
    ) -> None:
        owner = desk.grant("a")
        if why == "notes":
            desk.note(owner, b"noted", 1)
        ways = {} if why == "notes" else {why: True}
        desk.release(owner, **ways, bare_ttl=1, ttl=ttl)
        assert desk.read().expires == desk.read().updated + max(DAY, ttl)

    def test_a_limited_number_of_attempts_is_remembered_only_once_there_was_one(
        self, desk: Desk
    ) -> None:
        desk.release(desk.grant("a"), unused=True, counted=True)
        assert desk.read().expires == desk.read().updated + HOUR
        desk.release(desk.grant("b"), counted=True)
        desk.release(desk.grant("c"), unused=True, counted=True)
        assert desk.read().expires == desk.read().updated + DAY

    def test_an_uncertain_end_is_remembered_as_long_as_it_was_promised(self, desk: Desk) -> None:
        desk.release(desk.grant("a"), uncertain=True, ttl=9 * DAY)
        promised = desk.read().expires
        second = desk.grant("b")
        assert desk.read().expires == promised
        desk.renew(second)
        assert desk.read().expires == promised
        desk.release(second)
        assert desk.read().expires == promised

    def test_the_owner_of_a_held_record_may_say_that_nothing_happened(
        self, desk: Desk, tick: Tick
    ) -> None:
        owner = desk.grant("a")
        tick(desk.lease)
        assert isinstance(desk.claim("b", on_expired="hold"), Held)
        assert desk.release(owner, uncertain=True) is ENDED
        assert desk.release(owner) is DONE
        freed = desk.read()
        assert (freed.status, freed.uncertain, freed.finished) == ("released", False, freed.updated)
        assert desk.release(owner) is DONE
        assert desk.read() == freed
        desk.grant("b")

    def test_what_was_uncertain_before_a_held_attempt_stays_so(
        self, desk: Desk, tick: Tick
    ) -> None:
        desk.release(desk.grant("a"), uncertain=True)
        owner = desk.grant("b")
        tick(desk.lease)
        assert isinstance(desk.claim("c", on_expired="hold"), Held)
        held = desk.read()
        assert desk.release(owner) is DONE
        freed = desk.read()
        assert (freed.status, freed.uncertain, freed.finished) == ("released", True, held.finished)

    @pytest.mark.parametrize("ttl", [1, 3 * DAY])
    def test_a_record_that_was_resolved_to_retry_lives_for_a_day_or_its_ttl(
        self, ttl: int, desk: Desk
    ) -> None:
        reach(desk, "held")
        desk.resolve(desk.read(), status="released", ttl=ttl)
        assert desk.read().expires == desk.read().updated + max(DAY, ttl)
