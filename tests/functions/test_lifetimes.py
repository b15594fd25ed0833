"""How long a released record is remembered: rules.md's table, as a caller notices it."""

import pytest

from oncekey import InProgressError, KeyReusedError, NotDone, OutcomeUnknownError, Policy, Unknown
from oncekey.core.machine import DAY, HOUR, MINUTE

SECOND = 1_000_000


def times_out():
    msg = "the gateway did not answer"
    raise TimeoutError(msg)


def pays(amount):
    times_out()


def fails():
    msg = "no such order"
    raise ValueError(msg)


def test_an_uncertain_end_is_remembered_for_the_ttl(once, clock, runs):
    """Its reconcile is asked, and other arguments are refused, as long as the ttl says."""
    weekly = once.options(ttl="7d", reconcile=lambda _: runs.append("asked") or Unknown())
    with pytest.raises(TimeoutError):
        weekly.run("order:1", pays, 7)
    clock.tick(7 * DAY - SECOND)
    with pytest.raises(KeyReusedError):
        weekly.run("order:1", pays, 8)
    with pytest.raises(OutcomeUnknownError):
        weekly.run("order:1", pays, 7)
    assert runs == ["asked"]


def test_no_later_attempt_shortens_it(once, clock, runs):
    weekly = once.options(ttl="7d")
    with pytest.raises(TimeoutError):
        weekly.run("order:1", times_out)
    with pytest.raises(ValueError, match="no such order"):
        once.options(ttl="1s").run("order:1", fails)
    clock.tick(6 * DAY)
    asked = once.options(reconcile=lambda _: runs.append("asked") or NotDone(), quiet="0s")
    assert asked.run("order:1", lambda: 7) == 7
    assert runs == ["asked"]


def test_slow_retries_do_not_get_round_the_limit_of_attempts(once, clock, runs):
    limited = once.options(max_attempts=3)
    for _ in range(3):
        with pytest.raises(ValueError, match="no such order"):
            limited.run("order:1", fails)
        clock.tick(90 * MINUTE)
    with pytest.raises(OutcomeUnknownError):
        limited.run("order:1", lambda: runs.append("ran"))
    assert not runs


def test_a_definite_error_is_remembered_for_an_hour(once, clock):
    with pytest.raises(ValueError, match="no such order"):
        once.run("order:1", fails)
    record = once.get("order:1")
    clock.tick(HOUR - SECOND)
    assert once.get("order:1") == record
    clock.tick(SECOND)
    assert once.get("order:1") is None


def test_a_claim_that_is_given_back_unused_is_soon_forgotten(once, clock):
    record = claimed_and_given_back(once)
    assert record.expires - record.updated == MINUTE
    clock.tick(MINUTE)
    assert once.get("order:1") is None


def claimed_and_given_back(once):
    """As after a reconcile that postpones, but without an attempt before it."""
    engine, call = once.core.engine(), once._call_of("order:1", fails, (), {})
    ticket = engine.enter(call)
    engine.leave(ticket, ticket.giving_back())
    return engine._store.get(None, "order:1")


def test_one_that_was_asked_for_again_is_remembered_longer(once, store):
    """A copy of it may still be under way, and would be granted to nobody."""
    store.lose_reply("claim")
    record = claimed_and_given_back(once)
    assert record.expires - record.updated == HOUR


def test_an_attempt_that_comes_back_and_says_nothing_happened_frees_a_held_key(
    once, other, clock, runs
):
    held = Policy(on_crash="hold", heartbeat=False, lease="1min", wait="0s")

    def late():
        clock.tick(2 * MINUTE)
        with pytest.raises((OutcomeUnknownError, InProgressError)):
            other.options(policy=held).run("order:1", lambda: runs.append("ran"))
        assert other.get("order:1").status == "held"
        fails()

    with pytest.raises(ValueError, match="no such order"):
        once.options(policy=held).run("order:1", late)
    assert once.get("order:1").status == "released"
    assert once.options(policy=held).run("order:1", lambda: 7) == 7
    assert not runs
