"""A record whose bytes are not what oncekey writes: all are told so, and nothing is changed."""

import pytest

from oncekey import Once, UnreadableError
from oncekey.core.requests import Forget, Note, Renew, Resolve
from oncekey.stores import AsyncRedisStore, RedisStore
from tests.servers.redis_asks import HOUR, ask, release, settle
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]

NAME = "idempotency:test-123"
# Sizes stand at the end of the head: of nonce, fingerprint, label, reference, error and notes.
SIZES = 79


def with_bytes(place, data):
    return lambda stored: stored[:place] + data + stored[place + len(data) :]


DAMAGES = {
    "only the name": lambda stored: stored[:4],
    "cut off in the head": lambda stored: stored[:60],
    "cut off in the texts": lambda stored: stored[:-1],
    "a nonce without end": with_bytes(SIZES, b"\xff\xff"),
    "notes without end": with_bytes(SIZES + 12, b"\xff\xff\xff\xff"),
}


@pytest.fixture(params=DAMAGES, ids=list(DAMAGES))
def damaged(request, empty_redis):
    """A record that was whole, its owner, and the server where it is damaged now."""
    store = RedisStore.from_url(empty_redis.url)
    record = store.claim(ask()).record
    with empty_redis.client() as client:
        client.set(NAME, DAMAGES[request.param](client.get(NAME)))
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
