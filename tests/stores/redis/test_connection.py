"""The lines that the Redis store keeps: when they serve, when they are given up, whose they are."""

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from oncekey.core.requests import Busy, Claim, Granted, Replay, Scan
from oncekey.errors import StoreError
from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.stores.redis import client as redis_loops
from oncekey.stores.redis import connection as redis_line
from oncekey.stores.redis import connection as redis_lines
from tests.patience import PATIENCE, until
from tests.servers.redis_asks import ask, settle
from tests.servers.redis_cut import CutLine
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server
from tests.still import connections_to, standing_still

__all__ = ["another_redis", "empty_redis", "redis_server"]

ONCE = Retry(NoBackoff(), 0)


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
def store(empty_redis):
    store = RedisStore.from_url(empty_redis.url)
    yield store
    store.close()


def connected(client):
    """The connections of the server, without the one that asks."""
    return {one["id"] for one in client.client_list()} - {str(client.client_id())}


def gone(client, connections):
    """Returns when the server has noticed the end of all of them."""
    until(lambda: not connected(client) & connections)


# When a line serves


def test_one_line_serves_one_command_after_the_other_from_any_thread(store, client):
    store.claim(ask())
    first = connected(client)
    for number in range(5):
        thread = threading.Thread(target=store.claim, args=(ask(f"k{number}"),))
        thread.start()
        thread.join()
    assert len(store.scan(Scan()).records) == 6
    assert connected(client) == first
    assert len(first) == 1


def together(server, store, count):
    """So many threads claim, and all of them wait for the server at the same time.

    One has the connection that the store has already.
    """
    before = connections_to(server.port)
    threads = [threading.Thread(target=store.claim, args=(ask(f"k{n}"),)) for n in range(count)]
    with standing_still(server):
        for thread in threads:
            thread.start()
        until(lambda: len(connections_to(server.port) - before) == count - 1)
    for thread in threads:
        thread.join()


def test_threads_at_the_same_time_have_a_line_each(empty_redis, store, client):
    store.claim(ask())
    together(empty_redis, store, 4)
    assert len(connected(client)) == 4
    store.close()
    gone(client, connected(client))
    assert isinstance(store.claim(ask(nonce="b")), Busy)


def test_an_answer_of_the_server_does_not_end_the_line(store, client):
    store.claim(ask())
    before = connected(client)
    client.script_flush()
    client.set("idempotency:other", "mine")
    with pytest.raises(StoreError, match="another prefix"):
        store.claim(ask("other"))
    assert isinstance(store.claim(ask(nonce="b")), Busy)
    assert connected(client) == before


def test_a_result_of_any_size_comes_back(store):
    large = bytes(range(256)) * 4096
    store.settle(settle(store.claim(ask()).record, large))
    answer = store.claim(ask(nonce="b"))
    assert isinstance(answer, Replay)
    assert answer.record.result == large


# When it is given up


def test_a_server_that_was_restarted_is_reached_at_once(another_redis):
    server = another_redis()
    store = RedisStore.from_url(server.url)
    store.claim(ask())
    server.stop()
    server.start()
    assert isinstance(store.claim(ask()), Granted)
    server.kill()
    time.sleep(redis_line.IDLE)
    with pytest.raises(StoreError, match="cannot be reached") as told:
        store.claim(ask("b"))
    assert told.value.happened is False
    server.start()
    assert isinstance(store.claim(ask("b")), Granted)
    store.close()


def test_a_line_that_was_closed_for_idleness_is_replaced(store, client):
    store.claim(ask())
    client.client_kill_filter(_id=next(iter(connected(client))))
    time.sleep(redis_line.IDLE)
    assert isinstance(store.claim(ask(nonce="b")), Busy)


def test_a_client_that_its_user_closed_connects_again(empty_redis):
    own = empty_redis.client(retry=ONCE)
    store = RedisStore(own)
    store.claim(ask())
    own.close()
    assert isinstance(store.claim(ask(nonce="b")), Busy)
    own.close()
    store.close()


class Rung(Exception):  # noqa: N818 - it is no error
    """Raised out of the middle of a command."""


@contextmanager
def cut_off():
    """The block is cut off while it waits for the server."""

    def ring(*_):
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Rung):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_command_that_was_cut_off_here_leaves_no_reply_to_the_next(empty_redis, store):
    store.claim(ask())
    with standing_still(empty_redis), cut_off():
        store.get(None, "test-123")
    assert isinstance(store.claim(ask(nonce="b")), Busy)


def ask_alone(store):
    store.get(None, "test-123")


def ask_on_a_line_that_is_held(store):
    with store.clients.held() as line:
        line.ask(("GET", "idempotency:test-123"))


@pytest.mark.fast_path("what a line does that redis-py does not")
@pytest.mark.parametrize("asked", [ask_alone, ask_on_a_line_that_is_held])
def test_a_reply_that_comes_after_the_next_command_was_sent_is_not_taken_for_its_own(
    asked, empty_redis, monkeypatch
):
    """redis-py finds what is to be read before it lends a connection, but not what comes later."""
    store = RedisStore.from_url(f"{empty_redis.url}?socket_timeout={PATIENCE}")
    store.claim(ask())
    assert store.get(None, "test-123")  # and the server knows the script
    sent, before = threading.Event(), connections_to(empty_redis.port)
    with ThreadPoolExecutor(1) as pool:
        with standing_still(empty_redis):
            with cut_off():
                asked(store)
            pack = redis_line.pack
            monkeypatch.setattr(redis_line, "pack", lambda words: sent.set() or pack(words))
            next_one = pool.submit(store.get, None, "another")
            until(lambda: sent.is_set() or connections_to(empty_redis.port) - before)
        assert next_one.result(PATIENCE) is None
    store.close()


@pytest.mark.fast_path("what a line does that redis-py does not")
def test_what_nobody_asked_for_ends_the_line(empty_redis, client):
    store = RedisStore.from_url(f"{empty_redis.url}?protocol=3")
    store.claim(ask())
    first = connected(client)
    store.clients.ask(("CLIENT", "TRACKING", "ON", "BCAST"))
    client.set("x", "y")  # the server tells of it while nobody asks
    time.sleep(redis_line.IDLE)
    assert isinstance(store.claim(ask(nonce="b")), Busy)
    gone(client, first)
    second = connected(client)
    with store.clients.held() as line:
        line.ask(("CLIENT", "TRACKING", "ON", "BCAST"))
        client.set("x", "z")  # and here in front of a reply
        assert line.ask(("PING",)) == b"PONG"
        assert line.moved
    gone(client, second)
    store.close()


def test_a_connection_that_is_reset_is_unknown(empty_redis):
    line = CutLine(empty_redis.port)
    store = RedisStore.from_url(line.url)
    store.claim(ask())
    line.reset = True
    with pytest.raises(StoreError, match=r"the connection broke|reset by peer") as told:
        store.claim(ask("other"))
    assert told.value.happened is None
    store.close()
    line.close()


@pytest.mark.fast_path("what a line does that redis-py does not")
def test_a_primary_that_has_become_a_replica_is_looked_for_again(another_redis):
    server = another_redis()
    store = RedisStore.from_url(server.url)
    store.claim(ask())
    with server.client() as client:
        before = connected(client)
        client.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreError, match="read-only replica"):
            store.claim(ask("b"))
        client.replicaof("NO", "ONE")
        assert isinstance(store.claim(ask("b")), Granted)
        gone(client, before)
    store.close()


# Whose they are


def test_a_client_that_tries_again_does_so(empty_redis):
    line = CutLine(empty_redis.port)
    with redis.Redis.from_url(line.url, retry=Retry(NoBackoff(), 2)) as own:
        store = RedisStore(own)
        store.claim(ask("first"))
        line.cut = True
        assert isinstance(store.claim(ask()), Granted)
        store.close()
    line.close()


@pytest.mark.fast_path("what a line does that redis-py does not")
@pytest.mark.parametrize(("most", "kept"), [(3, 0), (8, 2)])
def test_of_a_pool_that_others_use_only_a_part_is_kept(most, kept, empty_redis, client):
    settings = {"port": empty_redis.port, "socket_timeout": PATIENCE}
    pool = redis.ConnectionPool(**settings, max_connections=most)
    own = redis.Redis(connection_pool=pool, retry=ONCE)
    store = RedisStore(own)
    store.claim(ask())
    together(empty_redis, store, 3)
    taken = [pool.get_connection() for _ in range(most - kept)]
    with pytest.raises(redis.exceptions.MaxConnectionsError):
        pool.get_connection()
    for connection in taken:
        pool.release(connection)
    store.close()  # gives back what it kept
    taken = [pool.get_connection() for _ in range(most)]
    assert {one._sock.gettimeout() for one in taken} == {PATIENCE}  # as the user has set it
    pool.disconnect()


def test_a_single_connection_is_enough(empty_redis):
    store = RedisStore.from_url(f"{empty_redis.url}?max_connections=1")
    record = store.claim(ask()).record
    assert store.scan(Scan()).records == [record]
    assert isinstance(store.claim(ask(nonce="b")), Busy)
    store.close()


def test_a_client_that_is_not_plain_is_asked_its_own_way(empty_redis):
    class Watched(redis.Redis):
        told: list = []  # noqa: RUF012 - of this one test

        def execute_command(self, *words, **options):
            self.told.append(words[0])
            return super().execute_command(*words, **options)

    with Watched(port=empty_redis.port) as own:
        RedisStore(own).claim(ask())
        assert own.told[:2] == ["INFO", "EVALSHA"]
    kinds = [
        {"single_connection_client": True},
        {"health_check_interval": 1},
        {"credential_provider": redis.UsernamePasswordCredentialProvider()},
    ]
    for number, kind in enumerate(kinds):
        with empty_redis.client(**kind) as own:
            store = RedisStore(own)
            assert store.clients._lines is None
            assert isinstance(store.claim(ask(f"k{number}")), Granted)


# More callers than connections


@pytest.mark.fast_path("what a line does that redis-py does not")
def test_more_threads_than_connections_wait_for_each_other(empty_redis, monkeypatch):
    monkeypatch.setattr(redis_lines, "PATIENCE", PATIENCE)
    store = RedisStore.from_url(f"{empty_redis.url}?max_connections=4")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(store.claim, [crowded(number) for number in range(200)]))
    assert {type(answer) for answer in answers} == {Granted}
    store.close()


async def test_more_tasks_than_connections_wait_for_each_other(empty_redis, monkeypatch):
    monkeypatch.setattr(redis_loops, "PATIENCE", PATIENCE)
    store = AsyncRedisStore.from_url(f"{empty_redis.url}?max_connections=4")
    answers = await asyncio.gather(*(store.claim(crowded(number)) for number in range(200)))
    assert {type(answer) for answer in answers} == {Granted}
    await store.aclose()


def test_nobody_waits_for_a_connection_for_ever(empty_redis, monkeypatch):
    monkeypatch.setattr(redis_lines, "PATIENCE", 0.01)
    store = RedisStore.from_url(f"{empty_redis.url}?max_connections=1")
    store.claim(crowded(1))
    with store.clients.held(), pytest.raises(StoreError, match="are in use") as told:
        store.claim(crowded(0))
    assert told.value.happened is False
    store.close()


async def test_no_task_waits_for_a_connection_for_ever(empty_redis, monkeypatch):
    monkeypatch.setattr(redis_loops, "PATIENCE", 0.01)
    store = AsyncRedisStore.from_url(f"{empty_redis.url}?max_connections=1")
    async with store.clients.held():
        with pytest.raises(StoreError, match="are in use") as told:
            await store.claim(crowded(0))
    assert told.value.happened is False
    await store.aclose()


def crowded(number):
    return Claim(None, f"k{number}", nonce="n", fingerprint=None, lease=10**9, ttl=10**9)
