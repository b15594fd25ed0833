"""Attempts that hang, as their own process sees them."""

import threading
from time import monotonic

import pytest

from oncekey import InProgressError, KeyReusedError, StoreError, current
from oncekey.core.decide import Done
from oncekey.engine import single_flight
from tests.functions.calls import answer_two, start
from tests.patience import PATIENCE, until


@pytest.fixture
def impatient(once):
    """Does not wait, and does not renew: its leases end when the clock is moved."""
    return once.options(heartbeat=False, lease="5min", wait=0, fingerprint=None)


@pytest.fixture
def _asks_always(monkeypatch):
    """Whatever is known of a flight is too old."""
    monkeypatch.setattr(single_flight, "FRESH_FOR", 0.0)


def finally_runs(once, key, function):
    """What the function returns as soon as the key is not in progress any more."""
    answers = []

    def answered():
        try:
            answers.append(once.run(key, function))
        except InProgressError:
            return False
        return True

    until(answered)
    return answers[0]


@pytest.mark.row("W9")
def test_a_hung_attempt_loses_its_key_in_its_own_process(impatient, clock, gate):
    hung = start(lambda: impatient.run("slow", gate.enter))
    gate.until_inside()
    with pytest.raises(InProgressError):
        impatient.run("slow", answer_two)
    clock.advance("6min")
    assert finally_runs(impatient, "slow", answer_two) == 2
    gate.go_on.set()
    assert hung.outcome() == 2  # it was too late, and the answer that stands is another one's


@pytest.mark.usefixtures("_asks_always")
def test_whoever_waits_takes_over_when_the_lease_has_ended(once, clock, gate):
    patient = once.options(heartbeat=False, lease="5min", fingerprint=None)
    hung = start(lambda: patient.run("slow", gate.enter))
    gate.until_inside()
    waiting = start(lambda: patient.run("slow", answer_two))
    clock.advance("6min")
    assert waiting.outcome() == 2
    gate.go_on.set()
    assert hung.outcome() == 2


def test_reconcile_is_asked_about_an_attempt_that_hangs_here(impatient, clock, gate):
    asking = impatient.options(reconcile=lambda _: Done(7))
    hung = start(lambda: asking.run("slow", gate.enter))
    gate.until_inside()
    clock.advance("6min")
    assert finally_runs(asking, "slow", answer_two) == 7
    gate.go_on.set()
    assert hung.outcome() == 7


def test_forgetting_by_force_frees_the_key_here_at_once(impatient, gate):
    hung = start(lambda: impatient.run("slow", gate.enter))
    gate.until_inside()
    assert impatient.forget("slow", force=True)
    assert impatient.run("slow", answer_two) == 2
    gate.go_on.set()
    assert hung.outcome() == 2


def test_a_take_over_here_is_told_to_the_attempt_that_lost(impatient, clock, gate):
    attempts = []

    def work():
        attempts.append(current())
        gate.enter()

    hung = start(lambda: impatient.run("slow", work))
    gate.until_inside()
    clock.advance("6min")
    assert finally_runs(impatient, "slow", answer_two) == 2
    assert attempts[0].lost
    gate.go_on.set()
    assert hung.outcome() == 2


# What duplicates cost while the first runs here


def test_duplicates_of_a_call_that_runs_here_do_not_ask_the_store(
    impatient, store, gate, monkeypatch
):
    monkeypatch.setattr(single_flight, "FRESH_FOR", 3600.0)
    calm = impatient.options(retry_after="1h")
    running = start(lambda: calm.run("slow", gate.enter))
    gate.until_inside()
    asked = store.calls["claim"]
    for _ in range(50):
        with pytest.raises(InProgressError):
            calm.run("slow", answer_two)
    assert store.calls["claim"] == asked
    gate.go_on.set()
    running.outcome()


@pytest.mark.usefixtures("_asks_always")
def test_a_duplicate_that_asks_finds_the_first_still_running(impatient, store, gate):
    running = start(lambda: impatient.run("slow", gate.enter))
    gate.until_inside()
    asked = store.calls["claim"]
    for _ in range(3):
        with pytest.raises(InProgressError):
            impatient.run("slow", answer_two)
    assert store.calls["claim"] == asked + 3
    gate.go_on.set()
    assert running.outcome() is None
    assert impatient.get("slow").status == "completed"


@pytest.mark.usefixtures("_asks_always")
@pytest.mark.parametrize("fail_mode", ["open", "closed"])
def test_nothing_runs_beside_a_run_that_is_known_here(impatient, store, gate, runs, fail_mode):
    calm = impatient.options(fail_mode=fail_mode)
    running = start(lambda: calm.run("slow", gate.enter))
    gate.until_inside()
    store.refuse("claim", 3)
    for _ in range(3):
        with pytest.raises(InProgressError):
            calm.run("slow", runs.append, 1)
    assert not runs
    gate.go_on.set()
    running.outcome()


@pytest.mark.usefixtures("_asks_always")
def test_nothing_runs_beside_a_run_that_no_store_knows_of(impatient, store, gate, runs):
    calm = impatient.options(fail_mode="open")
    store.refuse("claim", 2)
    running = start(lambda: calm.run("slow", gate.enter))
    gate.until_inside()
    with pytest.raises(InProgressError):
        calm.run("slow", runs.append, 1)
    assert not runs
    gate.go_on.set()
    running.outcome()


def test_nothing_runs_beside_a_call_that_still_asks_the_store(impatient, store, runs):
    """The store refuses the second call, and grants the claim of the first one later."""
    calm = impatient.options(fail_mode="open")
    go_on = store.block("claim")
    leader = start(lambda: calm.run("slow", runs.append, "leader"))
    until(lambda: store.calls["claim"])
    store.refuse("claim", 10_000)
    with pytest.raises(InProgressError):
        calm.run("slow", runs.append, "beside")
    assert not runs
    store.heal()
    go_on.set()
    leader.outcome()
    assert runs == ["leader"]


def test_nothing_runs_beside_a_run_that_did_not_lead(impatient, store, gate, runs):
    """The store does not answer whoever leads until another call, which it answers, is running."""
    calm = impatient.options(fail_mode="open")
    refuse = threading.Event()

    def refuse_late(_):
        assert refuse.wait(PATIENCE)
        raise StoreError("the store is down", happened=False)

    store.instead("claim", refuse_late)
    leader = start(lambda: calm.run("slow", runs.append, "leader"))
    until(lambda: store.calls["claim"])
    running = start(lambda: calm.run("slow", gate.enter))
    gate.until_inside()
    refuse.set()
    with pytest.raises(InProgressError):
        leader.outcome()
    assert not runs
    gate.go_on.set()
    running.outcome()


@pytest.mark.usefixtures("_asks_always")
def test_other_arguments_are_told_apart_by_the_store_too(once, gate):
    calm = once.options(wait=0)
    running = start(lambda: calm.run("slow", lambda one: gate.enter(), 1))
    gate.until_inside()
    with pytest.raises(KeyReusedError):
        calm.run("slow", lambda one: one, 2)
    gate.go_on.set()
    running.outcome()


@pytest.mark.usefixtures("_asks_always")
def test_a_leader_that_never_asked_does_not_hide_other_arguments(once, other):
    other.run("key", lambda one: one, 1)
    once.core.flights.join((None, "key"), monotonic())
    with pytest.raises(KeyReusedError):
        once.options(wait=0).run("key", lambda one: one, 2)
