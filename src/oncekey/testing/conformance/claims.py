"""Tests of claims: which caller is granted a key, and with which token."""
# ruff: noqa: D102, S101, PLR2004 - a test's name says what it proves, its asserts prove it

from __future__ import annotations

import pytest

from oncekey.core.machine import DAY, TABLE, Row
from oncekey.core.requests import Busy, Granted, Held, Mismatch, Replay, Spent
from oncekey.testing.conformance.base import DONE, LOST, NEWER, OTHER, SAME, Desk, Suite, Tick
from oncekey.testing.conformance.table import prove, reach


class Claims(Suite):
    """Claims: the table, tokens, leases, attempts."""

    @pytest.mark.parametrize("row", TABLE, ids=" - ".join)
    def test_a_row_of_the_table(self, row: Row, desk: Desk, tick: Tick) -> None:
        prove(row, desk, tick)

    def test_a_first_claim_tells_all_about_the_record(self, desk: Desk) -> None:
        answer = desk.claim("a", label="charge", reference="message-7")
        record = answer.record
        assert isinstance(answer, Granted)
        assert (record.scope, record.key) == (desk.scope, desk.key)
        assert (record.status, record.fingerprint, record.nonce) == ("running", SAME, "a")
        assert (record.attempt, record.label, record.reference) == (1, "charge", "message-7")
        assert record.created == record.started == record.updated == answer.now
        assert (record.finished, record.uncertain) == (0, False)
        assert (record.noted, record.revision) == (b"", 0)
        assert (record.result, record.error) == (None, None)
        assert record.token >= answer.now
        assert record.lease_end == answer.now + desk.lease
        assert record.expires == record.lease_end + DAY
        assert desk.get() == record

    def test_a_running_record_outlives_its_lease_by_a_long_ttl(self, desk: Desk) -> None:
        record = desk.grant("a", ttl=3 * DAY)
        assert record.expires == record.lease_end + 3 * DAY

    def test_a_claim_whose_reply_was_lost_gets_it_when_it_asks_again(
        self, desk: Desk, tick: Tick
    ) -> None:
        first = desk.grant("a")
        assert desk.grant("a") == first
        assert isinstance(desk.claim("b"), Busy)
        tick(desk.lease)
        assert desk.grant("a") == first
        assert desk.get() == first

    def test_whoever_is_refused_changes_nothing(self, desk: Desk) -> None:
        first = desk.grant("a")
        assert desk.claim("b", label="mine", reference="mine").record == first
        assert desk.claim("c", fingerprint=OTHER).record == first
        assert desk.get() == first

    def test_a_lease_is_alive_until_its_end_and_over_from_then_on(
        self, desk: Desk, tick: Tick
    ) -> None:
        desk.grant("a")
        tick(self.almost(desk.lease))
        assert isinstance(desk.claim("b"), Busy)
        tick(self.rest)
        assert isinstance(desk.claim("b"), Granted)

    def test_the_boundary_is_the_same_under_hold(self, desk: Desk, tick: Tick) -> None:
        desk.grant("a")
        tick(self.almost(desk.lease))
        assert isinstance(desk.claim("b", on_expired="hold"), Busy)
        tick(self.rest)
        assert isinstance(desk.claim("b", on_expired="hold"), Held)

    def test_the_next_attempt_inherits_the_record(self, desk: Desk, tick: Tick) -> None:
        first = desk.grant("a", label="charge", reference="first")
        desk.note(first, b"noted", 4)
        tick(desk.lease)
        second = desk.grant("b", reference="second")
        assert (second.attempt, second.noted, second.revision) == (2, b"noted", 4)
        assert (second.label, second.reference) == ("charge", "second")
        assert second.created == first.created < second.started
        assert (second.uncertain, second.finished) == (True, first.lease_end)
        assert second.lease_end == second.started + desk.lease
        assert second.expires == second.lease_end + DAY
        assert second.token > first.token

    def test_under_hold_there_is_no_next_attempt_and_no_new_token(
        self, desk: Desk, tick: Tick
    ) -> None:
        first = desk.grant("a")
        tick(desk.lease)
        answer = desk.claim("b", on_expired="hold")
        held = answer.record
        assert isinstance(answer, Held)
        assert (held.status, held.token, held.nonce) == ("held", first.token, "a")
        assert (held.uncertain, held.finished, held.expires) == (True, first.lease_end, 0)
        assert desk.get() == held

    def test_attempts_that_are_used_up_end_in_held(self, desk: Desk, tick: Tick) -> None:
        desk.grant("a", max_attempts=2)
        tick(desk.lease)
        second = desk.grant("b", max_attempts=2)
        tick(desk.lease)
        assert isinstance(desk.claim("c", max_attempts=2), Held)
        assert (desk.status(), desk.read().attempt) == ("held", 2)
        assert desk.read().token == second.token

    def test_a_release_uses_an_attempt_up_as_well(self, desk: Desk) -> None:
        desk.release(desk.grant("a"))
        answer = desk.claim("b", max_attempts=1)
        assert isinstance(answer, Held)
        assert (answer.record.uncertain, answer.record.expires) == (False, 0)

    def test_a_nonce_is_spent_by_its_release(self, desk: Desk) -> None:
        desk.release(desk.grant("a"))
        free = desk.read()
        assert isinstance(desk.claim("a"), Spent)
        assert desk.get() == free
        assert desk.grant("b").attempt == 2

    def test_a_settled_record_replays_also_to_the_nonce_that_settled_it(self, desk: Desk) -> None:
        reach(desk, "completed")
        for nonce in ("a", "b"):
            answer = desk.claim(nonce)
            assert isinstance(answer, Replay)
            assert answer.record.result == b"result"

    # Fingerprints

    @pytest.mark.parametrize("status", ["running", "completed", "failed", "held"])
    def test_another_fingerprint_is_a_mismatch(self, status: str, desk: Desk) -> None:
        reach(desk, status)
        before = desk.get()
        for nonce in ("a", "b"):
            assert isinstance(desk.claim(nonce, fingerprint=OTHER), Mismatch)
        assert desk.get() == before

    @pytest.mark.parametrize("on_expired", ["take", "hold"])
    def test_the_fingerprint_is_judged_before_a_take_over(
        self, on_expired: str, desk: Desk, tick: Tick
    ) -> None:
        first = desk.grant("a")
        tick(desk.lease)
        answer = desk.claim("b", fingerprint=OTHER, on_expired=on_expired, max_attempts=1)
        assert isinstance(answer, Mismatch)
        assert desk.get() == first

    @pytest.mark.parametrize(
        ("one", "two"), [(SAME, None), (None, SAME), (SAME, NEWER), (NEWER, SAME), (None, None)]
    )
    def test_what_cannot_be_compared_is_no_mismatch(
        self, one: str | None, two: str | None, desk: Desk, tick: Tick
    ) -> None:
        desk.grant("a", fingerprint=one)
        assert isinstance(desk.claim("b", fingerprint=two), Busy)
        tick(desk.lease)
        second = desk.grant("b", fingerprint=two)
        assert second.attempt == 2
        assert second.fingerprint == (two or one)
        desk.settle(second)
        assert isinstance(desk.claim("c", fingerprint=one), Replay)

    def test_a_release_without_notes_leaves_nothing_of_its_fingerprint(self, desk: Desk) -> None:
        first = desk.grant("a", label="one", reference="one")
        desk.release(first, error=b"error")
        fresh = desk.grant("b", fingerprint=OTHER)
        assert (fresh.attempt, fresh.fingerprint, fresh.error) == (1, OTHER, None)
        assert (fresh.label, fresh.reference, fresh.uncertain) == ("", "", False)
        assert (fresh.finished, fresh.created) == (0, fresh.started)
        assert fresh.token > first.token

    def test_an_uncertain_release_still_means_what_it_meant(self, desk: Desk) -> None:
        desk.release(desk.grant("a"), uncertain=True)
        free = desk.read()
        assert isinstance(desk.claim("b", fingerprint=OTHER), Mismatch)
        assert desk.get() == free
        assert desk.grant("b").uncertain

    def test_a_release_with_notes_still_means_what_it_meant(self, desk: Desk) -> None:
        first = desk.grant("a")
        desk.note(first, b"noted", 1)
        desk.release(first)
        free = desk.read()
        assert isinstance(desk.claim("b", fingerprint=OTHER), Mismatch)
        assert isinstance(desk.claim("a", fingerprint=OTHER), Mismatch)
        assert desk.get() == free

    # Tokens

    def test_tokens_grow_over_take_over_and_release(self, desk: Desk, tick: Tick) -> None:
        tokens = []
        for nonce in "abcdef":
            owner = desk.grant(nonce)
            tokens.append(owner.token)
            if nonce in "ace":
                desk.release(owner)
            else:
                tick(desk.lease)
        assert tokens == sorted(set(tokens))

    def test_tokens_grow_also_where_no_time_passes(self, desk: Desk) -> None:
        tokens = []
        for number in range(20):
            owner = desk.grant(f"n{number}")
            tokens.append(owner.token)
            desk.release(owner)
        assert tokens == sorted(set(tokens))

    def test_tokens_grow_over_expiry(self, desk: Desk, tick: Tick) -> None:
        first = desk.grant("a")
        desk.settle(first, ttl=self.ttl)
        tick(self.ttl)
        assert desk.grant("b").token > first.token

    def test_tokens_grow_over_expiry_and_purge(self, desk: Desk, tick: Tick) -> None:
        first = desk.grant("a")
        desk.settle(first)
        tick(self.ttl)
        desk.store.purge(0, 10)
        assert desk.grant("a").token > first.token

    def test_tokens_grow_over_forget(self, desk: Desk, tick: Tick) -> None:
        first = desk.grant("a")
        assert desk.forget(first, force=True) is DONE
        tick(1)  # after a forget only the time is left to make the next token larger
        assert desk.grant("a").token > first.token
        assert desk.settle(first) is LOST
