"""Callers that come while the first one runs."""

import threading

import pytest

from oncekey import InProgressError, KeyReusedError, OutcomeUnknownError, StoreError
from oncekey.engine import single_flight
from tests.functions.calls import answer_two, start, until_waiting
from tests.patience import PATIENCE, until


@pytest.mark.row("P4")
def test_callers_of_one_key_wait_for_the_one_that_runs(once, gate, runs, events):
    def work():
        runs.append(1)
        gate.enter()
        return "done"

    callers = [start(lambda: once.run("wait", work)) for _ in range(8)]
    gate.until_inside()
    until_waiting(events, 7)
    gate.go_on.set()
    assert [caller.outcome() for caller in callers] == ["done"] * 8
    assert runs == [1]


@pytest.mark.row("P4")
def test_a_caller_in_another_process_waits_too(once, other, gate, runs, events):
    def work():
        runs.append(1)
        gate.enter()
        return "done"

    first = start(lambda: once.run("wait", work))
    gate.until_inside()
    second = start(lambda: other.run("wait", work))
    until_waiting(events, 1)
    gate.go_on.set()
    assert first.outcome() == second.outcome() == "done"
    assert runs == [1]


def test_a_store_that_can_tell_of_a_change_wakes_those_who_wait(once, other, store, gate):
    watched = []
    settled = threading.Event()

    def settle(do):
        verdict = do()
        settled.set()
        return verdict

    def watch(*asked):
        watched.append(asked)
        gate.go_on.set()
        assert settled.wait(PATIENCE)

    store.instead("settle", settle)
    store.watch = watch
    first = start(lambda: once.run("wait", gate.enter))
    gate.until_inside()
    second = start(lambda: other.run("wait", gate.enter))
    assert first.outcome() is second.outcome() is None
    ((scope, key, token, seconds),) = watched
    assert (scope, key) == (None, "wait")
    assert token == once.get("wait").token
    assert 0 < seconds <= 1


def test_a_store_that_cannot_tell_of_a_change_now_is_asked_again(once, other, store, gate):
    watched = []

    def watch(*_asked):
        watched.append(1)
        gate.go_on.set()
        msg = "not now"
        raise StoreError(msg, happened=False)

    store.watch = watch
    first = start(lambda: once.run("wait", gate.enter))
    gate.until_inside()
    second = start(lambda: other.run("wait", gate.enter))
    assert first.outcome() is second.outcome() is None
    assert watched


@pytest.mark.parametrize("here", [True, False])
def test_a_caller_that_does_not_wait_is_refused(once, other, gate, here, events):
    running = start(lambda: once.run("busy", gate.enter))
    gate.until_inside()
    with pytest.raises(InProgressError) as caught:
        (once if here else other).options(wait=0, retry_after="3s").run("busy", gate.enter)
    assert caught.value.retry_after == 3
    assert events[-1].name == "busy"
    with pytest.raises(InProgressError):  # patience that ends is the same
        (once if here else other).options(wait="1ms").run("busy", gate.enter)
    gate.go_on.set()
    running.outcome()


def test_a_caller_that_does_not_wait_still_gets_what_is_settled(once, store):
    """The leader of its flight has not heard from the store yet: the store is asked."""
    once.run("settled", answer_two)
    go_on = store.block("claim")
    leader = start(lambda: once.run("settled", answer_two))
    until(lambda: store.calls["claim"] == 2)
    assert once.options(wait=0).run("settled", answer_two) == 2
    go_on.set()
    assert leader.outcome() == 2


def test_a_waiter_is_judged_again_after_waiting(once, store, runs, events):
    """It joined before anybody knew what the first call was about."""

    def work(amount: int) -> int:
        runs.append(amount)
        return amount

    go_on = store.block("claim")
    leader = start(lambda: once.run("judged", work, 1))
    until(lambda: store.calls["claim"])
    waiter = start(lambda: once.run("judged", work, 2))
    twin = start(lambda: once.run("judged", work, 1))
    until_waiting(events, 2)
    go_on.set()
    assert leader.outcome() == twin.outcome() == 1
    with pytest.raises(KeyReusedError):
        waiter.outcome()
    assert runs == [1]


def test_a_waiter_with_other_arguments_is_refused_while_the_first_runs(once, gate):
    def work(amount: int):
        gate.enter()

    running = start(lambda: once.run("other", work, 1))
    gate.until_inside()
    with pytest.raises(KeyReusedError):
        once.run("other", work, 2)
    gate.go_on.set()
    running.outcome()


def test_when_the_first_fails_one_waiter_takes_over(once, gate, runs, events):
    def work():
        runs.append(1)
        if len(runs) == 1:
            gate.enter()
            raise ValueError
        return "done"

    first = start(lambda: once.run("takeover", work))
    gate.until_inside()
    waiters = [start(lambda: once.run("takeover", work)) for _ in range(6)]
    until_waiting(events, 6)
    gate.go_on.set()
    with pytest.raises(ValueError):
        first.outcome()
    assert [waiter.outcome() for waiter in waiters] == ["done"] * 6
    assert runs == [1, 1]


def test_a_held_end_is_heard_by_those_who_wait(once, gate, runs, events):
    def work():
        runs.append(1)
        gate.enter()
        raise TimeoutError

    holding = once.options(on_crash="hold")
    first = start(lambda: holding.run("heldwait", work))
    gate.until_inside()
    waiters = [start(lambda: holding.run("heldwait", work)) for _ in range(3)]
    until_waiting(events, 3)
    gate.go_on.set()
    with pytest.raises(TimeoutError):
        first.outcome()
    for waiter in waiters:
        with pytest.raises(OutcomeUnknownError):
            waiter.outcome()
    assert runs == [1]


@pytest.mark.row("P4")
def test_a_thousand_duplicates_cost_few_store_calls(once, store, gate, events, monkeypatch):
    monkeypatch.setattr(single_flight, "FRESH_FOR", 3600.0)  # else one question a second
    once = once.options(retry_after="1h")
    running = start(lambda: once.run("crowd", gate.enter))
    gate.until_inside()
    crowd = [start(lambda: once.run("crowd", gate.enter)) for _ in range(1000)]
    until_waiting(events, 1000)
    gate.go_on.set()
    running.outcome()
    for one in crowd:
        one.outcome()
    assert store.calls.total() <= 10
