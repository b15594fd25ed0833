"""Single flight: one leads, the others wait, in threads and in tasks."""

import asyncio
import selectors
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from types import SimpleNamespace

import pytest

from oncekey.core.requests import Answer
from oncekey.engine import single_flight as module
from oncekey.engine.single_flight import Flight, Flights
from tests.patience import PATIENCE

NOW = 1_767_225_600_000_000
LONG = PATIENCE
ID = ("billing", "charge:42")


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_the_first_leads_and_the_others_join_it():
    flights = Flights()
    first, leads = flights.join(ID, monotonic())
    second, follows = flights.join(ID, monotonic())
    assert leads
    assert not follows
    assert second is first


def test_another_identity_is_another_flight():
    flights = Flights()
    one, _ = flights.join(ID, monotonic())
    other, leads = flights.join((None, "charge:42"), monotonic())
    assert leads
    assert other is not one


def test_of_many_threads_one_leads(pool):
    flights, start = Flights(), threading.Barrier(4)

    def join(_):
        start.wait()
        return flights.join(ID, monotonic())

    for _ in range(50):
        joined = list(pool.map(join, range(4)))
        assert sum(leads for _, leads in joined) == 1
        assert len({id(flight) for flight, _ in joined}) == 1
        flights.land(joined[0][0])


def test_after_the_landing_somebody_else_leads():
    flights = Flights()
    first, _ = flights.join(ID, monotonic())
    flights.land(first)
    second, leads = flights.join(ID, monotonic())
    assert leads
    assert second is not first
    assert first.landed
    assert not second.landed


def test_a_run_that_another_one_hides_is_known_again_when_that_lands():
    flights = Flights()
    hidden, _ = flights.join(ID, monotonic())
    gone, shown = flights.apart(ID), flights.apart(ID)
    for run in (hidden, gone, shown):
        run.ticket = object()
        flights.adopt(run)
    assert flights.beside(shown) in (hidden, gone)
    flights.land(gone)
    assert flights.beside(shown) is hidden
    flights.land(shown)
    assert flights.join(ID, monotonic()) == (hidden, False)
    assert flights.beside(hidden) is None
    flights.land(hidden)
    assert flights.join(ID, monotonic())[1]


def test_who_still_asks_is_known_again_when_the_run_that_took_its_place_lands():
    """It replaced the flight of that run, and may be granted one of its own."""
    flights = Flights()
    run, _ = flights.join(ID, monotonic())
    asks = flights.replace(run, run.known_at)
    later = flights.replace(asks, asks.known_at)
    assert flights.beside(run) is None  # they give way to it
    run.ticket = object()
    flights.adopt(run)
    assert flights.join(ID, monotonic()) == (run, False)
    flights.land(run)
    assert flights.join(ID, monotonic()) == (later, False)
    assert flights.beside(flights.apart(ID)) in (asks, later)
    flights.land(later)
    assert flights.join(ID, monotonic()) == (asks, False)
    flights.land(asks)
    assert flights.join(ID, monotonic())[1]


def test_who_gave_up_asking_is_not_known_again_when_that_run_lands():
    flights = Flights()
    run, _ = flights.join(ID, monotonic())
    asks = flights.replace(run, run.known_at)
    later = flights.replace(asks, asks.known_at)
    flights.land(asks)
    run.ticket = object()
    flights.adopt(run)
    flights.land(run)
    assert flights.join(ID, monotonic()) == (later, False)
    flights.land(later)
    assert flights.join(ID, monotonic())[1]


def test_a_hidden_run_waits_for_its_place_while_others_have_it():
    flights = Flights()
    hidden, shown, elsewhere = flights.apart(ID), flights.apart(ID), flights.apart((None, "k"))
    for run in (hidden, shown, elsewhere):
        run.ticket = object()
        flights.adopt(run)
    flights.land(elsewhere)
    flights._uncover(ID)  # as if somebody had joined between a landing and this
    assert flights.join(ID, monotonic()) == (shown, False)
    flights.land(shown)
    assert flights.join(ID, monotonic()) == (hidden, False)


def test_a_record_that_is_forgotten_lands_hidden_runs_too():
    flights = Flights()
    hidden, shown = flights.apart(ID), flights.apart(ID)
    hidden.ticket, shown.ticket = (
        SimpleNamespace(record=SimpleNamespace(nonce=nonce), lost=False) for nonce in "hs"
    )
    flights.adopt(hidden)
    flights.adopt(shown)
    flights.forget(ID)
    assert hidden.landed
    assert shown.landed
    assert hidden.ticket.lost
    assert flights.join(ID, monotonic())[1]


def test_landing_wakes_every_thread_that_waits(pool, until):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    waiting = [pool.submit(flight.wait, LONG) for _ in range(4)]
    until(lambda: len(flight.wake) == 4)
    assert not any(one.done() for one in waiting)
    flights.land(flight)
    assert [one.result(LONG) for one in waiting] == [True] * 4


async def test_landing_in_a_thread_wakes_every_task_that_waits(until_async):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    tasks = [asyncio.create_task(flight.wait_async(LONG)) for _ in range(3)]
    await until_async(lambda: len(flight.wake) == 3)
    await asyncio.to_thread(flights.land, flight)
    assert await asyncio.gather(*tasks) == [True] * 3


class Sleeping(selectors.DefaultSelector):
    """Says when the loop has nothing to do for a long time, and is about to sleep so long."""

    def __init__(self):
        super().__init__()
        self.asleep = threading.Event()

    def select(self, timeout=None):
        if timeout is None or timeout > 60:
            self.asleep.set()
        return super().select(timeout)


def test_landing_wakes_the_loop_of_another_thread_from_its_sleep(until):
    flights, selector, landed = Flights(), Sleeping(), []
    flight, _ = flights.join(ID, monotonic())

    def wait():
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            landed.append(runner.run(flight.wait_async(3600.0)))

    threading.Thread(target=wait, daemon=True).start()
    until(lambda: flight.wake and selector.asleep.is_set())
    flights.land(flight)
    until(lambda: landed)
    assert landed == [True]


async def test_landing_on_a_loop_wakes_a_thread_that_waits(until_async):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    waiting = asyncio.create_task(asyncio.to_thread(flight.wait, LONG))
    await until_async(lambda: flight.wake)
    flights.land(flight)
    assert await waiting


def test_what_has_landed_needs_no_waiting(pool):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    flights.land(flight)
    assert pool.submit(flight.wait, LONG).result(LONG)
    assert asyncio.run(flight.wait_async(LONG))
    assert flight.wait(LONG)


def test_patience_ends(pool):
    flight, _ = Flights().join(ID, monotonic())
    assert not pool.submit(flight.wait, 0.001).result(LONG)
    assert not asyncio.run(flight.wait_async(0.001))


def test_who_comes_while_a_flight_lands_does_not_wait_for_it():
    flights = Flights()

    class Landing(list):
        def append(self, wake):  # the flight has looked who waits, and has seen nobody
            flights.land(flight)
            super().append(wake)

    flight = Flight(ID, 0, 0.0, wake=Landing())
    assert flight.wait(0.001)
    assert asyncio.run(flight.wait_async(0.001))


def test_a_thread_does_not_wait_for_a_flight_that_it_leads_itself():
    flight, _ = Flights().join(ID, monotonic())
    assert not flight.wait(LONG)
    assert not flight.wake


async def test_a_task_waits_for_a_flight_that_its_own_thread_leads(until_async):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    task = asyncio.create_task(flight.wait_async(LONG))
    await until_async(lambda: flight.wake)
    flights.land(flight)
    assert await task


async def test_a_task_that_was_cancelled_or_has_given_up_is_not_disturbed(until_async):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    cancelled = asyncio.create_task(flight.wait_async(LONG))
    assert not await flight.wait_async(0.001)
    await until_async(lambda: len(flight.wake) == 2)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    flights.land(flight)
    await asyncio.sleep(0)
    assert flight.landed


async def test_a_landing_that_comes_just_after_a_cancellation_does_no_harm(until_async):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    task = asyncio.create_task(flight.wait_async(LONG))
    await until_async(lambda: flight.wake)
    wake = flight.wake[0]
    flights.land(flight)
    wake()
    assert await task


def test_a_closed_loop_has_nobody_to_wake(pool, until):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    assert not asyncio.run(flight.wait_async(0.001))
    waiting = pool.submit(flight.wait, LONG)
    until(lambda: len(flight.wake) == 2)
    pool.submit(flights.land, flight).result(LONG)
    assert waiting.result(LONG)


def test_landing_twice_is_harmless(recorded):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    flight.answer, flight.taken_at = Answer(recorded(), NOW), monotonic()
    flights.land(flight, lambda: recorded(status="completed"))
    later, _ = flights.join(ID, monotonic())
    flights.land(flight)
    outcome = flight.outcome()
    assert outcome is not None
    assert outcome.record.status == "completed"
    assert flights.join(ID, monotonic()) == (later, False)


def test_those_who_waited_judge_by_the_record_and_the_time_of_now(monkeypatch, recorded):
    monkeypatch.setattr(module, "monotonic", lambda: 102.5)
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    flight.answer, flight.taken_at = Answer(recorded(), NOW), 100.0
    flights.land(flight, lambda: recorded(status="completed"))
    assert flight.outcome() == Answer(recorded(status="completed"), NOW + 2_500_000)


def test_what_a_flight_left_is_worked_out_only_when_somebody_asks(recorded):
    asked = []
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    flight.answer, flight.taken_at = Answer(recorded(), NOW), monotonic()
    flights.land(flight, lambda: asked.append("asked"))
    assert not asked
    assert flight.outcome() is None
    assert asked == ["asked"]


def test_a_leader_that_leaves_no_record_leaves_no_answer(recorded):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    flight.answer, flight.taken_at = Answer(recorded(), NOW), monotonic()
    flights.land(flight)
    assert flight.outcome() is None


def test_a_leader_that_never_heard_of_the_store_has_no_time_to_tell(recorded):
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    flights.land(flight, recorded)
    assert flight.landed
    assert flight.outcome() is None


def test_the_flights_of_a_parent_are_not_those_of_its_child():
    flights = Flights()
    parents, _ = flights.join(ID, monotonic())
    flights.after_fork()
    mine, leads = flights.join(ID, monotonic())
    assert leads
    flights.land(parents)
    assert flights.join(ID, monotonic()) == (mine, False)


# Flights that are replaced, because what is known of them is old


def test_one_of_those_who_follow_replaces_a_flight():
    flights = Flights()
    first, _ = flights.join(ID, monotonic())
    second = flights.replace(first, first.known_at)
    assert second.replaced is first
    assert flights.join(ID, monotonic()) == (second, False)
    assert flights.replace(first, first.known_at) is None


def test_a_flight_that_was_heard_of_meanwhile_is_not_replaced():
    flights = Flights()
    flight, _ = flights.join(ID, monotonic())
    known_at = flight.known_at
    flight.renewed(60.0)
    assert flights.replace(flight, known_at) is None


@pytest.mark.parametrize("end", ["put_back", "give_up"])
def test_a_flight_whose_run_goes_on_is_put_back(end):
    flights = Flights()
    first, _ = flights.join(ID, monotonic())
    second = flights.replace(first, first.known_at)
    getattr(flights, end)(second)
    assert second.landed
    assert flights.join(ID, monotonic()) == (first, False)


def test_a_flight_that_has_landed_is_not_put_back():
    flights = Flights()
    first, _ = flights.join(ID, monotonic())
    second = flights.replace(first, first.known_at)
    flights.land(first)
    assert flights.put_back(second) is None
    assert flights.join(ID, monotonic()) == (second, False)


def test_a_flight_is_not_put_back_in_place_of_another_one():
    flights = Flights()
    first, _ = flights.join(ID, monotonic())
    second = flights.replace(first, first.known_at)
    third = flights.replace(second, second.known_at)
    assert flights.put_back(second) is first
    assert flights.join(ID, monotonic()) == (third, False)


def test_to_forget_a_key_lands_all_that_waits_for_it():
    flights = Flights()
    first, _ = flights.join(ID, monotonic())
    second = flights.replace(first, first.known_at)
    flights.forget(ID)
    assert first.landed
    assert second.landed
    flights.forget(ID)


def test_a_flight_whose_landing_was_cut_off_is_followed_by_nobody():
    flights = Flights()
    torn, _ = flights.join(ID, monotonic())
    torn.landed = True  # and a signal came before it was taken from the list
    flight, leads = flights.join(ID, monotonic())
    assert leads
    assert flight is not torn
    flights.land(torn)
    assert flights.join(ID, monotonic()) == (flight, False)


def test_a_flight_that_lands_while_another_caller_joins_is_not_missed():
    class Landing(dict):
        def setdefault(self, key, value):
            found = super().setdefault(key, value)
            self.pop(key, None)  # its leader goes on meanwhile
            return found

    flights = Flights()
    torn, _ = flights.join(ID, monotonic())
    torn.landed = True
    flights._flights = Landing(flights._flights)
    assert flights.join(ID, monotonic())[1]


# Who was replaced, and who did not lead


def test_who_was_replaced_twice_is_put_back():
    """The one in the middle gives up first, and the last one still knows whose run goes on."""
    flights = Flights()
    run, _ = flights.join(ID, monotonic())
    second = flights.replace(run, run.known_at)
    third = flights.replace(second, second.known_at)
    assert flights.put_back(second) is run
    assert flights.put_back(third) is run
    assert flights.join(ID, monotonic()) == (run, False)


def test_a_run_that_did_not_lead_is_known_to_others():
    flights = Flights()
    leader, _ = flights.join(ID, monotonic())
    lone = flights.apart(ID)
    assert flights.beside(leader) is None
    assert flights.beside(lone) is leader  # whose question may still be granted
    lone.ticket = object()
    flights.adopt(lone)
    assert flights.beside(leader) is lone
    assert flights.beside(lone) is leader
    assert flights.join(ID, monotonic()) == (lone, False)
    flights.land(lone)
    assert flights.beside(leader) is None
    flights.adopt(lone)  # superseded, and granted all the same
    assert flights.join(ID, monotonic()) == (lone, False)


def test_who_replaced_a_flight_and_only_asks_gives_way_to_it():
    flights = Flights()
    first, _ = flights.join(ID, monotonic())
    second = flights.replace(first, first.known_at)
    assert flights.beside(first) is None
    first.landed = True
    assert flights.beside(flights.apart(ID)) is second
    second.ticket = object()
    assert flights.beside(first) is second
