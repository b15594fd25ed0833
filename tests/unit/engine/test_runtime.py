"""The core: which store, which colours, which cache, and one purge per process."""

import logging

import pytest

from oncekey.engine import runtime as module
from oncekey.engine.cache import Cache
from oncekey.engine.chores import PURGE_EVERY, Counting, Purging
from oncekey.engine.runtime import Core
from oncekey.errors import ConfigurationError
from oncekey.stores import MemoryStore, SQLiteStore
from oncekey.stores.adapters import Inline, Looped, OnLoop, Threaded
from oncekey.stores.base import VERBS


@pytest.fixture(autouse=True)
def keeper(monkeypatch):
    """A keeper that only writes down what it is given."""

    class Paper:
        def __init__(self):
            self.chores = []

        def take_up(self, chore, delay):
            self.chores.append((chore, delay))

    keeper = Paper()
    monkeypatch.setattr(module, "keeper", keeper)
    return keeper


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.delenv("ONCEKEY_STORE", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.chdir(tmp_path)


def made(store=None, cache=None, observers=()):
    return Core(store, observers, cache, "idempotency:")


# Which store


def test_a_store_is_taken_as_it_is():
    store = MemoryStore()
    assert made(store).store is store


def test_a_url_is_opened():
    assert isinstance(made("memory://").store, MemoryStore)
    assert isinstance(made("sqlite:///a.db").store, SQLiteStore)


def test_the_environment_names_the_store(monkeypatch):
    monkeypatch.setenv("REDIS_URL", "memory://")
    assert isinstance(made().store, MemoryStore)
    monkeypatch.setenv("ONCEKEY_STORE", "sqlite:///a.db")
    assert isinstance(made().store, SQLiteStore)


@pytest.mark.parametrize("name", ["ONCEKEY_STORE", "REDIS_URL"])
def test_a_wrong_word_in_the_environment_says_where_it_stands(monkeypatch, name):
    monkeypatch.setenv(name, "nowhere://here")
    with pytest.raises(ConfigurationError, match=rf"^\${name} names no store .*'nowhere://here'"):
        made()


def test_without_any_word_records_go_to_a_file_that_a_warning_names(caplog, tmp_path):
    assert isinstance(made().store, SQLiteStore)
    [entry] = caplog.records
    assert (entry.name, entry.levelno) == ("oncekey", logging.WARNING)
    expected = f"no store was given; records go to the file {tmp_path / 'oncekey.db'}"
    assert entry.getMessage() == expected
    assert not (tmp_path / "oncekey.db").exists()


class Half:
    def claim(self, ask, /): ...

    get = "not a function"


@pytest.mark.parametrize(
    ("wrong", "missing"),
    [(Half(), [verb for verb in VERBS if verb != "claim"]), (7, VERBS), (object(), VERBS)],
)
def test_something_that_is_no_store_is_refused_with_what_it_lacks(wrong, missing):
    with pytest.raises(ConfigurationError) as caught:
        made(wrong)
    assert str(caught.value) == (
        "a store is a URL, an engine of SQLAlchemy or an object with the verbs of "
        "oncekey.stores.Store, but "
        f"{type(wrong).__name__} has no {', '.join(missing)}"
    )


# Both colours


class Native:
    """An async store, as far as anybody looks at it here."""

    async def claim(self, ask, /): ...

    async def aclose(self): ...


for verb in VERBS:
    setattr(Native, verb, Native.claim)


class Foreign:
    """A blocking store that somebody else wrote."""

    def claim(self, ask, /): ...

    def close(self): ...


for verb in VERBS:
    setattr(Foreign, verb, Foreign.claim)


def test_a_blocking_store_says_how_it_is_awaited():
    core = made(MemoryStore())
    assert isinstance(core.store_async, Inline)
    assert not isinstance(core.store_async, Threaded)
    assert core.store_async is core.store_async


def test_a_blocking_store_that_does_not_say_is_awaited_in_threads():
    core = made(Foreign())
    assert isinstance(core.store_async, Threaded)
    assert core.store_async.blocking is core.store


async def test_an_async_store_serves_coroutines_only():
    core = made(Native())
    assert isinstance(core.store_async, Looped)
    with pytest.raises(ConfigurationError) as caught:
        _ = core.store
    words = "this Once has an async store; use the _async methods and coroutine functions"
    assert str(caught.value) == words
    with pytest.raises(ConfigurationError):
        core.engine()
    assert isinstance(core.engine_async()._behind, OnLoop)


async def test_there_is_one_engine_per_colour():
    core = made(MemoryStore())
    assert core.engine() is core.engine()
    assert core.engine_async() is core.engine_async()
    assert core.engine()._flights is core.engine_async()._flights is core.flights
    assert core.engine()._behind is core.engine_async()._behind is core.store


# The cache


@pytest.mark.fast_path("what the local cache does")
@pytest.mark.parametrize(
    ("store", "wanted", "size"),
    [
        (MemoryStore(), None, None),
        (MemoryStore(), False, None),
        (MemoryStore(), True, 16 * 1024**2),
        (MemoryStore(), "1MiB", 1024**2),
        (MemoryStore(), 4096, 4096),
        (Foreign(), None, 16 * 1024**2),
        (Foreign(), False, None),
        (Native(), None, 16 * 1024**2),
    ],
)
def test_a_cache_is_there_where_it_is_wanted_or_saves_a_way(store, wanted, size):
    cache = made(store, wanted).cache
    if size is None:
        assert cache is None
    else:
        assert isinstance(cache, Cache)
        assert cache._size == size


@pytest.mark.parametrize("wrong", [-1, "large", 1.5])
def test_a_cache_has_a_size(wrong):
    with pytest.raises(ConfigurationError, match=r"^cache must be a number of bytes above zero"):
        made(MemoryStore(), wrong)


@pytest.mark.fast_path("what the local cache does")
def test_what_is_changed_by_hand_leaves_the_cache(recorded):
    core = made(MemoryStore(), cache=True)
    assert core.cache is not None
    core.cache.put(recorded(status="completed"), 1, 1.0)
    core.forgotten(("billing", "charge:42"))
    assert core.cache.get(("billing", "charge:42")) is None
    made(MemoryStore()).forgotten(("billing", "charge:42"))


# Purging


async def test_each_process_purges_once_whatever_colour_it_uses(keeper):
    core = made(MemoryStore())
    assert not keeper.chores
    core.engine()
    core.engine_async()
    core.engine()
    [(chore, delay), (counting, _)] = keeper.chores
    assert isinstance(chore, Purging)
    assert isinstance(counting, Counting)
    assert delay == PURGE_EVERY
    assert chore._store() is counting._store() is core.store
    core.after_fork()
    core.engine_async()
    core.engine()
    assert len(keeper.chores) == 4


def test_a_forked_child_does_not_write_down_the_calls_of_its_parent(calling):
    core = made(MemoryStore())
    core.observers.tell("new", calling())
    core.after_fork()
    core.observers.tell("duplicate", calling())
    assert core.observers.tally.take() == (0, 1, 0, 0)


def test_a_store_that_keeps_no_counts_is_not_asked_to(keeper):
    class Plain:
        def __init__(self):
            store = MemoryStore()
            for verb in VERBS:
                setattr(self, verb, getattr(store, verb))

    made(Plain()).engine()
    assert [type(chore) for chore, _ in keeper.chores] == [Purging]


def test_observers_are_checked_when_the_core_is_made():
    with pytest.raises(ConfigurationError, match="an observer must be a callable"):
        made(MemoryStore(), observers=["log"])
