"""Attempts that an exception tears away between two lines of the library, as a signal may."""

import asyncio
import threading
from time import monotonic

import pytest

from oncekey import InProgressError
from oncekey.core.codec import PLAIN
from oncekey.core.decide import Done
from oncekey.engine import chores, engine, engine_async, run, run_async, single_flight
from oncekey.engine.chores import Renewal, Unbegun
from oncekey.engine.keeper import keeper
from tests.functions.calls import answer_two
from tests.patience import until, until_async


@pytest.fixture
def calm(once):
    """Does not wait, and does not renew: its leases end when the clock is moved."""
    return once.options(heartbeat=False, lease="5min", wait=0, fingerprint=None, fail_mode="open")


def entered(once, key):
    """The core, and a call that nobody has protected the caller of."""
    call = once._call(key, fingerprint=None, codec=PLAIN, label="")
    core, _, call = once.use(call, call.terms)
    return core, call


def given_back(core, monkeypatch):
    """What was granted so far was not begun in time."""
    monkeypatch.setattr(chores, "BEGIN_WITHIN", 0.0)
    Unbegun(core.flights, core.engine().leave_later).do()


def is_released(once, key):
    return getattr(once.get(key), "status", "") == "released"


def test_what_was_granted_to_somebody_who_was_torn_away_is_given_back(calm, monkeypatch):
    for module in (chores, engine, engine_async):
        monkeypatch.setattr(module, "BEGIN_WITHIN", 0.05)
    core, call = entered(calm, "torn")
    core.engine().enter(call)  # and a signal comes before anything else does
    until(lambda: is_released(calm, "torn"))
    assert calm.run("torn", answer_two) == 2


def test_who_is_torn_away_before_reconcile_is_asked_gives_its_claim_back(once, monkeypatch):
    def times_out():
        raise TimeoutError

    def torn():
        raise KeyboardInterrupt

    asking = once.options(reconcile=lambda _: Done(7))
    with pytest.raises(TimeoutError):
        asking.run("torn", times_out)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "runner", torn)
        with pytest.raises(KeyboardInterrupt):
            asking.run("torn", answer_two)
    until(lambda: is_released(once, "torn"))
    assert asking.run("torn", answer_two) == 7


@pytest.mark.parametrize("protected", [True, False])
def test_who_comes_late_claims_again(calm, store, monkeypatch, protected):
    core, call = entered(calm, "late")
    if not protected:
        store.refuse("claim", 1)
    ticket = core.engine().enter(call)
    given_back(core, monkeypatch)
    until(lambda: is_released(calm, "late"))
    assert run.live(core.engine(), ticket, answer_two, (), {}) == 2
    assert calm.get("late").status == "completed"


async def test_a_coroutine_that_comes_late_claims_again(calm, monkeypatch):
    async def two():
        return 2

    core, call = entered(calm, "late")
    ticket = await core.engine_async().enter(call)
    given_back(core, monkeypatch)
    await until_async(lambda: is_released(calm, "late"))
    assert await run_async.live(core.engine_async(), ticket, two, (), {}) == 2
    assert calm.get("late").status == "completed"


def test_a_block_that_comes_late_claims_again(calm, monkeypatch):
    core, call = entered(calm, "late")
    late = run.enter(core.engine(), call, active=True)
    given_back(core, monkeypatch)
    until(lambda: is_released(calm, "late"))
    with late:
        assert late.record.attempt == 1
    assert calm.get("late").status == "completed"


async def test_a_block_of_a_coroutine_that_comes_late_claims_again(calm, monkeypatch):
    core, call = entered(calm, "late")
    late = await run_async.enter(core.engine_async(), call, active=True)
    given_back(core, monkeypatch)
    await until_async(lambda: is_released(calm, "late"))
    async with late:
        assert late.record.attempt == 1
    assert calm.get("late").status == "completed"


def test_a_leader_that_was_torn_away_before_it_asked_locks_nothing(calm, monkeypatch):
    monkeypatch.setattr(single_flight, "FRESH_FOR", 0.0)
    entered(calm, "torn")[0].flights.join((None, "torn"), monotonic())
    assert calm.run("torn", answer_two) == 2


def test_an_attempt_that_is_lost_does_not_forbid_the_same_call_inside(calm, clock):
    def taken_over():
        try:
            calm.run("key", answer_two)
        except InProgressError:
            return False
        return True

    def outer():
        clock.advance("6min")
        thread = threading.Thread(target=until, args=(taken_over,))
        thread.start()
        thread.join()
        return calm.run("key", answer_two)

    assert calm.run("key", outer) == 2


async def test_blocking_code_does_not_wait_for_a_coroutine_of_its_own_thread(once):
    """The coroutine could not go on while the thread waits for it."""
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def work():
        inside.set()
        await go_on.wait()

    running = asyncio.create_task(once.run_async("both", work))
    await inside.wait()
    with pytest.raises(InProgressError):
        once.options(fingerprint=None).run("both", answer_two)
    go_on.set()
    await running


def test_a_claim_that_is_torn_away_before_it_has_a_ticket_is_given_back(calm, monkeypatch):
    def torn(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine, "Ticket", torn)
        calm.run("torn", answer_two)
    until(lambda: is_released(calm, "torn"))
    assert calm.run("torn", answer_two) == 2


def test_a_claim_that_is_torn_away_while_it_is_handed_over_is_given_back(once, monkeypatch):
    calm = once.options(lease="5min", wait=0, fingerprint=None)

    def torn(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine, "Unbegun", torn)
        calm.run("torn", answer_two)
    until(lambda: is_released(calm, "torn"))
    assert calm.run("torn", answer_two) == 2
    core, call = entered(calm, "next")
    monkeypatch.setattr(chores, "BEGIN_WITHIN", 0.0)
    core.engine().enter(call)
    until(lambda: is_released(calm, "next"))  # which is watched as if nothing had been


async def test_a_claim_of_a_coroutine_that_is_torn_away_is_given_back(once, monkeypatch):
    calm = once.options(lease="5min", wait=0, fingerprint=None)

    def torn(*_):
        raise asyncio.CancelledError

    async def work():
        return 2

    with monkeypatch.context() as patch, pytest.raises(asyncio.CancelledError):
        patch.setattr(engine_async, "Unbegun", torn)
        await calm.run_async("torn", work)
    until(lambda: is_released(calm, "torn"))
    assert await calm.run_async("torn", work) == 2


def test_what_is_torn_away_at_its_end_is_not_renewed(once, monkeypatch):
    """The code has raised, and the signal comes while its claim is released."""
    drop, times = keeper.drop, []

    def torn_once(chore):
        times.append(chore)
        if len(times) == 1:
            raise KeyboardInterrupt
        drop(chore)

    def fails():
        raise ValueError

    monkeypatch.setattr(keeper, "drop", torn_once)
    with pytest.raises(KeyboardInterrupt):
        once.options(lease="5min").run("torn", fails)
    keys = [one._ticket.call.key for one in keeper._queued() if isinstance(one, Renewal)]
    assert "torn" not in keys


def test_a_block_that_is_torn_away_while_it_frees_its_key_is_not_renewed(once, monkeypatch):
    def torn(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), once.options(lease="5min").attempt("torn") as attempt:
        monkeypatch.setattr(attempt._run.engine, "leave", torn)
        attempt.release()
    keys = [one._ticket.call.key for one in keeper._queued() if isinstance(one, Renewal)]
    assert "torn" not in keys


def test_whose_landing_is_torn_away_locks_nothing(calm, store, monkeypatch):
    """The run began without the store, so that nobody would look whether it goes on."""
    flights = entered(calm, "torn")[0].flights
    land = flights.land

    def torn_once(*_):
        monkeypatch.setattr(flights, "land", land)
        raise KeyboardInterrupt

    def fails():
        monkeypatch.setattr(flights, "land", torn_once)
        raise ValueError

    def again():
        try:
            return calm.run("torn", answer_two)
        except InProgressError:
            return "refused"

    store.refuse("claim", 1)
    with pytest.raises(KeyboardInterrupt):
        calm.run("torn", fails)
    until(lambda: is_released(calm, "torn"))
    assert again() == 2
