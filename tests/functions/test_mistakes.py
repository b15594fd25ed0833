"""What a newcomer writes wrongly, and the one sentence that says what to write instead."""

import asyncio
import copy
import pickle
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

import pytest
import redis
import redis.asyncio
from msgspec.structs import replace

from oncekey import ConfigurationError, InvalidKeyError, Once, Policy
from oncekey.engine import run
from oncekey.stores import MemoryStore


def test_a_once_takes_the_fields_of_a_policy():
    once = Once("memory://", ttl="7d", policy=Policy(ttl="1h", lease="1min"))
    once.run("k", lambda: 1)
    record = once.get("k")
    assert record.expires - record.finished == 7 * 86400 * 1_000_000
    assert once._terms.lease == 60_000_000


@pytest.mark.parametrize("use", [Once, Once("memory://"), Once("memory://").options])
def test_an_unknown_option_is_told_with_the_one_that_was_meant(use):
    store = () if use.__class__ is not type else ("memory://",)
    arguments = ("k",) if isinstance(use, Once) else store
    with pytest.raises(ConfigurationError, match="no option 'tll'; did you mean 'ttl'"):
        use(*arguments, tll="24h")
    with pytest.raises(ConfigurationError, match="no option 'colour'; there are ttl, lease"):
        use(*arguments, colour="red")


@pytest.mark.parametrize("off", [0, False])
def test_a_cache_of_nothing_is_off(off):
    assert Once("redis://127.0.0.1:1/0", cache=off).core.cache is None


def test_once_without_a_key_says_how_to_write_one(once):
    @once
    def charge(order):
        return order

    with pytest.raises(ConfigurationError, match=r"write @once\('.*charge:{id}'\)"):
        charge("o-1")
    with pytest.raises(ConfigurationError, match="without a key"):
        charge(order="o-1")
    with pytest.raises(ConfigurationError, match="is a decorator; put it above a function"):
        once("charge:{order}")("o-1", 2)


def test_one_observer_instead_of_a_list(store):
    with pytest.raises(ConfigurationError, match=r"write observers=\[print\]"):
        Once(store, observers=print)
    with pytest.raises(ConfigurationError, match=r"write observers=\[7\]"):
        Once(store, observers=7)


def test_a_client_of_redis_instead_of_a_store():
    with pytest.raises(ConfigurationError, match=r"write Once\(RedisStore\(client\)\)"):
        Once(redis.Redis())
    with pytest.raises(ConfigurationError, match=r"write Once\(AsyncRedisStore\(client\)\)"):
        Once(redis.asyncio.Redis())


def test_the_class_of_a_store_instead_of_a_store():
    with pytest.raises(
        ConfigurationError, match=r"is a class; write Once\(MemoryStore\(\.\.\.\)\)"
    ):
        Once(MemoryStore)


def test_a_prefix_is_a_string_and_active_is_true_or_false():
    with pytest.raises(ConfigurationError, match="prefix must be a string, but it is b'x:'"):
        Once("memory://", prefix=b"x:")
    with pytest.raises(ConfigurationError, match="active must be True or False, but it is 'no'"):
        Once("memory://", active="no")


def test_a_coroutine_under_another_library_is_refused_before_anything_is_claimed():
    """A loop that is not of asyncio, such as that of trio, drives the coroutine."""
    store = MemoryStore()

    async def work():
        return 1

    driven = Once(store).run_async("k", work)
    with pytest.raises(ConfigurationError, match="under trio"):
        driven.send(None)
    assert store.get(None, "k") is None
    assert asyncio.run(Once(store).run_async("k", work)) == 1


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize("value", [{"total": Decimal(1)}, (1, 2), Colour.RED])
def test_in_strict_mode_a_result_that_duplicates_could_not_get_is_an_error(
    once, monkeypatch, value
):
    monkeypatch.setenv("ONCEKEY_STRICT", "1")
    with pytest.raises(ConfigurationError, match="annotate what the function returns"):
        once.run("k", lambda: value)
    assert once.get("k").status == "completed"
    monkeypatch.delenv("ONCEKEY_STRICT")
    assert once.run("other", lambda: value) == value


def test_an_annotation_that_cannot_be_used_is_named(caplog):
    """The user has annotated the function: to ask for an annotation would not help."""

    @dataclass
    class Parcel:
        weight: int

    @dataclass
    class Letter:
        weight: int

    def send() -> Parcel | Letter:
        return Letter(1)

    def post() -> "Parcels":  # type: ignore[name-defined]  # noqa: F821 - the point
        return Letter(1)

    once = Once("memory://")
    once.run("sent", send)
    once.run("posted", post)
    two, missing = [record.getMessage() for record in caplog.records]
    assert "Letter would come back as dict; the return annotation cannot be used: " in two
    assert "more than one dataclass" in two
    assert "the return annotation cannot be used: name 'Parcels' is not defined" in missing


def test_a_once_cannot_be_pickled_or_copied():
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="create it in a module that each process imports"):
            copying(Once("memory://"))


@pytest.mark.parametrize("name", ["ONCEKEY_DISABLED", "ONCEKEY_STRICT"])
def test_a_switch_in_the_environment_is_on_or_off(monkeypatch, name):
    monkeypatch.setenv(name, "flase")
    with pytest.raises(ConfigurationError, match=f"{name} is a switch: .* 1 or 0, not to 'flase'"):
        Once("memory://")
    monkeypatch.setenv(name, "Off")
    assert Once("memory://").run("k", lambda: 1) == 1


def test_a_response_over_http_may_be_one_that_is_not_kept(once, monkeypatch):
    """It may be too large, or a stream that does not end."""
    monkeypatch.setenv("ONCEKEY_STRICT", "1")
    call = replace(once._call_of("k", Colour, (1,), {}), surface="http")
    engine = once.core.engine()
    started = run.enter(engine, call, active=True)
    with started:
        started.complete(Colour.RED)
    assert once.get("k").status == "completed"


@pytest.mark.parametrize("key", ["charge:{order_id}", "charge:{order.id}:{n}", "{key}"])
async def test_a_key_whose_f_was_forgotten_is_refused(once, key):
    """It would be the same for every order, and the second one would be taken for a duplicate."""
    said = r"nothing fills in the placeholder of the key '.*'; write f'"
    with pytest.raises(InvalidKeyError, match=said):
        once.run(key, lambda: 5)
    with pytest.raises(InvalidKeyError, match=said):
        await once.run_async(key, asyncio.sleep, 0)
    with pytest.raises(InvalidKeyError, match=said):
        once.attempt(key)
    with pytest.raises(InvalidKeyError, match=said):
        once.check(key)

    @once(lambda _: key)
    def charge(order): ...

    with pytest.raises(InvalidKeyError, match=said):
        charge(1)
    assert once.get(key) is None  # others may have made such a key, and it can be looked at


@pytest.mark.parametrize("key", ["{}", "a{b", '{"id": 5}', "{3F2504E0-4F89-11D3}", "%7Bshop%7D"])
def test_other_braces_are_part_of_a_key(once, key):
    assert once.run(key, lambda: 5) == 5
