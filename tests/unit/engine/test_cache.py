"""The cache: settled records, bounded in bytes and in time."""

import pytest

from oncekey.engine import cache as module
from oncekey.engine.cache import FRESH, Cache

pytestmark = pytest.mark.fast_path("what the local cache does")

NOW = 1_767_225_600_000_000
LAST = NOW + 86_400_000_000
THEN = 100.0


@pytest.fixture
def clock(monkeypatch):
    """The process's clock, moved by hand."""

    class Clock:
        now = THEN

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


@pytest.fixture
def settled(recorded):
    def make(key, size=0, **fields):
        facts = {"status": "completed", "result": b"x" * size, "expires": LAST, "scope": None}
        return recorded(key=key, **(facts | fields))

    return make


def test_a_record_is_answered_with_the_time_of_now(clock, settled):
    cache, record = Cache(10_000), settled("a")
    cache.put(record, NOW, THEN)
    clock.now += 1.5
    answer = cache.get((None, "a"))
    assert answer is not None
    assert (answer.record, answer.now) == (record, NOW + 1_500_000)


def test_what_was_never_put_is_not_there(settled):
    cache = Cache(10_000)
    cache.put(settled("a"), NOW, THEN)
    assert cache.get((None, "b")) is None
    assert cache.get(("s", "a")) is None


def test_a_record_leaves_when_it_is_not_fresh_any_more(clock, settled):
    cache = Cache(10_000)
    cache.put(settled("a"), NOW, THEN)
    clock.now += FRESH - 0.001
    assert cache.get((None, "a")) is not None
    clock.now += 0.001
    assert cache.get((None, "a")) is None
    assert cache._used == 0


def test_a_record_leaves_when_it_expires(clock, settled):
    cache = Cache(10_000)
    cache.put(settled("a", expires=NOW + 1_000_000), NOW, THEN)
    clock.now += 0.999
    assert cache.get((None, "a")) is not None
    clock.now += 0.001
    assert cache.get((None, "a")) is None


def test_the_oldest_makes_room(settled):
    cache = Cache(3 * 700)
    for key in "abc":
        cache.put(settled(key, 100), NOW, THEN)
    cache.put(settled("d", 100), NOW, THEN)
    assert cache.get((None, "a")) is None
    assert all(cache.get((None, key)) for key in "bcd")
    cache.put(settled("e", 800), NOW, THEN)
    assert [key for key in "bcde" if cache.get((None, key))] == ["d", "e"]


def test_what_does_not_fit_is_not_kept_and_costs_nobody_his_place(settled):
    cache = Cache(1000)
    cache.put(settled("a"), NOW, THEN)
    cache.put(settled("b", 401), NOW, THEN)
    assert cache.get((None, "b")) is None
    assert cache.get((None, "a")) is not None


def test_what_just_fits_is_kept(settled):
    cache = Cache(1000)
    cache.put(settled("a", 400), NOW, THEN)
    assert cache.get((None, "a")) is not None


def test_failures_and_notes_weigh_too(settled):
    cache = Cache(1000)
    cache.put(settled("a", result=None, error=b"e" * 401), NOW, THEN)
    cache.put(settled("b", noted=b"n" * 401), NOW, THEN)
    assert cache.get((None, "a")) is None
    assert cache.get((None, "b")) is None


def test_a_record_put_again_replaces_the_first_and_weighs_once(settled):
    cache = Cache(1000)
    for _ in range(5):
        cache.put(settled("a", 100), NOW, THEN)
    cache.put(settled("a", 50, attempt=2), NOW, THEN)
    answer = cache.get((None, "a"))
    assert answer is not None
    assert answer.record.attempt == 2
    assert cache._used == 650


def test_a_dropped_record_is_gone_and_weighs_nothing(settled):
    cache = Cache(1000)
    cache.put(settled("a"), NOW, THEN)
    cache.drop((None, "a"))
    cache.drop((None, "a"))
    assert cache.get((None, "a")) is None
    assert cache._used == 0


def test_what_was_asked_for_before_a_record_was_dropped_is_not_kept(clock, settled):
    """The store may have answered before the record was forgotten, and be heard after it."""
    cache = Cache(1000)
    clock.now += 1
    cache.drop((None, "a"))
    cache.put(settled("a"), NOW, clock.now)
    assert cache.get((None, "a")) is None
    cache.put(settled("a"), NOW, clock.now + 0.001)
    assert cache.get((None, "a")) is not None


def test_a_child_starts_empty(settled):
    cache = Cache(1000)
    cache.put(settled("a"), NOW, THEN)
    cache._lock.acquire()
    cache.after_fork()
    assert cache.get((None, "a")) is None
    cache.put(settled("b"), NOW, THEN)
    assert cache.get((None, "b")) is not None
