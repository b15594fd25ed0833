"""A doctor at the first use: what is dangerous is logged or refused, in both colours."""

import asyncio
import logging
import os

import pytest

from oncekey import ConfigurationError, Once, StoreError
from oncekey.doctor import startup
from oncekey.doctor.finding import danger, warning
from oncekey.stores import AsyncRedisStore, MemoryStore, RedisStore
from tests.servers.redis_fixtures import another_redis  # noqa: F401 - a fixture

WAYS = ["blocking", "coroutines", "coroutines on an async store"]
BAD = danger("some.check", "records vanish", "setting=bad", "set it to good")
RISKY = warning("other.check", "some may vanish", "setting=so-so", "set it to good")


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, "oncekey")
    return lambda: [
        (one.levelname, one.getMessage())
        for one in caplog.records
        if one.getMessage().startswith("doctor")
    ]


@pytest.fixture(params=WAYS)
def calls(request):
    """Makes calls one after the other, on a store of its own."""

    def use(url, doctor, *keys):
        if request.param == "blocking":
            once = Once(url, doctor=doctor)
            try:
                return [once.run(key, lambda: 7) for key in keys]
            finally:
                once.close()
        store = url if request.param == "coroutines" else AsyncRedisStore.from_url(url)
        return asyncio.run(_calls(Once(store, doctor=doctor), keys))

    return use


async def _calls(once, keys):
    async def seven():
        return 7

    try:
        return [await once.run_async(key, seven) for key in keys]
    finally:
        await once.aclose()


def test_what_is_dangerous_is_refused_before_anything_is_claimed(safe_redis, calls, log):
    with safe_redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(ConfigurationError) as caught:
            calls(safe_redis.url, "refuse", "k")
        assert not client.keys()
    words = str(caught.value)
    assert words.startswith("the doctor refuses this store: redis.eviction: a full server removes")
    assert "(maxmemory-policy=allkeys-lru, maxmemory=0); set maxmemory-policy to" in words
    assert not log()


def test_what_is_dangerous_is_logged_once_and_runs(safe_redis, calls, log):
    with safe_redis.client() as client:
        client.config_set("appendfsync", "no")
        client.config_set("maxmemory-policy", "allkeys-lru")
    assert calls(safe_redis.url, "warn", "a", "b") == [7, 7]
    first, second = log()
    assert first[0] == second[0] == "WARNING"
    assert first[1].startswith("doctor: a full server removes records")
    assert second[1].startswith("doctor: a power cut loses")


@pytest.mark.parametrize("doctor", ["warn", "refuse"])
def test_a_safe_store_is_used_without_a_word(safe_redis, calls, log, doctor):
    assert calls(safe_redis.url, doctor, "a", "b") == [7, 7]
    assert not log()


def test_a_store_that_does_not_answer_is_the_call_s_own_trouble(calls, another_redis, log):  # noqa: F811 - as above
    server = another_redis()
    server.kill()
    with pytest.raises(StoreError, match="cannot be reached"):
        calls(server.url, "refuse", "k")
    assert not log()


# When it looks


class Examined:
    """Stands in for the examination, and counts."""

    def __init__(self, monkeypatch):
        self.count = 0
        self.answers = []
        monkeypatch.setattr(startup, "examine", self.look)
        monkeypatch.setattr(startup, "examine_async", self.look_async)

    def look(self, store, **asked):
        self.count += 1
        self.asked = asked
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def look_async(self, store, **asked):
        await asyncio.sleep(0)
        return self.look(store, **asked)


@pytest.fixture
def examined(monkeypatch):
    return Examined(monkeypatch)


class AsyncMemory:
    """A store for coroutines only."""

    def __init__(self):
        self._store = MemoryStore()

    async def claim(self, ask):
        return self._store.claim(ask)

    def __getattr__(self, name):
        verb = getattr(self._store, name)

        async def ask(*arguments):
            return verb(*arguments)

        return ask


def test_it_looks_once(examined):
    once = Once(MemoryStore(), doctor="refuse")
    assert examined.count == 0
    for key in "abc":
        once.run(key, lambda: 7)
        with once.attempt(f"attempt {key}"):
            pass
    assert examined.count == 1
    assert once.core.engine().examine is None


async def test_those_who_come_together_wait_for_one_look(examined):
    async def seven():
        return 7

    once = Once(AsyncMemory(), doctor="refuse")
    await asyncio.gather(*(once.run_async(str(key), seven) for key in range(10)))
    assert examined.count == 1
    examined.answers = [[BAD]]
    other = Once(AsyncMemory(), doctor="refuse")
    refused = await asyncio.gather(
        *(other.run_async(str(key), seven) for key in range(10)), return_exceptions=True
    )
    assert {type(one) for one in refused} == {ConfigurationError}
    assert examined.count == 2


def test_a_store_that_was_dangerous_is_looked_at_again_after_a_while(examined, monkeypatch):
    examined.answers = [[BAD, RISKY], [RISKY]]
    once = Once(MemoryStore(), doctor="refuse")
    for _ in range(3):
        with pytest.raises(ConfigurationError, match=r"some\.check: records vanish"):
            once.run("k", lambda: 7)
    assert examined.count == 1
    monkeypatch.setattr(once.core.doctor, "_due", 0.0)
    assert once.run("k", lambda: 7) == 7
    assert examined.count == 2


@pytest.mark.parametrize("error", [StoreError("away"), ConfigurationError("no"), KeyError("ours")])
def test_an_examination_that_fails_stops_nothing_and_is_made_again(
    examined, log, error, monkeypatch
):
    examined.answers = [error, []]
    once = Once(MemoryStore(), doctor="refuse")
    assert [once.run(key, lambda: 7) for key in "ab"] == [7, 7]
    assert examined.count == 1
    assert bool(log()) == isinstance(error, KeyError)
    monkeypatch.setattr(once.core.doctor, "_due", 0.0)
    once.run("c", lambda: 7)
    assert examined.count == 2


def test_warnings_are_logged_either_way_and_the_settings_are_handed_on(examined, log, monkeypatch):
    monkeypatch.setenv("ONCEKEY_RETRY_HORIZON", "3d")
    examined.answers = [[RISKY]]
    once = Once(MemoryStore(), doctor="refuse")
    assert once.run("k", lambda: 7) == 7
    assert log() == [("WARNING", f"doctor: {RISKY.sentence}")]
    assert examined.asked == {"ttl": 86400.0, "retry_horizon": "3d"}


def test_a_forked_child_looks_for_itself(examined):
    once = Once(MemoryStore(), doctor="warn")
    once.run("k", lambda: 7)
    child = os.fork()
    if not child:  # pragma: no cover - the child leaves without telling
        once.run("k", lambda: 7)
        doctor = once.core.doctor
        doctor.check()
        os._exit(examined.count)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


@pytest.mark.parametrize("wrong", ["yes", True, ""])
def test_other_words_are_refused_at_once(wrong):
    with pytest.raises(ConfigurationError, match='doctor must be "warn", "refuse" or None'):
        Once(MemoryStore(), doctor=wrong)


def test_a_ttl_that_is_too_short_is_refused(safe_redis, monkeypatch):
    monkeypatch.setenv("ONCEKEY_RETRY_HORIZON", "3d")
    once = Once(RedisStore.from_url(safe_redis.url), doctor="refuse")
    with pytest.raises(ConfigurationError, match="ttl=1d, retry horizon=3d"):
        once.run("k", lambda: 7)
    once.close()
