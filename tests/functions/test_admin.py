"""Looking at records and changing them by hand, and markers without functions."""

import pytest

from oncekey import ConfigurationError, InProgressError, OutcomeUnknownError, StoreError
from oncekey.core.requests import Verdict
from tests.functions.calls import Receipt, answer_two, replace_record, start


def time_out():
    raise TimeoutError


def test_what_was_never_run_has_no_record(once):
    assert once.get("nobody") is None
    assert not once.forget("nobody")
    assert not once.resolve("nobody", retry=True)


def test_a_forgotten_key_is_as_new(once):
    once.run("k", answer_two)
    assert once.forget("k")
    assert once.get("k") is None
    assert once.run("k", answer_two) == 2


def test_a_record_that_changes_under_our_hands_is_read_again(once, store):
    once.run("k", answer_two)

    def change_first(do):
        replace_record(store.store, "k")
        return do()

    store.instead("forget", change_first)
    assert once.forget("k", force=True)
    assert once.get("k") is None


def test_a_record_that_always_changes_is_given_up(once, store):
    once.run("k", answer_two)

    def never(do):
        return Verdict.LOST

    for _ in range(8):
        store.instead("forget", never)
    assert not once.forget("k")


def test_what_runs_is_forgotten_by_force_only(once, gate):
    running = start(lambda: once.run("k", gate.enter))
    gate.until_inside()
    with pytest.raises(InProgressError, match="force"):
        once.forget("k")
    assert once.forget("k", force=True)
    gate.go_on.set()
    with pytest.raises(Exception, match="the record was removed"):
        running.outcome()


def test_what_is_held_is_forgotten_by_force_only(once):
    holding = once.options(on_crash="hold")
    with pytest.raises(TimeoutError):
        holding.run("k", time_out)
    with pytest.raises(OutcomeUnknownError, match="force"):
        once.forget("k")
    assert once.forget("k", force=True)


def test_resolve_wants_exactly_one_ending(once):
    for wrong in ({}, {"result": 1, "retry": True}, {"error": "no exception"}):
        with pytest.raises(ConfigurationError):
            once.resolve("k", **wrong)
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        once.resolve("k", result=object())


def test_resolve_keeps_what_a_function_would_return(once):
    def charge() -> Receipt:
        raise TimeoutError

    holding = once.options(on_crash="hold")
    with pytest.raises(TimeoutError):
        holding.run("k", charge)
    assert holding.resolve("k", result=Receipt("r", 5))
    assert holding.run("k", charge) == Receipt("r", 5)


@pytest.mark.row("P5")
def test_purge_removes_what_expired_longer_ago_than_the_grace_period(once, clock):
    short = once.options(ttl="1s")
    for n in range(1100):
        short.check(f"k{n}")
    once.run("long", answer_two)
    heard = []
    assert once.purge() == 0
    clock.advance("1h")
    assert once.purge(grace="2h") == 0
    assert once.purge(progress=heard.append) == 1100
    assert heard == [500, 1000, 1100]
    assert once.get("long").value == 2
    with pytest.raises(ConfigurationError):
        once.purge(grace=-1)


# Markers and plain results


@pytest.mark.row("J4", "J2")
def test_check_is_true_once_until_the_ttl_is_over(once, clock, events):
    assert once.check("k", "100ms")
    assert not once.check("k", "100ms")
    clock.advance("100ms")
    assert once.check("k")
    assert not once.check("k")
    assert [event.name for event in events] == ["new", "duplicate", "new", "duplicate"]


@pytest.mark.row("J4")
def test_check_while_the_store_is_down_is_open_or_closed(once, store, events):
    store.refuse("claim", 2)
    with pytest.raises(StoreError):
        once.check("k")
    assert once.options(fail_mode="open").check("k")
    assert [event.name for event in events] == ["refused", "unprotected"]


@pytest.mark.row("J4")
def test_plain_results_are_kept_and_read(once, clock):
    assert once.read_result("k") is None
    assert once.read_result("k", default="none") == "none"
    once.keep_result("k", {"a": [1, None]}, "1h")
    assert once.read_result("k") == {"a": [1, None]}
    once.keep_result("k", 0)
    assert once.read_result("k", default=5) == 0
    clock.advance("24h")
    assert once.read_result("k", default=5) == 5
    assert once.check("k")  # markers and results do not meet


def test_a_result_that_others_always_overtake_is_given_up(once, store):
    def never(do):
        return Verdict.LOST

    once.keep_result("k", 1)
    for _ in range(8):
        store.instead("forget", never)
    with pytest.raises(StoreError, match="not kept"):
        once.keep_result("k", 2)
    assert once.read_result("k") == 1


def test_plain_results_are_plain_and_small(once):
    with pytest.raises(ConfigurationError, match="plain values"):
        once.keep_result("k", object())
    with pytest.raises(ConfigurationError, match="max_result"):
        once.options(max_result=10).keep_result("k", "x" * 100)


def test_markers_of_two_scopes_do_not_meet(once):
    assert once.options(scope="a").check("k")
    assert once.options(scope="b").check("k")
    assert not once.options(scope="a").check("k")
