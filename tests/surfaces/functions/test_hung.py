"""Attempts that hang, are torn away or are forgotten, seen from their own process."""

import asyncio
import threading
from contextlib import suppress

import pytest

from oncekey import InProgressError
from oncekey.core.codec import PLAIN
from oncekey.core.decide import Done
from oncekey.engine import chores, engine, engine_async, run, run_async, single_flight
from oncekey.engine.chores import Unbegun
from tests.patience import until, until_async
from tests.surfaces.functions.things import answer_two, start


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


@pytest.mark.row("W9")
async def test_a_hung_task_loses_its_key_on_its_own_loop(impatient, clock):
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def hang():
        inside.set()
        await go_on.wait()

    async def two():
        return 2

    async def answered():
        with suppress(InProgressError):
            answers.append(await impatient.run_async("slow", two))
        return answers

    answers = []
    hung = asyncio.create_task(impatient.run_async("slow", hang))
    await inside.wait()
    clock.advance("6min")
    await until_async(answered)
    go_on.set()
    assert [await hung, *answers] == [2, 2]


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


def test_a_take_over_here_is_told_to_the_attempt_that_lost(impatient, clock):
    with impatient.attempt("slow") as attempt:
        clock.advance("6min")
        with impatient.options(label="other").attempt("fast"):
            pass
        taken = start(lambda: finally_runs(impatient, "slow", answer_two))
        assert taken.outcome() == 2
        assert attempt.lost


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


@pytest.mark.usefixtures("_asks_always")
def test_other_arguments_are_told_apart_by_the_store_too(once, gate):
    calm = once.options(wait=0)
    running = start(lambda: calm.run("slow", lambda one: gate.enter(), 1))
    gate.until_inside()
    with pytest.raises(Exception, match="other arguments"):
        calm.run("slow", lambda one: one, 2)
    gate.go_on.set()
    running.outcome()


# Torn away between two lines of the library


@pytest.fixture
def _soon_given_back(monkeypatch):
    for module in (chores, engine, engine_async):
        monkeypatch.setattr(module, "BEGIN_WITHIN", 0.05)


@pytest.mark.usefixtures("_soon_given_back")
def test_what_was_granted_to_somebody_who_was_torn_away_is_given_back(impatient):
    core, _, call = impatient.use(
        impatient._call("torn", fingerprint=None, codec=PLAIN, label=""), impatient._terms
    )
    core.engine().enter(call)  # and a signal comes before anything else does
    until(lambda: impatient.get("torn").status == "released")
    assert impatient.run("torn", answer_two) == 2


@pytest.mark.parametrize("protected", [True, False])
def test_who_comes_late_claims_again(impatient, store, monkeypatch, protected):
    calm = impatient.options(fail_mode="open")
    core, _, call = calm.use(
        calm._call("late", fingerprint=None, codec=PLAIN, label=""), calm._terms
    )
    engine = core.engine()
    if not protected:
        store.refuse("claim", 1)
    ticket = engine.enter(call)
    monkeypatch.setattr(chores, "BEGIN_WITHIN", 0.0)
    Unbegun(core.flights, engine.leave_later).do()
    until(lambda: getattr(calm.get("late"), "status", "") == "released")
    assert run.live(engine, ticket, answer_two, (), {}) == 2
    assert calm.get("late").status == "completed"


async def test_a_coroutine_that_comes_late_claims_again_in_its_block(impatient, monkeypatch):
    core, _, call = impatient.use(
        impatient._call("late", fingerprint=None, codec=PLAIN, label=""), impatient._terms
    )
    engine = core.engine_async()
    entered = await run_async.enter(engine, call, active=True)
    monkeypatch.setattr(chores, "BEGIN_WITHIN", 0.0)
    Unbegun(core.flights, engine.leave_later).do()
    await until_async(lambda: core.store.get(None, "late").status == "released")
    async with entered:
        assert entered.record.attempt == 1
    assert (await impatient.get_async("late")).status == "completed"


@pytest.mark.usefixtures("_asks_always")
def test_a_leader_that_was_torn_away_before_it_asked_locks_nothing(impatient):
    impatient._core.flights.join((None, "torn"))
    assert impatient.run("torn", answer_two) == 2


def test_an_attempt_that_is_lost_does_not_forbid_the_same_call_inside(impatient, clock):
    def outer():
        clock.advance("6min")
        thread = threading.Thread(target=finally_runs, args=(impatient, "key", answer_two))
        thread.start()
        thread.join()
        return impatient.run("key", answer_two)

    assert impatient.run("key", outer) == 2
