"""The breaker opens for what cannot be reached, and closes when something answers."""

import threading

import pytest

from oncekey import ConfigurationError, StoreError
from oncekey.core.requests import Scan
from oncekey.engine import breaker
from oncekey.engine.breaker import KNOCK_EVERY, OPENS_AFTER, Breaker, _Knock
from oncekey.observe import Observers
from oncekey.stores import MemoryStore
from tests.faulty import FaultyStore

AWAY = StoreError("connection refused", happened=False, unreachable=True)
REFUSED = StoreError("read only", happened=False)


@pytest.fixture
def kept(monkeypatch):
    """The chores that this test gives to the keeper, which goes on with those of others."""
    chores, here, take_up = [], threading.get_ident(), breaker.keeper.take_up

    def keep(chore, delay):
        if threading.get_ident() == here:
            chores.append(chore)
        else:
            take_up(chore, delay)

    monkeypatch.setattr(breaker.keeper, "take_up", keep)
    return chores


def opened(store):
    made = Breaker(store)
    for _ in range(OPENS_AFTER):
        made.check()
        made.missed(AWAY)
    return made


def test_it_opens_after_a_few_misses_and_knocks_once(kept):
    made = opened(MemoryStore())
    with pytest.raises(StoreError) as caught:
        made.check()
    assert (caught.value.happened, caught.value.unreachable) == (False, True)
    made.missed(AWAY)
    assert len(kept) == 1


def test_a_store_that_answers_no_is_not_out_of_reach(kept):
    made = Breaker(MemoryStore())
    for _ in range(10):
        made.missed(REFUSED)
    made.check()


def test_an_answer_in_between_starts_the_count_anew(kept):
    made = Breaker(MemoryStore())
    for _ in range(10):
        made.missed(AWAY)
        made.answered()
    made.check()


def test_the_first_answer_closes_it(kept):
    store = FaultyStore(MemoryStore())
    made = opened(store)
    (knock,) = kept
    store.cut_off("get")
    assert knock.do() == breaker.KNOCK_EVERY
    assert made.open
    assert knock.do() is None
    made.check()
    assert _Knock(made, store).do() is None  # somebody else heard it first


@pytest.mark.parametrize("error", [ConfigurationError("damaged"), PermissionError()])
def test_an_answer_that_something_is_wrong_is_an_answer(kept, error):
    def wrong(do):
        raise error

    store = FaultyStore(MemoryStore())
    made = opened(store)
    store.instead("get", wrong)
    assert kept[0].do() is None
    made.check()


def test_a_child_of_a_process_whose_store_was_down_asks_for_itself(kept):
    made = opened(MemoryStore())
    made.after_fork()  # the knocking stays with the parent
    made.check()


# A store that records nothing


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture
def heard():
    return []


def tried(store, heard):
    """A breaker that was told of a settle that failed."""
    made = Breaker(store, Observers([heard.append]))
    made.not_recorded()
    return made


def names(heard):
    return [event.name for event in heard]


def test_one_settle_that_fails_is_no_reason_to_refuse_all_claims(kept, store, heard):
    made = tried(store, heard)
    made.not_recorded()
    (trial,) = kept  # one at a time
    assert trial.do() is None
    made.check()
    assert not heard
    assert store.scan(Scan()).records == []  # nothing is left of the trial
    made.not_recorded()
    assert len(kept) == 2


def test_while_nothing_is_recorded_nothing_is_claimed(kept, store, heard):
    made = tried(store, heard)
    (trial,) = kept
    for _ in range(2):
        store.refuse("settle")
        assert trial.do() == KNOCK_EVERY
        with pytest.raises(StoreError, match="records nothing") as caught:
            made.check()
        assert (caught.value.happened, caught.value.unreachable) == (False, False)
    assert len(store.scan(Scan()).records) == 1  # always the same one
    assert names(heard) == ["breaker_opened"]
    assert trial.do() is None
    made.check()
    assert names(heard) == ["breaker_opened", "breaker_closed"]
    assert store.scan(Scan()).records == []


@pytest.mark.parametrize("verb", ["claim", "settle"])
def test_a_trial_whose_reply_was_lost_is_tried_again(kept, store, heard, verb):
    made = tried(store, heard)
    store.lose_reply(verb)
    assert kept[0].do() == KNOCK_EVERY
    assert kept[0].do() is None
    made.check()


def test_a_trial_that_cannot_be_forgotten_has_worked(kept, store, heard):
    made = tried(store, heard)
    store.refuse("forget")
    assert kept[0].do() is None
    made.check()


def test_a_claim_that_is_answered_does_not_say_that_anything_is_recorded(kept, store, heard):
    made = tried(store, heard)
    store.refuse("settle")
    kept[0].do()
    made.answered()
    assert made.open
    made.after_fork()
    made.check()
