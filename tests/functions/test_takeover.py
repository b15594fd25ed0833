"""An attempt that lost its lease: the next one inherits, the old one can do no harm."""

import pytest

from oncekey import LeaseLostError, OutcomeUnknownError, current
from oncekey.engine import single_flight
from tests.functions.calls import CardDeclinedError, answer_two, fail_definitely, start


@pytest.mark.row("P13")
def test_a_lapsed_attempt_is_taken_over_with_its_notes(once, other, clock, gate):
    def slow():
        current().note(reference="r-1")
        current().step("load", lambda: 5)
        gate.enter()
        return "late"

    def quick():
        attempt = current()
        assert (attempt.number, attempt.uncertain) == (2, True)
        assert attempt.notes == {"reference": "r-1"}
        return attempt.step("load", lambda: pytest.fail("it was done"))

    running = start(lambda: once.options(heartbeat=False, fingerprint=None).run("slow", slow))
    gate.until_inside()
    clock.advance("5min")
    assert other.options(fingerprint=None).run("slow", quick) == 5
    gate.go_on.set()
    assert running.outcome() == 5  # the late settle was refused: the winner's answer stands
    assert once.get("slow").value == 5


def test_a_lapsed_attempt_that_nobody_took_over_may_settle(once, clock, gate):
    running = start(lambda: once.options(heartbeat=False).run("slow", gate.enter))
    gate.until_inside()
    clock.advance("1h")
    gate.go_on.set()
    assert running.outcome() is None
    assert once.get("slow").status == "completed"


def test_a_late_settle_without_a_winner_is_a_lost_lease(once, other, clock, gate, store):
    inner = start(lambda: once.options(heartbeat=False).run("slow", gate.enter))
    gate.until_inside()
    clock.advance("5min")
    with pytest.raises(ValueError):
        other.options(fingerprint=None).run("slow", fail_definitely)
    gate.go_on.set()
    with pytest.raises(LeaseLostError):
        inner.outcome()


def test_a_lapsed_attempt_under_hold_is_held_and_may_still_settle(once, other, clock, gate):
    running = start(lambda: once.options(heartbeat=False, on_crash="hold").run("slow", gate.enter))
    gate.until_inside()
    clock.advance("5min")
    with pytest.raises(OutcomeUnknownError):
        other.options(on_crash="hold").run("slow", gate.enter)
    gate.go_on.set()
    assert running.outcome() is None
    assert once.get("slow").status == "completed"


def test_a_note_of_an_attempt_that_was_taken_over_is_refused(once, other, clock, gate):
    def slow():
        gate.enter()
        assert not current().lost
        try:
            current().note(late=True)
        finally:
            assert current().lost

    running = start(lambda: once.options(heartbeat=False, fingerprint=None).run("slow", slow))
    gate.until_inside()
    clock.advance("5min")
    assert other.options(fingerprint=None).run("slow", answer_two) == 2
    gate.go_on.set()
    with pytest.raises(LeaseLostError):
        running.outcome()
    assert once.get("slow").notes == {}


def test_a_late_kept_failure_gives_way_to_the_winner(once, other, clock, gate):
    def slow():
        gate.enter()
        raise CardDeclinedError(51, "no funds")

    options = {"heartbeat": False, "fingerprint": None, "keep": CardDeclinedError}
    running = start(lambda: once.options(**options).run("slow", slow))
    gate.until_inside()
    clock.advance("5min")
    assert other.options(fingerprint=None).run("slow", answer_two) == 2
    gate.go_on.set()
    assert running.outcome() == 2


def test_the_token_grows_and_the_downstream_key_does_not_change(once):
    seen = []

    def work(amount: int):
        seen.append((current().token, current().downstream_key("charge")))
        if len(seen) == 1:
            raise ValueError

    with pytest.raises(ValueError):
        once.run("fence", work, 5)
    once.run("fence", work, 5)
    (first, key), (second, again) = seen
    assert second > first
    assert key == again
    unprotected = []

    def note_key(amount: int):
        unprotected.append(current().downstream_key("charge"))

    off = once.options(fingerprint=lambda amount: None)
    off.active = False
    off.run("fence", note_key, 5)
    assert unprotected != [key]  # another fingerprint, another key
    off = once.options()
    off.active = False
    off.run("fence", note_key, 5)
    assert unprotected[1] == key


def test_those_who_share_a_block_end_their_own_attempts(once, clock, gate, monkeypatch):
    monkeypatch.setattr(single_flight, "FRESH_FOR", 0.0)
    block = once.options(heartbeat=False, wait=0).attempt("nightly")

    def hang():
        with block:
            gate.enter()

    hung = start(hang)
    gate.until_inside()
    clock.advance("6min")
    with pytest.raises(ZeroDivisionError), block:
        gate.go_on.set()
        with pytest.raises(LeaseLostError):
            hung.outcome()
        raise ZeroDivisionError
    assert once.get("nightly").status == "released"
