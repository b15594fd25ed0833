"""The wire that all coroutines of a loop share: what leaves together, and how it ends."""

import asyncio
import gc
from contextlib import closing
from pathlib import Path

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from oncekey.core.requests import Busy, Granted, Renew, Replay, Scan, Verdict
from oncekey.errors import ConfigurationError, StoreError
from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.stores.redis import connection_async
from oncekey.stores.redis.commands import scripts_for
from oncekey.stores.redis.connection_async import LARGE, Wires
from tests.patience import PATIENCE, until, until_async
from tests.servers.redis_asks import HOUR, ask, settle
from tests.servers.redis_cut import CutLine
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server
from tests.still import standing_still

__all__ = ["another_redis", "empty_redis", "redis_server"]

CROWD = 64

pytestmark = pytest.mark.fast_path("what a wire does")


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
async def store(empty_redis):
    store = AsyncRedisStore.from_url(empty_redis.url)
    yield store
    await store.aclose()


def connected(client):
    """The connections of the server, without the one that asks."""
    return {one["id"] for one in client.client_list()} - {str(client.client_id())}


async def claims(store, count=CROWD, nonce="a"):
    asks = (store.claim(ask(f"k{number}", nonce=nonce)) for number in range(count))
    return await asyncio.gather(*asks, return_exceptions=True)


async def on_the_way(store, count):
    """Returns when so many commands wait for their replies."""
    await until_async(lambda: len(store.clients._wires._swift.wire._waiting) >= count)


# What is shared


async def test_a_crowd_shares_one_connection_and_few_writes(store, client, monkeypatch):
    monkeypatch.setattr(connection_async, "_IDLE", 3600.0)  # a wire that was silent listens first
    before = connected(client)  # some that were closed may still be listed
    await store.claim(ask("first"))
    writes = []
    transport = store.clients._wires._swift.wire._transport
    store.clients._wires._swift.wire._transport = Counted(transport, writes)
    assert {type(answer) for answer in await claims(store)} == {Granted}
    assert len(writes) == CROWD // connection_async.ENOUGH
    assert len((await store.scan(Scan())).records) == CROWD + 1
    assert len(connected(client) - before) <= 2  # the scan goes through redis-py


async def test_the_answers_to_a_crowd_of_duplicates_leave_the_server_in_few_writes(
    empty_redis, store
):
    for answer in await claims(store):
        await store.settle(settle(answer.record))
    before = writes_of(empty_redis.process.pid)
    answers = await claims(store, nonce="b")
    assert {type(answer) for answer in answers} == {Replay}
    assert writes_of(empty_redis.process.pid) - before < CROWD / 2


def writes_of(pid):
    """How often a process has called the system to write."""
    lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["syscw"])


class Counted:
    """A transport that counts what is written."""

    def __init__(self, transport, writes):
        self._transport = transport
        self._writes = writes

    def write(self, data):
        self._writes.append(len(data))
        self._transport.write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


async def test_more_than_fit_on_the_way_follow_in_their_order(store, monkeypatch):
    monkeypatch.setattr(connection_async, "MOST_ON_THE_WAY", 3)
    ended = []

    async def claim(number):
        await store.claim(ask(f"k{number}"))
        ended.append(number)

    await asyncio.gather(*map(claim, range(CROWD)))
    assert ended == list(range(CROWD))


async def test_what_the_system_does_not_take_waits(store):
    await store.get(None, "nothing")
    line = store.clients._wires._swift.wire
    line.pause_writing()
    asking = asyncio.gather(*(store.claim(ask(f"k{number}")) for number in range(5)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not line._waiting
    line.resume_writing()
    assert {type(answer) for answer in await asking} == {Granted}


@pytest.mark.parametrize("size", [LARGE, 1 << 20])
async def test_what_is_large_travels_apart(store, client, size):
    record = (await store.claim(ask())).record
    before = connected(client)
    assert await store.settle(settle(record, bytes(size))) is Verdict.DONE
    assert len(connected(client) - before) == 1
    answer = await store.claim(ask(nonce="b"))
    assert isinstance(answer, Replay)
    assert answer.record.result == bytes(size)


async def test_renewals_travel_apart(store, client):
    record = (await store.claim(ask())).record
    before = connected(client)
    renewal = Renew(None, record.key, token=record.token, nonce=record.nonce, lease=HOUR, ttl=HOUR)
    assert await store.renew(renewal) is Verdict.DONE
    assert len(connected(client) - before) == 1


async def test_a_server_that_has_forgotten_the_scripts_is_told_again(store, client):
    await store.claim(ask("first"))
    client.script_flush()
    assert {type(answer) for answer in await claims(store)} == {Granted}


async def test_an_error_is_the_error_of_the_one_who_caused_it(store, client):
    client.set("idempotency:k7", "somebody else's")
    answers = await claims(store)
    assert isinstance(answers[7], StoreError)
    assert answers[7].happened is False
    assert {type(answer) for answer in answers[:7] + answers[8:]} == {Granted}
    assert len(connected(client)) == 1


# Who goes away


async def test_whoever_goes_away_leaves_the_others_their_replies(empty_redis, store):
    await store.claim(ask("first"))  # the server knows the script
    with standing_still(empty_redis):
        asking = [asyncio.create_task(store.claim(ask(f"k{number}"))) for number in range(CROWD)]
        await on_the_way(store, CROWD)
        for task in asking[::2]:
            task.cancel()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(answer) for answer in answers[::2]} == {asyncio.CancelledError}
    for answer in answers[1::2]:
        assert await store.get(None, answer.record.key) == answer.record  # and nobody else's
    assert isinstance(await store.claim(ask("k0", nonce="b")), Busy)  # it was on its way


async def test_whoever_goes_away_before_it_left_has_not_asked(store, client):
    await store.get(None, "nothing")
    asking = asyncio.create_task(store.claim(ask()))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await store.get(None, "test-123") is None


# Who is woken


async def test_all_who_wait_for_one_reply_hear_it(store):
    await store.get(None, "nothing")
    reply = store.clients._wires.send(b"PING\r\n", apart=False)

    async def hears():
        return await reply

    assert await asyncio.gather(hears(), hears()) == [b"PONG", b"PONG"]


async def test_a_reply_for_which_nobody_waits_yet_is_there_later(store):
    await store.get(None, "nothing")
    reply = store.clients._wires.send(b"PING\r\n", apart=False)
    await until_async(reply.done)
    assert await reply == b"PONG"


def test_whoever_ends_the_program_leaves_the_others_their_replies(empty_redis):
    store = AsyncRedisStore.from_url(empty_redis.url)

    async def leaves():
        await store.claim(ask("k0"))
        raise SystemExit(3)

    loop = asyncio.new_event_loop()  # not a Runner, which waits for a task that is never woken
    with closing(loop):
        loop.run_until_complete(_claim(store, "first"))
        asking = [loop.create_task(leaves()), loop.create_task(_claim(store, 1))]
        with pytest.raises(SystemExit):
            loop.run_forever()
        assert isinstance(loop.run_until_complete(_claim(store, 2)), Granted)
        assert asking[1].done()
        assert isinstance(asking[1].result(), Granted)
        assert isinstance(asking[0].exception(), SystemExit)
        loop.run_until_complete(store.aclose())


# How it ends


@pytest.mark.parametrize("reset", [False, True])
async def test_a_broken_wire_fails_what_was_on_it_and_nothing_else(empty_redis, reset):
    line = CutLine(empty_redis.port)
    store = AsyncRedisStore.from_url(line.url)
    await store.get(None, "nothing")
    line.cut, line.reset = not reset, reset
    lost = asyncio.gather(
        *(store.claim(ask(f"k{number}")) for number in range(5)), return_exceptions=True
    )
    errors = await lost
    line.reset = False
    assert {type(error) for error in errors} == {StoreError}
    assert {error.happened for error in errors} == {None}
    assert "the connection broke" in str(errors[0])
    assert len({id(error.__cause__) for error in errors}) == 5
    assert isinstance(await store.claim(ask("later")), Granted)
    await store.aclose()
    line.close()


async def test_what_has_not_left_a_broken_wire_leaves_on_the_next(store):
    await store.get(None, "nothing")
    asking = asyncio.create_task(store.claim(ask()))
    await asyncio.sleep(0)
    store.clients._wires._swift.wire.close()
    assert isinstance(await asking, Granted)


async def test_a_server_that_was_restarted_is_reached_at_once(another_redis):
    server = another_redis()
    store = AsyncRedisStore.from_url(server.url)
    await store.claim(ask())
    server.stop()
    server.start()
    assert isinstance(await store.claim(ask()), Granted)
    server.kill()
    await asyncio.sleep(connection_async._IDLE)
    with pytest.raises(StoreError, match="cannot be reached") as told:
        await store.claim(ask("b"))
    assert told.value.happened is False
    server.start()
    assert isinstance(await store.claim(ask("b")), Granted)
    await store.aclose()


async def test_all_who_wait_for_a_wire_are_told_why_there_is_none(another_redis):
    server = another_redis()
    server.kill()
    store = AsyncRedisStore.from_url(server.url)
    store._scripts = scripts_for({})  # nothing is asked before
    answers = await claims(store, 5)
    assert {type(error) for error in answers} == {StoreError}
    assert {error.happened for error in answers} == {False}
    await store.aclose()


async def test_a_reply_that_does_not_come_is_not_waited_for_for_ever(empty_redis):
    store = AsyncRedisStore.from_url(f"{empty_redis.url}?socket_timeout={PATIENCE}")
    await store.get(None, "nothing")
    line = store.clients._wires._swift.wire
    line._clock.cancel()
    line._clock, line._patience = None, 0.05
    with standing_still(empty_redis):
        answers = await claims(store, 3)
    assert {str(error).endswith("no reply in time") for error in answers} == {True}
    assert {error.happened for error in answers} == {None}
    assert isinstance(await store.claim(ask()), Granted)  # on a wire with patience
    await store.aclose()


async def test_one_clock_serves_all(empty_redis):
    store = AsyncRedisStore.from_url(f"{empty_redis.url}?socket_timeout={PATIENCE}")
    await store.claim(ask("first"))
    line = store.clients._wires._swift.wire
    for number in range(5):
        clock = line._clock
        with standing_still(empty_redis):
            asking = asyncio.create_task(store.claim(ask(f"k{number}")))
            await on_the_way(store, 1)
            assert line._clock is clock  # it was set for one that came before
            clock.cancel()
            line._look_at_the_clock()
            assert line._clock is not clock
        assert isinstance(await asking, Granted)
    await store.aclose()


async def test_who_has_set_no_patience_waits(empty_redis, client):
    own = redis.asyncio.Redis(
        port=empty_redis.port, socket_timeout=None, retry=Retry(NoBackoff(), 0)
    )
    store = AsyncRedisStore(own)
    assert isinstance(await store.claim(ask()), Granted)
    await store.aclose()
    await own.aclose()


async def test_a_primary_that_has_become_a_replica_is_looked_for_again(another_redis):
    server = another_redis()
    store = AsyncRedisStore.from_url(server.url)
    await store.claim(ask())
    with server.client() as client:
        before = connected(client)
        client.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreError, match="read-only replica"):
            await store.claim(ask("b"))
        client.replicaof("NO", "ONE")
        assert isinstance(await store.claim(ask("b")), Granted)
        assert not before & connected(client)
    await store.aclose()


async def test_what_nobody_asked_for_ends_the_wire_after_what_is_on_it(empty_redis, client):
    store = AsyncRedisStore.from_url(f"{empty_redis.url}?protocol=3")
    await store.claim(ask())
    first = connected(client)
    await store.clients.ask(("CLIENT", "TRACKING", "ON", "BCAST"))
    client.client_pause(round(PATIENCE * 1000), all=False)
    asking = asyncio.create_task(store.claim(ask(nonce="b")))
    await on_the_way(store, 1)
    client.client_unpause()
    client.set("x", "y")  # the server tells of it
    assert isinstance(await asking, Busy)

    async def elsewhere():
        assert isinstance(await store.claim(ask(nonce="c")), Busy)
        return not connected(client) & first

    await until_async(elsewhere)
    await store.aclose()


class Opened:
    """A connection as redis-py would have opened it."""

    socket_timeout = None

    def __init__(self, writer):
        self._writer = writer
        self._parser = redis.asyncio.connection.DefaultParser(socket_read_size=1)


@pytest.mark.parametrize("said", [b"?what\r\n", b"+one\r\n+too many\r\n"])
async def test_what_is_no_reply_breaks_the_wire(said):
    async def answer(reader, writer):
        await reader.read(100)
        writer.write(said)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    line = connection_async.Wire(Opened(writer), pytest.fail)
    replies = [asyncio.get_running_loop().create_future() for _ in range(2)]
    for reply in replies[said.startswith(b"+") :]:
        line.ask((b"PING\r\n", reply))
    await writer.wait_closed()
    assert not line.fit
    if said.startswith(b"?"):
        assert {str(reply.exception()) for reply in replies} == {
            'the connection broke: Protocol error, got "?" as reply type byte'
        }
    else:
        assert replies[1].result() == b"one"
    server.close()


async def test_the_clock_of_a_wire_goes_on_while_somebody_waits_and_no_longer(monkeypatch):
    asked, told = asyncio.Event(), asyncio.Event()

    async def answer(reader, writer):
        await reader.read(100)
        asked.set()
        await told.wait()
        writer.write(b"+one\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    monkeypatch.setattr(Opened, "socket_timeout", 60.0)
    line = connection_async.Wire(Opened(writer), pytest.fail)
    reply = asyncio.get_running_loop().create_future()
    line.ask((b"PING\r\n", reply))
    await asked.wait()
    line._clock.cancel()
    line._look_at_the_clock()
    assert line._clock is not None
    assert not reply.done()
    told.set()
    assert await reply == b"one"
    line._clock.cancel()
    line._look_at_the_clock()
    assert line._clock is None
    assert line.fit
    line.close()
    await writer.wait_closed()
    server.close()


async def test_a_wire_that_is_called_elsewhere_waits_for_what_is_on_it():
    told = asyncio.Queue()

    async def answer(reader, writer):
        await reader.read(100)
        while said := await told.get():
            writer.write(said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    line = connection_async.Wire(Opened(writer), pytest.fail)
    replies = [asyncio.get_running_loop().create_future() for _ in range(2)]
    for reply in replies:
        line.ask((b"PING\r\n", reply))
    told.put_nowait(b">1\r\n$4\r\nmove\r\n+one\r\n")
    assert await replies[0] == b"one"
    assert not line.fit
    told.put_nowait(b"+two\r\n")
    assert await replies[1] == b"two"
    told.put_nowait(b"")
    await writer.wait_closed()
    server.close()


async def test_whoever_went_away_hears_nothing_of_the_end(empty_redis, store):
    await store.claim(ask("first"))
    with standing_still(empty_redis):
        asking = [asyncio.create_task(store.claim(ask(f"k{n}"))) for n in range(2)]
        await on_the_way(store, 2)
        asking[0].cancel()
        await asyncio.sleep(0)
        store.clients._wires._swift.wire.close()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(one) for one in told] == [asyncio.CancelledError, StoreError]


async def test_nor_of_a_wire_that_there_is_not(another_redis):
    server = another_redis()
    server.kill()
    own = redis.asyncio.Redis(port=server.port, retry=Retry(NoBackoff(), 0))
    wires = Wires(own.connection_pool)
    replies = [wires.send(b"PING\r\n", apart=False) for _ in range(2)]
    replies[0].cancel()
    with pytest.raises(redis.exceptions.ConnectionError):
        await replies[1]
    await wires.aclose()
    await own.aclose()


async def test_what_is_on_a_wire_that_is_closed_is_unknown(empty_redis, store):
    await store.get(None, "nothing")
    with standing_still(empty_redis):
        asking = asyncio.create_task(store.claim(ask()))
        await on_the_way(store, 1)
        await store.aclose()
    with pytest.raises(StoreError, match="was closed") as told:
        await asking
    assert told.value.happened is None
    assert isinstance(await store.claim(ask("b")), Granted)  # the next use opens another


async def test_who_waits_for_a_wire_that_is_not_wanted_any_more_is_cut_off(empty_redis):
    own = redis.asyncio.Redis(port=empty_redis.port)
    wires = Wires(own.connection_pool)
    asking = wires.send(b"PING\r\n", apart=False)
    await asyncio.sleep(0)
    await wires.aclose()
    assert asking.cancelled()
    await own.aclose()


# Whose it is


async def test_the_pool_has_its_connections_back(empty_redis, client):
    pool = redis.asyncio.ConnectionPool(port=empty_redis.port, max_connections=4)
    own = redis.asyncio.Redis(connection_pool=pool, retry=Retry(NoBackoff(), 0))
    store = AsyncRedisStore(own)
    await store.claim(ask())
    await store.aclose()
    taken = [await pool.get_connection() for _ in range(4)]
    for connection in taken:
        await pool.release(connection)
    assert await own.ping()
    await own.aclose()
    await pool.aclose()


async def test_a_client_that_its_user_closed_connects_again(empty_redis):
    own = redis.asyncio.Redis(port=empty_redis.port, retry=Retry(NoBackoff(), 0))
    store = AsyncRedisStore(own)
    await store.claim(ask())
    await own.aclose()
    assert isinstance(await store.claim(ask(nonce="b")), Busy)
    await store.aclose()
    await own.aclose()


async def test_a_client_that_tries_again_does_so(empty_redis):
    line = CutLine(empty_redis.port)
    own = redis.asyncio.Redis.from_url(line.url, retry=Retry(NoBackoff(), 2))
    store = AsyncRedisStore(own)
    await store.claim(ask("first"))
    line.cut = True
    assert isinstance(await store.claim(ask()), Granted)
    await store.aclose()
    await own.aclose()
    line.close()


async def test_a_line_on_which_something_broke_is_not_used_again(store):
    with pytest.raises(redis.exceptions.ConnectionError):
        async with store.clients.held() as line:
            raise redis.exceptions.ConnectionError
    assert not line.connection.is_connected


async def test_what_a_client_breaks_by_itself_is_unknown():
    class Broken:
        """A cluster's client whose node has just closed what another task used."""

        async def execute_command(self, *_, **__):
            raise AttributeError("'NoneType' object has no attribute 'writelines'")

    store = AsyncRedisStore(Broken())
    store._scripts = scripts_for({})
    with pytest.raises(StoreError, match="redis-py lost the connection") as told:
        await store.claim(ask())
    assert told.value.happened is None


@pytest.mark.parametrize("how", [{"fast": False}, {"most": 3}])
async def test_without_wires_every_command_goes_through_redis_py(empty_redis, how):
    most = how.pop("most", 100)
    store = AsyncRedisStore.from_url(f"{empty_redis.url}?max_connections={most}", **how)
    assert {type(answer) for answer in await claims(store)} == {Granted}
    assert store.clients._wires is None
    await store.aclose()


@pytest.mark.parametrize("store", [RedisStore, AsyncRedisStore])
def test_fast_is_true_or_false(store):
    with pytest.raises(ConfigurationError, match="fast must be True or False, not 'no'"):
        store.from_url("redis://localhost:1/0", fast="no")


async def test_the_slow_way_is_the_slow_way_in_both_colours(empty_redis):
    store = RedisStore.from_url(empty_redis.url, fast=False)
    assert isinstance(store.claim(ask()), Granted)
    assert store.clients._lines is None
    other = store.as_async()
    assert isinstance(await other.claim(ask(nonce="b")), Busy)
    assert other.clients._wires is None
    await other.aclose()
    store.close()


def test_a_loop_that_ends_closes_its_wires(empty_redis, client):
    store = AsyncRedisStore.from_url(empty_redis.url)
    for number in range(3):  # each run is a loop of its own
        assert isinstance(asyncio.run(_claim(store, number)), Granted)
        gc.collect()
    until(lambda: not connected(client))


async def _claim(store, number):
    return await store.claim(ask(f"k{number}"))
