"""A store that fails when a test says so, and only then."""

import asyncio

import pytest

from oncekey import ConfigurationError, Once, StoreError
from oncekey.core.requests import Renew, Verdict
from oncekey.stores import MemoryStore, Store
from oncekey.stores.base import VERBS
from oncekey.testing import FailingStore, FakeClock


@pytest.fixture
def store():
    return FailingStore(MemoryStore(clock=FakeClock()))


@pytest.fixture
def once(store):
    return Once(store, observers=())


def test_a_refused_claim_runs_nothing(store, once):
    store.refuse("claim")
    with pytest.raises(StoreError) as told:
        once.run("job", lambda: pytest.fail("it ran"))
    assert (told.value.happened, told.value.unreachable) == (False, False)
    assert once.run("job", lambda: "done") == "done"


def test_a_store_that_is_cut_off_says_so(store, once):
    store.cut_off("claim", times=2)
    for _ in range(2):
        with pytest.raises(StoreError) as told:
            once.run("job", lambda: pytest.fail("it ran"))
        assert told.value.unreachable
    assert once.run("job", lambda: "done") == "done"


def test_a_lost_reply_is_asked_for_again(store, once):
    store.lose_reply("claim")
    store.lose_reply("settle", times=2)
    assert once.run("job", lambda: "done") == "done"
    assert (store.calls["claim"], store.calls["settle"]) == (2, 3)
    assert once.get("job").attempt == 1


def test_the_number_says_which_call_from_now_on(store, once):
    once.run("first", lambda: None)
    store.refuse("claim", number=2)
    once.run("second", lambda: None)
    with pytest.raises(StoreError):
        once.run("third", lambda: None)


def test_anything_can_happen_instead(store, once):
    seen = []

    def noted(do):
        seen.append(once.get("job").status)
        return do()

    store.instead("settle", noted)
    once.run("job", lambda: "done")
    assert seen == ["running"]


def test_it_heals(store, once):
    store.refuse("claim", times=99)
    store.heal()
    assert once.run("job", lambda: "done") == "done"


def test_coroutines_meet_the_same_failures(store, once):
    async def work():
        return "done"

    store.lose_reply("settle")
    assert asyncio.run(once.run_async("job", work)) == "done"
    assert store.calls["settle"] == 2


def test_every_verb_reaches_the_store_and_can_fail(store, once):
    """Those that a run does not use: an operator's."""
    assert isinstance(store, Store)

    def fail():
        raise TimeoutError

    strict = once.options(on_crash="hold")
    for key, ending in (("a", {"result": 1}), ("b", {"retry": True})):
        with pytest.raises(TimeoutError):
            strict.run(key, fail)
        assert strict.resolve(key, **ending)
    with strict.attempt("c") as attempt:
        attempt.note(seen=True)
    assert store.renew(Renew(None, "c", token=1, nonce="", lease=1, ttl=1)) is Verdict.LOST
    assert [record.key for record in strict.scan()] == ["a", "b", "c"]
    assert strict.forget("a")
    assert strict.purge() == 0
    strict.close()
    assert set(store.calls) == set(VERBS)
    for verb, ask in (("get", once.get), ("forget", once.forget), ("resolve", None)):
        store.refuse(verb)
        with pytest.raises(StoreError):
            ask("b") if ask else store.resolve(None)


def test_a_verb_that_there_is_not_is_a_mistake(store):
    with pytest.raises(ConfigurationError, match="no verb 'setle'; it has claim"):
        store.refuse("setle")
    with pytest.raises(ConfigurationError, match="count from 1"):
        store.refuse("settle", number=0)


def test_without_a_store_it_has_one_in_memory():
    assert Once(FailingStore(), observers=()).run("job", lambda: 1) == 1
