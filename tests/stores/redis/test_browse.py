"""Listing Redis: steps of SCAN, keys of others, clusters, and records of newer releases."""

import struct

import pytest
import redis
import redis.asyncio

from oncekey import ConfigurationError, Once, StoreError, UnreadableError
from oncekey.inspection.listing import (
    count_records,
    fill_page,
    find_record,
    list_records,
    read_audit,
)
from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.stores.activity import RINGS
from oncekey.stores.browse import RecordQuery
from oncekey.stores.redis import browse
from oncekey.stores.redis.commands import activity_hash
from tests.servers.redis_fixtures import (
    another_redis,
    empty_cluster,
    empty_redis,
    redis_cluster,
    redis_server,
)

__all__ = [
    "another_redis",
    "empty_cluster",
    "empty_redis",
    "redis_cluster",
    "redis_server",
]

MANY = 2000


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
def store(client):
    return RedisStore(client)


def filled(store, count):
    once = Once(store, observers=(), cache=False)
    for number in range(count):
        once.run(f"key-{number}", lambda: "done")


def copied(client, count):
    """So many records like the first, made by the server."""
    script = """
        for number = 1, ARGV[1] do
          redis.call('COPY', 'idempotency:key-0', 'idempotency:copy-' .. number)
        end
    """
    client.eval(script, 0, count)


def keys_of(store, **asked):
    keys, after, pages = [], None, 0
    while True:
        sight = list_records(store, RecordQuery(after=after, **asked))
        keys += [record.key for record in sight.records]
        pages, after = pages + 1, sight.after
        if after is None:
            return keys, pages


def commands(client, wanted):
    """How often the server has carried out a command."""
    return client.info("commandstats").get(f"cmdstat_{wanted}", {}).get("calls", 0)


def test_a_page_is_one_step_and_nothing_asks_for_all_keys(store, client):
    filled(store, 1)
    copied(client, MANY)
    client.config_resetstat()
    list_records(store, RecordQuery())
    list_records(store, RecordQuery(status="held"))
    count_records(store)
    assert (commands(client, "scan"), commands(client, "keys")) == (2, 0)


@pytest.mark.parametrize("limit", [7, 100, 5000])
def test_every_record_is_told_once(store, client, limit):
    filled(store, 1)
    copied(client, MANY)
    keys, pages = keys_of(store, limit=limit)
    assert (len(keys), len(set(keys))) == (MANY + 1, MANY + 1)
    assert pages >= MANY // limit


def test_totals_are_sampled_and_say_so(store, client):
    filled(store, 1)
    copied(client, MANY)
    told = count_records(store)
    assert (told.exact, told.total) == (False, MANY + 1)  # all keys are records
    assert told.looked_at < MANY / 2
    assert count_records(store, exact=True).exact
    client.eval("for n = 1, ARGV[1] do redis.call('SET', 'other:' .. n, 1) end", 0, MANY)
    shared = count_records(store)
    assert shared.total == pytest.approx(MANY, rel=0.5)
    assert count_records(store, exact=True).total == MANY + 1


def test_what_is_not_a_record_is_passed_over(store, client):
    filled(store, 2)
    client.set("idempotency:text", "x")
    client.hset("idempotency:hash", "x", "y")
    client.set("idempotency:a/b/c", b"once\x01\x01")
    client.set("idempotency:\xff", b"once\x01\x01")
    assert sorted(keys_of(store)[0]) == ["key-0", "key-1"]
    assert sorted(keys_of(store, status="completed")[0]) == ["key-0", "key-1"]


def test_prefixes_and_scopes_with_special_letters(empty_redis):
    store = RedisStore.from_url(empty_redis.url, prefix="a*[x]:")
    once = Once(store, observers=())
    for scope in (None, "s*", "s?/%"):
        once.options(scope=scope).run("a/b%", lambda: 1)
    assert sorted(record.scope or "" for record in list_records(store, RecordQuery()).records) == [
        "",
        "s*",
        "s?/%",
    ]
    for scope in (None, "s*", "s?/%"):
        asked = RecordQuery(any_scope=False, scope=scope, prefix="a/")
        assert [record.scope for record in list_records(store, asked).records] == [scope]
    store.close()


def newer(client, place=4, data=b""):
    """The record is as a release to come might write it."""
    client.setrange("idempotency:key-0", 4, b"\x07")
    if data:
        client.setrange("idempotency:key-0", place, data)


def test_a_record_of_a_newer_release_is_seen_as_far_as_it_is_understood(store, client):
    filled(store, 2)
    newer(client)
    with pytest.raises(UnreadableError):
        store.get(None, "key-0")
    found = find_record(store, None, "key-0")
    assert (found.version, found.status, found.value) == (7, "completed", "done")
    assert {
        one.version for one in list_records(store, RecordQuery(status="completed")).records
    } == {7, 1}
    assert count_records(store).by_status["unknown"] == 1


@pytest.mark.parametrize("change", [(5, b"\x63"), (79, b"\xff\xff"), (95, b"\xff\xff")])
def test_a_record_that_means_nothing_to_us_is_still_there(store, client, change):
    filled(store, 1)
    newer(client, *change)
    (seen,) = list_records(store, RecordQuery()).records
    assert (seen.key, seen.status, seen.version, seen.created) == ("key-0", "unknown", 7, 0)
    assert find_record(store, None, "key-0").status == "unknown"


@pytest.mark.parametrize("stored", [b"once", b"once\x00", b"once\x00\x01" + bytes(20)])
def test_bytes_that_are_no_record_stop_nothing(store, client, stored):
    filled(store, 1)
    client.set("idempotency:key-0", stored)
    (seen,) = list_records(store, RecordQuery()).records
    assert (seen.status, seen.version) == ("unknown", 0)


def test_a_client_that_decodes_is_as_good(empty_redis, store):
    filled(store, 3)
    with empty_redis.client(decode_responses=True) as client:
        other = RedisStore(client)
        assert sorted(keys_of(other)[0]) == ["key-0", "key-1", "key-2"]
        assert count_records(other).total == 3


def test_a_server_that_is_gone_is_told_in_a_sentence(another_redis):
    server = another_redis()
    store = RedisStore.from_url(server.url)
    server.stop()
    for asking in (
        lambda: list_records(store, RecordQuery()),
        lambda: count_records(store),
        lambda: browse.read_newer(store, None, "key"),
        lambda: browse.measure(store, 1),
        lambda: browse.correct_held(store),
        lambda: store.audit(b"{}"),
        lambda: store.audited(1),
    ):
        with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
            asking()
    store.close()


def settled(cluster):
    """The tables of keys have grown: while they do, SCAN may hand a key out twice.

    A server moves a part with each key that it looks up.
    """
    for primary in cluster.get_primaries():
        node = cluster.get_redis_connection(primary)
        for _ in range(200):
            node.randomkey()


def test_a_cluster_is_looked_at_node_by_node(empty_cluster):
    with redis.RedisCluster(**empty_cluster.address) as client:
        store = RedisStore(client)
        filled(store, 50)
        settled(client)
        for limit in (7, 100):
            keys, pages = keys_of(store, limit=limit)
            assert len(keys) == len(set(keys)) == 50
            assert pages >= 3
        told = count_records(store)
        assert (told.total, told.exact) == (50, True)
        assert len(keys_of(store, status="completed", prefix="key-1")[0]) == 11


@pytest.mark.parametrize("limit", [3, 50])
def test_what_stays_is_told_while_others_come_and_go(store, client, limit):
    """A step that is repeated has other keys then: the table grows, and others are removed."""
    filled(store, 1)
    copied(client, 300)
    stay = {"key-0", *(f"copy-{number}" for number in range(1, 301))}
    come = "for n = 1, 1000 do redis.call('SET', 'idempotency:go-' .. n, 'x') end"
    go = "for n = 1, 1000 do redis.call('DEL', 'idempotency:go-' .. n) end"
    client.eval(come, 0)
    told, after, pages = set(), None, 0
    while pages == 0 or after is not None:
        page = fill_page(store, RecordQuery(after=after, limit=limit))
        told |= {record.key for record in page.records}
        after, pages = page.after, pages + 1
        client.eval(go if pages % 2 else come, 0)
    assert stay - told == set()


def test_pages_of_different_sizes_leave_nothing_out(store, client):
    filled(store, 1)
    copied(client, 500)
    told, after, sizes = [], None, [1, 40, 2, 7]
    while True:
        page = list_records(store, RecordQuery(after=after, limit=sizes[len(told) % 4]))
        told += [record.key for record in page.records]
        after = page.after
        if after is None:
            break
    assert (len(told), len(set(told))) == (501, 501)


def hold(store, *keys):
    once = Once(store, observers=(), cache=False).options(on_crash="hold")
    for key in keys:
        with pytest.raises(TimeoutError), once.attempt(key):
            raise TimeoutError


def test_the_set_of_held_records_is_corrected(store, client, monkeypatch):
    monkeypatch.setattr(browse, "_STEP", 1)
    hold(store, "a", "b")
    filled(store, 30)
    client.delete("idempotency:a")
    client.zrem("idempotency:/held", "idempotency:b")
    assert browse.correct_held(store) == 2
    assert client.zrange("idempotency:/held", 0, -1) == [b"idempotency:b"]
    assert browse.correct_held(store) == 0


def test_a_key_that_scan_returns_twice_is_counted_once(store, monkeypatch):
    """As it does when the table of the server grows or shrinks meanwhile."""
    filled(store, 3)
    ask, cursors = browse._step_of_counts, iter([7, 0])

    def again(store, node, _cursor, **how):
        now, _, *rest = ask(store, node, 0, **how)
        return now, next(cursors), *rest

    monkeypatch.setattr(browse, "_step_of_counts", again)
    told = count_records(store, exact=True)
    assert (told.total, told.by_status["completed"]) == (3, 3)
    assert next(cursors, None) is None


def test_a_cursor_of_held_records_is_one(store):
    hold(store, "a", "b", "c")
    keys, pages = keys_of(store, status="held", limit=1)
    assert (keys, pages) == (["c", "b", "a"], 3)
    for after in ("x", "1", "-1.", "0.0."):
        with pytest.raises(ConfigurationError, match="is not a cursor of this store"):
            list_records(store, RecordQuery(status="held", after=after))


def test_a_cluster_keeps_an_audit_trail_and_no_set(empty_cluster):
    with redis.RedisCluster(**empty_cluster.address) as client:
        store = RedisStore(client)
        hold(store, "a", "b")
        assert store.held_set() is None
        assert browse.correct_held(store) == 0
        assert sorted(keys_of(store, status="held")[0]) == ["a", "b"]
        once = Once(store, observers=())
        once.resolve("a", retry=True, by="ann")
        once.forget("b", force=True, by="bob")
        assert [entry.by for entry in read_audit(store, 5)] == ["bob", "ann"]


async def test_coroutines_hear_of_a_server_that_is_gone(another_redis):
    server = another_redis()
    store = AsyncRedisStore.from_url(server.url)
    server.stop()
    for asking in (store.audit(b"{}"), store.audited(1)):
        with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
            await asking
    await store.aclose()


async def test_coroutines_write_down_what_is_done_in_a_cluster(empty_cluster):
    async with redis.asyncio.RedisCluster(**empty_cluster.address) as client:
        store = AsyncRedisStore(client)
        once = Once(store, observers=(), cache=False).options(on_crash="hold")
        with pytest.raises(TimeoutError):
            async with once.attempt("a"):
                raise TimeoutError
        assert await once.resolve_async("a", retry=True, by="ann")
        assert len(await store.audited(5)) == 1


def test_counts_for_charts_take_one_small_hash_that_expires(client, empty_redis):
    store = RedisStore.from_url(empty_redis.url)
    name = activity_hash(store.prefix)
    store.add_activity((1, 0, 0, 0), 0)
    for place, kept in client.hgetall(name).items():  # as they were one round ago
        width, at, *_ = struct.unpack(">6Q", kept)
        ring = next(one for one in RINGS if one.width == width)
        client.hset(name, place, struct.pack(">6Q", width, at - ring.span, 70, 70, 70, 70))
    assert store.activity().slots == []
    store.add_activity((2, 0, 0, 3), 0)
    assert {slot.counts for slot in store.activity().slots} == {(2, 0, 0, 3)}
    assert 7 * 86_400 < client.ttl(name) <= 8 * 86_400
    assert count_records(store, exact=True).total == 0
    store.close()
