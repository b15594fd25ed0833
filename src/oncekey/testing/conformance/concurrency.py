"""Tests of concurrent claims: of many callers, one is granted the key."""
# ruff: noqa: D102, S101 - a test's name says what it proves, its asserts prove it

from __future__ import annotations

import pytest

from oncekey.testing.conformance.base import OTHER, Desk, Line, Suite, Tick
from oncekey.testing.conformance.table import reach, word

CROWD = 24
ROUNDS = 5


class Concurrency(Suite):
    """Concurrent claims from threads, or from tasks of one event loop."""

    @pytest.mark.parametrize("status", ["none", "released", "running"])
    def test_one_of_many_is_granted(self, status: str, desk: Desk, line: Line, tick: Tick) -> None:
        for number in range(ROUNDS):
            here = desk.at(f"key-{number}")
            reach(here, status)
            tick(desk.lease)
            answers = line.claim_together([here.ask(f"n{one}") for one in range(CROWD)])
            words = sorted(map(word, answers))
            assert words == ["Busy"] * (CROWD - 1) + ["Granted"]
            owner = here.read()
            assert {answer.record.token for answer in answers} == {owner.token}

    def test_one_held_record_for_many_who_find_the_lease_over(
        self, desk: Desk, line: Line, tick: Tick
    ) -> None:
        owner = reach(desk, "running")
        tick(desk.lease)
        asks = [desk.ask(f"n{one}", on_expired="hold") for one in range(CROWD)]
        assert set(map(word, line.claim_together(asks))) == {"Held"}
        assert (desk.status(), desk.read().token) == ("held", owner.token)

    def test_copies_of_one_claim_are_granted_once(self, desk: Desk, line: Line) -> None:
        answers = line.claim_together([desk.ask("a")] * CROWD)
        assert set(map(word, answers)) == {"Granted"}
        assert {answer.record.token for answer in answers} == {desk.read().token}
        assert desk.read().attempt == 1

    def test_two_meanings_never_run_together(self, desk: Desk, line: Line) -> None:
        asks = [desk.ask(f"n{one}", fingerprint=OTHER) for one in range(CROWD // 2)]
        asks += [desk.ask(f"m{one}") for one in range(CROWD // 2)]
        words = sorted(map(word, line.claim_together(asks)))
        half = CROWD // 2
        assert words == ["Busy"] * (half - 1) + ["Granted"] + ["Mismatch"] * half

    def test_many_keys_do_not_disturb_each_other(self, desk: Desk, line: Line) -> None:
        asks = [desk.at(f"key-{one}").ask("a") for one in range(CROWD)]
        assert set(map(word, line.claim_together(asks))) == {"Granted"}
        assert all(desk.at(ask.key).status() == "running" for ask in asks)
