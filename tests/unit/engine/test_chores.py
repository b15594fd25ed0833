"""What the keeper does for calls."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from math import inf
from time import monotonic
from types import SimpleNamespace
from unittest.mock import ANY

import pytest

from oncekey.core.requests import Answer, Scan
from oncekey.engine import chores
from oncekey.engine.chores import (
    BEGIN_WITHIN,
    COUNT_EVERY,
    PURGE_BATCH,
    PURGE_EVERY,
    RETRY,
    Abandoned,
    Counting,
    Insisting,
    LateClaim,
    LateEnd,
    Purging,
    Renewal,
    Unbegun,
    Unsettled,
)
from oncekey.engine.single_flight import Flights
from oncekey.engine.ticket import Ticket, unprotected
from oncekey.errors import ConfigurationError, StoreAccessError, StoreError, UnreadableError
from oncekey.observe import Observers
from oncekey.policy import Policy
from oncekey.stores import MemoryStore
from oncekey.stores.activity import RINGS
from oncekey.testing.clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


@pytest.fixture
def heard():
    return []


@pytest.fixture
def observers(heard):
    return Observers([heard.append])


def down(*_):
    msg = "no way through"
    raise StoreError(msg, happened=None)


def broken(*_):
    msg = "no such table"
    raise ConfigurationError(msg)


def forbidden(*_):
    msg = "another password"
    raise StoreAccessError(msg, happened=False)


def unreadable(*_):
    msg = "of a newer version"
    raise UnreadableError(msg, key="charge:42")


def frame_that_has_ended():
    return sys._getframe()


SOON = Policy(lease="30s", ttl="1h")


def granted(call, store):
    answer = store.claim(call.claim("n"))
    return Ticket(call, answer.record, answer.now, chores.monotonic())


# Renewal


@pytest.fixture
def ticket(calling, store):
    call = calling(policy=SOON)
    return granted(call, store)


def end_of(store, ticket):
    return store.get(*ticket.call.identity).lease_end


def test_a_renewal_moves_the_lease_and_comes_again_after_a_third_of_it(
    store, clock, ticket, observers
):
    renewal = Renewal(store, ticket, observers, Flights())
    before = end_of(store, ticket)
    clock.advance("10s")
    assert renewal.do() == pytest.approx(10)
    assert end_of(store, ticket) == before + 10_000_000
    assert not ticket.lost
    assert not renewal.urgent


@pytest.mark.parametrize("ending", ["settle", "release"])
def test_after_the_end_there_is_nothing_to_renew(store, ticket, observers, ending):
    record = ticket.record
    if ending == "settle":
        store.settle(ticket.call.settle(record, "completed"))
    else:
        store.release(ticket.call.release(record))
    assert Renewal(store, ticket, observers, Flights()).do() is None
    assert not ticket.lost


def test_an_attempt_that_was_taken_over_is_told_that_it_lost(
    store, clock, ticket, observers, calling
):
    clock.advance("31s")
    store.claim(ticket.call.claim("somebody else"))
    assert Renewal(store, ticket, observers, Flights()).do() is None
    assert ticket.lost


def test_a_renewal_that_failed_is_tried_again_soon_and_is_no_loss(ticket, observers, heard):
    renewal = Renewal(SimpleNamespace(renew=down), ticket, observers, Flights())
    assert renewal.do() == RETRY
    assert not ticket.lost
    [event] = heard
    assert (event.name, event.key, event.attempt) == ("renewal_failed", "charge:42", 1)
    assert event.detail == "no way through"


def test_a_renewal_goes_on_whatever_refuses_it_with_pauses_that_grow(ticket, observers, caplog):
    """A permission that is missing for a moment, or a password that has changed."""
    renewal = Renewal(SimpleNamespace(renew=broken), ticket, observers, Flights())
    assert [renewal.do() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert not ticket.lost
    assert [line.levelname for line in caplog.records] == ["ERROR"]


def test_a_renewal_that_gets_through_begins_with_short_pauses_again(ticket, observers, store):
    trouble = SimpleNamespace(renew=down)
    renewal = Renewal(trouble, ticket, observers, Flights())
    assert [renewal.do(), renewal.do()] == [0.5, 1.0]
    trouble.renew = store.renew
    assert renewal.do() == pytest.approx(10)
    trouble.renew = down
    assert renewal.do() == 0.5


@pytest.mark.parametrize("ending", ["lost", "left"])
def test_a_renewal_that_is_over_lands_the_flight(ticket, observers, store, clock, ending):
    flights = Flights()
    ticket.flight, _ = flights.join(ticket.call.identity, monotonic())
    if ending == "lost":
        clock.advance("31s")
        store.claim(ticket.call.claim("somebody else"))
    else:
        ticket.runner = frame_that_has_ended()
    assert Renewal(store, ticket, observers, flights).do() is None
    assert ticket.flight.landed
    assert ticket.lost is (ending == "lost")


def test_a_renewal_moves_what_the_flight_knows(ticket, observers, store):
    flights = Flights()
    ticket.flight, _ = flights.join(ticket.call.identity, monotonic())
    ticket.runner = sys._getframe()
    before = ticket.flight.good_until(1.0)
    Renewal(store, ticket, observers, flights).do()
    assert not ticket.flight.landed
    assert ticket.flight.good_until(1.0) > before


def test_a_short_lease_is_tried_again_even_sooner(calling, store, observers):
    call = calling(policy=Policy(lease="300ms"))
    ticket = granted(call, store)
    renewal = Renewal(SimpleNamespace(renew=down), ticket, observers, Flights())
    assert renewal.do() == pytest.approx(0.05)


def test_after_the_longest_run_the_lease_is_left_to_end(monkeypatch, calling, store, observers):
    now = [100.0]
    monkeypatch.setattr(chores, "monotonic", lambda: now[0])
    call = calling(policy=Policy(lease="30s", max_run="60s"))
    ticket = granted(call, store)
    renewal = Renewal(store, ticket, observers, Flights())
    now[0] = 159.9
    assert renewal.do() == pytest.approx(10)
    before = end_of(store, ticket)
    now[0] = 160.0
    assert renewal.do() is None
    assert end_of(store, ticket) == before


@pytest.mark.row("W9")
def test_no_lease_lasts_longer_than_the_longest_run(monkeypatch, calling, store, observers, clock):
    now = [100.0]
    monkeypatch.setattr(chores, "monotonic", lambda: now[0])
    call = calling(policy=Policy(lease="5min", max_run="5min"))
    ticket = granted(call, store)
    renewal = Renewal(store, ticket, observers, Flights())
    claimed = end_of(store, ticket)
    for _ in range(2):
        now[0] += 100
        clock.advance("100s")
        renewal.do()
        assert end_of(store, ticket) == claimed


# What could not be settled


@pytest.mark.parametrize("ending", ["completed", "released"])
def test_what_was_not_recorded_is_recorded_later(store, ticket, observers, ending):
    call, record = ticket.call, ticket.record
    ask = call.release(record) if ending == "released" else call.settle(record, "completed")
    chore = Unsettled(store, call, ask, observers)
    assert chore.urgent
    assert chore.do() is None
    assert store.get(*call.identity).status == ending
    assert chore.do() is None
    assert store.get(*call.identity).status == ending


def test_while_the_store_is_down_it_is_tried_again(ticket, observers, caplog):
    call, trouble = ticket.call, SimpleNamespace(settle=down, release=down)
    for ask in (call.settle(ticket.record, "completed"), call.release(ticket.record)):
        assert Unsettled(trouble, call, ask, observers).do() == RETRY
    assert not caplog.records  # an outage ends by itself


@pytest.mark.parametrize("broken", [broken, forbidden])
def test_whatever_refuses_it_goes_on_until_the_store_answers(ticket, observers, caplog, broken):
    ask = ticket.call.settle(ticket.record, "completed")
    chore = Unsettled(SimpleNamespace(settle=broken), ticket.call, ask, observers)
    assert [chore.do(), chore.do()] == [RETRY, RETRY]
    assert [(line.levelname, line.args) for line in caplog.records] == [("ERROR", (ANY,))]


def test_what_cannot_be_read_is_given_up_aloud(ticket, observers, caplog):
    ask = ticket.call.settle(ticket.record, "completed")
    assert Unsettled(SimpleNamespace(settle=unreadable), ticket.call, ask, observers).do() is None
    assert "a record cannot be ended" in caplog.text


@pytest.fixture
def backlog(monkeypatch):
    """Room for ten bytes of results."""
    monkeypatch.setattr(chores, "MOST_WAITING", 10)
    monkeypatch.setattr(chores, "_backlog", chores.Backlog())


@pytest.mark.usefixtures("backlog")
def test_of_too_many_results_that_wait_only_the_ends_are_kept(calling, store, observers, heard):
    ends = []
    for key in "abc":
        ticket = granted(calling(key=key), store)
        ask = ticket.call.settle(ticket.record, "completed", result=b"123456")
        ends.append(Unsettled(store, ticket.call, ask, observers))
        if key == "b":
            assert ends[0].do() is None  # it makes room again
    assert [(event.name, event.key) for event in heard] == [("not_kept", "b")]
    for end in ends:
        assert end.do() is None
    kept = {record.key: (record.status, record.result) for record in store.scan(Scan()).records}
    assert kept == {
        "a": ("completed", b"123456"),
        "b": ("completed", None),
        "c": ("completed", b"123456"),
    }


@pytest.mark.usefixtures("backlog")
def test_a_child_has_none_of_the_results_that_wait_in_its_parent(ticket, store, observers):
    ask = ticket.call.settle(ticket.record, "completed", result=b"1234567890")
    Unsettled(SimpleNamespace(settle=down), ticket.call, ask, observers)
    chores._backlog.after_fork()
    assert Unsettled(store, ticket.call, ask, observers).do() is None
    assert store.get(*ticket.call.identity).result == b"1234567890"


def test_an_end_that_is_never_recorded_is_reported_when_the_process_ends(ticket, observers, heard):
    trouble = SimpleNamespace(settle=down, release=down)
    ask = ticket.call.settle(ticket.record, "completed", result=b"1")
    Unsettled(trouble, ticket.call, ask, observers).give_up()
    Unsettled(trouble, ticket.call, ticket.call.release(ticket.record), observers).give_up()
    assert [(event.name, event.key) for event in heard] == [("never_recorded", "charge:42")]


# Claims that nobody waits for


def test_a_claim_that_was_granted_is_given_back(calling, store):
    call = calling()
    store.claim(call.claim("gone"))
    chore = Abandoned(store, call, "gone")
    assert chore.urgent
    assert chore.do() is None
    record = store.get(*call.identity)
    assert (record.status, record.attempt, record.uncertain) == ("released", 0, False)


def test_a_claim_that_was_never_granted_leaves_the_key_free(calling, store):
    call = calling()
    assert Abandoned(store, call, "gone").do() is None
    assert store.get(*call.identity).status == "released"
    answer = store.claim(call.claim("next"))
    assert (answer.record.nonce, answer.record.attempt) == ("next", 1)


@pytest.mark.parametrize("then", ["running", "completed"])
def test_the_claim_of_somebody_else_is_left_alone(calling, store, then):
    call = calling()
    record = store.claim(call.claim("other")).record
    if then == "completed":
        store.settle(call.settle(record, "completed"))
    before = store.get(*call.identity)
    assert Abandoned(store, call, "gone").do() is None
    assert store.get(*call.identity) == before


def test_a_claim_that_has_ended_already_is_not_touched(calling, store):
    call = calling()
    record = store.claim(call.claim("gone")).record
    store.release(call.release(record))
    before = store.get(*call.identity)
    assert Abandoned(store, call, "gone").do() is None
    assert store.get(*call.identity) == before


def test_while_the_store_is_down_it_is_asked_again(calling, store):
    call = calling()
    assert Abandoned(SimpleNamespace(claim=down), call, "gone").do() == RETRY
    half = SimpleNamespace(claim=store.claim, release=down)
    assert Abandoned(half, call, "gone").do() == RETRY
    assert Abandoned(store, call, "gone").do() is None
    assert store.get(*call.identity).status == "released"


def test_a_store_that_refuses_is_asked_again(calling):
    assert Abandoned(SimpleNamespace(claim=broken), calling(), "gone").do() == RETRY


# Purging


class Counted:
    """A store that has so many records to purge."""

    def __init__(self, *counts):
        self.counts = list(counts)
        self.asked = []

    def purge(self, grace, limit):
        self.asked.append((grace, limit))
        return self.counts.pop(0)


def test_a_full_batch_is_followed_by_the_next_one_soon(observers, heard):
    store = Counted(PURGE_BATCH, PURGE_BATCH - 1, 0)
    purging = Purging(store, observers)
    first = purging.do()
    assert first is not None
    assert first < 1
    assert purging.do() == PURGE_EVERY
    assert purging.do() == PURGE_EVERY
    assert store.asked == [(0, PURGE_BATCH)] * 3
    assert [(event.name, event.count) for event in heard] == [
        ("purged", PURGE_BATCH),
        ("purged", PURGE_BATCH - 1),
    ]
    assert not purging.urgent


@pytest.mark.parametrize("trouble", [down, broken])
def test_purging_can_wait_for_better_times(observers, heard, monkeypatch, trouble):
    store = Counted()
    monkeypatch.setattr(store, "purge", trouble)
    assert Purging(store, observers).do() == PURGE_EVERY
    assert not heard


def test_a_store_that_nobody_uses_is_not_kept_alive(observers):
    store = Counted(0)
    purging = Purging(store, observers)
    del store
    gc.collect()
    assert purging.do() is None


class Slotted:
    """A store as small as it can be: nothing can point at it weakly."""

    __slots__ = ()

    def purge(self, grace, limit):
        return 0


def test_a_store_that_cannot_be_watched_is_purged_all_the_same(observers):
    assert Purging(Slotted(), observers).do() == PURGE_EVERY


def test_expired_records_are_gone(calling, store, clock, observers):
    call = calling(policy=Policy(ttl="1s"))
    store.settle(call.settle(store.claim(call.claim("n")).record, "completed"))
    clock.advance("2s")
    assert Purging(store, observers).do() == PURGE_EVERY
    assert not store._records


def test_the_late_end_of_a_run_is_urgent(calling, observers):
    call = calling()
    ticket = unprotected(call)
    ask = call.settle(ticket.record, "completed", result=b"r")
    store = MemoryStore()
    chore = LateEnd(store, call, ask, observers)
    assert chore.urgent
    assert chore.do() is None
    assert store.get(*call.identity).result == b"r"
    assert chore.do() is None  # its reply was lost: there is nothing more to tell


def test_what_must_get_through_has_to_say_what_it_asks():
    with pytest.raises(NotImplementedError):
        Insisting().insist()


# What was granted and not begun


def test_only_what_is_old_and_not_begun_is_given_back(calling, store, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(chores, "monotonic", lambda: now[0])
    flights, given_back = Flights(), []
    old, young = granted(calling(), store), granted(calling(key="other"), store)
    flights.granted = {old: 99.0, young: 99.5}
    flights.watched = True
    chore = Unbegun(flights, lambda ticket, ask: given_back.append((ticket, ask.unused)))
    assert chore.do() == BEGIN_WITHIN
    assert given_back == [(old, True)]
    now[0] = 101.0
    assert chore.do() is None
    assert [ticket for ticket, _ in given_back] == [old, young]
    assert not flights.watched


# Runs that began without the store


def test_a_run_that_began_without_the_store_is_claimed_and_then_renewed(calling, store):
    flights, call = Flights(), calling(policy=SOON)
    flight, _ = flights.join(call.identity, monotonic())
    ticket = unprotected(call, flight)
    flight.unclaimed(Answer(ticket.record, ticket.heard), ticket.taken_at)
    chore = LateClaim(store, ticket, Flights())
    assert flight.good_until(1.0) == inf
    assert [chore.do(), chore.do()] == [pytest.approx(10), pytest.approx(10)]
    assert flight.good_until(1.0) < inf
    ticket.flight = None
    assert chore.do() == pytest.approx(10)


def test_a_late_claim_that_was_granted_before_is_renewed_at_once(calling, store, clock):
    flights, call = Flights(), calling(policy=SOON)
    flight, _ = flights.join(call.identity, monotonic())
    ticket = unprotected(call, flight)
    flight.unclaimed(Answer(ticket.record, ticket.heard), ticket.taken_at)
    store.claim(call.claim(ticket.record.nonce))  # and the reply was lost
    clock.advance("29s")
    chore = LateClaim(store, ticket, Flights())
    assert chore.do() == 0.0
    assert flight.good_until(1.0) == inf  # what is left of the lease is no time to rely on
    assert chore.do() == pytest.approx(10)
    assert end_of(store, ticket) == clock() + 30_000_000
    assert flight.good_until(1.0) < inf


def test_a_run_whose_claim_somebody_else_has_is_not_renewed(calling, store, clock):
    call = calling(policy=SOON)
    ticket = unprotected(call)
    chore = LateClaim(store, ticket, Flights())
    chore.do()
    clock.advance("31s")
    store.claim(call.claim("somebody else"))
    assert chore.do() is None
    assert LateClaim(store, unprotected(call), Flights()).do() is None


def late(calling, store, policy):
    """A run that began without the store, its flight, and the chore that claims for it."""
    flights, call = Flights(), calling(policy=policy)
    flight, _ = flights.join(call.identity, monotonic())
    ticket = unprotected(call, flight)
    flight.unclaimed(Answer(ticket.record, ticket.heard), ticket.taken_at)
    return ticket, flight, LateClaim(store, ticket, flights)


def test_a_run_without_the_store_that_hangs_loses_its_lease(calling, store, clock, monkeypatch):
    policy = Policy(lease="30s", ttl="1h", max_run="40s")
    ticket, flight, chore = late(calling, store, policy)
    now = [ticket.taken_at]
    monkeypatch.setattr(chores, "monotonic", lambda: now[0])
    assert chore.do() == pytest.approx(10)
    now[0] += 30
    assert chore.do() == pytest.approx(10)
    assert end_of(store, ticket) == clock() + 10_000_000
    now[0] += 11
    assert chore.do() is None
    assert flight.good_until(1.0) < inf


def test_a_run_without_the_store_whose_time_is_over_at_its_claim_keeps_nobody_waiting(
    calling, store, clock, monkeypatch
):
    ticket, flight, chore = late(calling, store, Policy(lease="30s", ttl="1h", max_run="40s"))
    store.claim(ticket.call.claim(ticket.record.nonce))  # and the reply was lost
    clock.advance("29s")
    monkeypatch.setattr(chores, "monotonic", lambda: ticket.taken_at + 41)
    assert chore.do() == 0.0
    assert chore.do() is None
    assert flight.good_until(1.0) < inf


def test_without_a_heartbeat_a_late_claim_is_not_renewed(calling, store):
    ticket, flight, chore = late(calling, store, Policy(lease="30s", ttl="1h", heartbeat=False))
    assert chore.do() is None
    assert flight.good_until(1.0) < inf
    assert not ticket.lost


def test_a_run_without_the_store_whose_code_is_gone_is_not_claimed_for(calling, store):
    ticket, flight, chore = late(calling, store, SOON)
    ticket.runner = frame_that_has_ended()
    assert chore.do() is None
    assert flight.landed
    assert store.get(None, "charge:42") is None


def test_a_run_without_the_store_beside_a_record_of_another_waits_for_nobody(calling, store):
    ticket, flight, chore = late(calling, store, SOON)
    store.claim(ticket.call.claim("somebody else"))
    assert chore.do() is None
    assert flight.landed
    assert ticket.lost


def test_a_claim_that_is_refused_is_made_later(calling):
    chore = LateClaim(SimpleNamespace(claim=broken), unprotected(calling()), Flights())
    assert chore.do() == RETRY


# Counts for charts


def sums(store):
    slots = [slot for slot in store.activity().slots if slot.width == RINGS[0].width]
    return {slot.at: slot.counts for slot in slots}


def test_what_was_counted_is_written_down_once(store, observers, calling):
    counting = Counting(store, observers)
    for name in ("new", "taken_over", "duplicate", "busy", "busy", "held", "refused", "completed"):
        observers.tell(name, calling())
    assert counting.do() == COUNT_EVERY
    assert counting.do() == COUNT_EVERY
    assert list(sums(store).values()) == [(2, 3, 1, 1)]


def test_a_process_without_calls_writes_nothing(store, observers, monkeypatch):
    monkeypatch.setattr(store, "add_activity", down)
    assert Counting(store, observers).do() == COUNT_EVERY
    assert store.activity().slots == []


def test_what_a_store_did_not_take_is_written_with_its_own_time(
    store, observers, calling, clock, monkeypatch
):
    counting = Counting(store, observers)
    present = monotonic()
    monkeypatch.setattr(chores, "monotonic", lambda: present)
    with monkeypatch.context() as outage:
        outage.setattr(store, "add_activity", forbidden)
        observers.tell("refused", calling())
        assert counting.do() == COUNT_EVERY
    present += 600
    clock.tick(600_000_000)
    observers.tell("new", calling())
    assert counting.do() == COUNT_EVERY
    ((earlier, first), (later, second)) = sorted(sums(store).items())
    assert (first, second) == ((0, 0, 0, 1), (1, 0, 0, 0))
    assert later - earlier == 600_000_000


@pytest.mark.parametrize("trouble", [down, broken])
def test_what_may_have_been_added_is_not_added_again(
    store, observers, calling, monkeypatch, trouble
):
    counting = Counting(store, observers)
    observers.tell("new", calling())
    with monkeypatch.context() as outage:
        outage.setattr(store, "add_activity", trouble)
        assert counting.do() == COUNT_EVERY
    assert counting.do() == COUNT_EVERY
    assert store.activity().slots == []


def test_a_store_that_refuses_the_counts_is_told_of_once(
    store, observers, calling, monkeypatch, caplog
):
    def refuse(*_):
        msg = "permission denied for table oncekey_activity"
        raise StoreAccessError(msg, happened=False)

    counting = Counting(store, observers)
    monkeypatch.setattr(store, "add_activity", refuse)
    for _ in range(3):
        observers.tell("new", calling())
        counting.do()
    [line] = caplog.messages
    assert line.startswith("the charts lack the calls of this process: permission denied")


def test_counts_do_not_keep_a_store_alive(observers):
    store = MemoryStore()
    counting = Counting(store, observers)
    del store
    gc.collect()
    assert counting.do() is None


def test_no_call_is_missed_when_threads_count_together(calling):
    observers = Observers([])
    call = calling()

    def tell(_):
        for _ in range(2000):
            observers.tell("duplicate", call)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tell, range(4)))
    assert observers.tally.take() == (0, 8000, 0, 0)
    assert observers.tally.take() == (0, 0, 0, 0)
