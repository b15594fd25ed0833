"""A record whose bytes are not what oncekey writes: all are told so, and nothing is changed."""

import msgspec
import pytest

from oncekey import Once, UnreadableError
from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.verbs import Forget, Note, Renew, Resolve
from tests.servers.redis_asks import HOUR, ask, release, settle
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]

NAME = "idempotency:test-123"
pack = msgspec.msgpack.encode


def cut(packed):
    return packed[:-3]


def replaced(place, value):
    def damage(packed):
        fields = msgspec.msgpack.decode(packed)
        fields[place] = value
        return pack(fields)

    return damage


DAMAGES = {
    "nothing": lambda _: b"",
    "no packed value": lambda _: b"\xc1",
    "a word": lambda _: b"garbage",
    "cut off": cut,
    "a number": lambda _: pack(7),
    "a map": lambda _: pack({"a": 1}),
    "too short": lambda _: pack([1, 0]),
    "no format": replaced(0, "one"),
    "no time": replaced(6, "never"),
    "no token": replaced(5, False),
}


@pytest.fixture(params=DAMAGES, ids=list(DAMAGES))
def damaged(request, empty_redis):
    """A record that was whole, its owner, and the server where it is damaged now."""
    store = RedisStore.from_url(empty_redis.url)
    record = store.claim(ask()).record
    with empty_redis.client() as client:
        client.hset(NAME, "m", DAMAGES[request.param](client.hget(NAME, "m")))
        before = client.dump(NAME)
        yield store, record
        assert client.dump(NAME) == before
    store.close()


def test_every_verb_says_so(damaged):
    store, record = damaged
    owner = {"token": record.token, "nonce": record.nonce}
    place = (None, "test-123")
    asked = {
        store.claim: ask(nonce="b"),
        store.renew: Renew(*place, **owner, lease=HOUR, ttl=HOUR),
        store.note: Note(*place, **owner, revision=1, noted=b"x"),
        store.settle: settle(record),
        store.release: release(record),
        store.resolve: Resolve(
            *place, token=record.token, status="completed", result=b"", error=None, ttl=HOUR
        ),
        store.forget: Forget(*place, token=record.token, force=True),
    }
    for verb, said in asked.items():
        with pytest.raises(UnreadableError, match="or was damaged") as told:
            verb(said)
        assert (told.value.scope, told.value.key) == place
    with pytest.raises(UnreadableError):
        store.get(*place)
    with pytest.raises(UnreadableError):
        store.watch(*place, record.token, 1)


async def test_in_the_other_colour_too(damaged, empty_redis):
    store = AsyncRedisStore.from_url(empty_redis.url)
    with pytest.raises(UnreadableError, match="or was damaged"):
        await store.claim(ask(nonce="b"))
    await store.aclose()


def test_a_call_does_not_run_again(damaged, empty_redis):
    once = Once(empty_redis.url, cache=False, observers=())
    with pytest.raises(UnreadableError):
        once.run("test-123", pytest.fail)
    once.close()
