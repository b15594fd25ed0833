"""The breaker opens for what cannot be reached, and closes when something answers."""

import pytest

from oncekey import ConfigurationError, StoreError
from oncekey.engine import breaker
from oncekey.engine.breaker import OPENS_AFTER, Breaker, _Knock
from oncekey.stores import MemoryStore
from tests.faulty import FaultyStore

AWAY = StoreError("connection refused", happened=False, unreachable=True)
REFUSED = StoreError("read only", happened=False)


@pytest.fixture
def kept(monkeypatch):
    chores = []
    monkeypatch.setattr(breaker.keeper, "take_up", lambda chore, delay: chores.append(chore))
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
