"""Exceptions of a signal handler, raised at every single line that a command goes through.

redis-py puts a connection back into its pool whatever happened. After an exception that is not its
own, that may be one without AUTH and SELECT, or one with a reply that nobody has read.
"""

import gc
import itertools
import sys

import hiredis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from oncekey.core.requests import Scan, Verdict
from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.stores.redis import connection as redis_line
from tests.heavy import HEAVY
from tests.servers.redis_asks import ask, settle
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]

DATABASE = 3
STEP = 1 if HEAVY else 13
"""Of so many lines one is tried."""
FILES = (
    *("/redis/connection.py", "/redis/client.py", "/redis/retry.py", "/redis/_parsers/hiredis.py"),
    *("/stores/redis/pubsub.py", "/stores/redis/store.py"),
)
ONCE = Retry(NoBackoff(), 0)
# A socket that was cut off between two lines is closed when it is collected.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Cut(BaseException):
    """What the handler of a signal raises."""


class CutAtLine:
    """Raises at that line of redis-py or of the store, counted from the beginning of the block.

    That is done by tracing, as a debugger does it. `reached` says whether there are so many lines.
    """

    def __init__(self, number):
        self._left = number
        self.reached = False
        self._on_call, self._on_line = self._call, self._line  # Python drops those that raise

    def __enter__(self):
        gc.disable()  # what is collected meanwhile would be cut off as well
        self._before = sys.gettrace()
        sys.settrace(self._on_call)

    def __exit__(self, kind, *_):
        sys.settrace(self._before)
        gc.enable()
        return kind is Cut

    def _call(self, frame, _event, _value):
        path = frame.f_code.co_filename
        ours = path.endswith(FILES) and frame.f_code.co_name != "__del__"
        return self._on_line if ours else None

    def _line(self, _frame, event, _value):
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.reached = True
                raise Cut
        return self._on_line


def from_url(url):
    return RedisStore.from_url(url)


def from_url_over_redis_py(url):
    return RedisStore.from_url(url, fast=False)


def of_a_client(url):
    return RedisStore(redis.Redis.from_url(url, retry=ONCE))


def of_a_client_over_redis_py(url):
    return RedisStore(redis.Redis.from_url(url, retry=ONCE), fast=False)


def a_claim(store, number):
    store.claim(ask(f"key:{number}"))


def a_page(store, _number):
    store._names()


def a_wait(store, _number):
    store.watch(None, "known", 1, 0.0)


MAKERS = (from_url, from_url_over_redis_py, of_a_client, of_a_client_over_redis_py)
CASES = [
    *((make, a_claim) for make in MAKERS),
    *((make, asked) for make in (MAKERS if HEAVY else MAKERS[3:]) for asked in (a_page, a_wait)),
]


def databases(client):
    """The databases that have keys."""
    return set(client.info("keyspace"))


@pytest.mark.parametrize(("make", "asked"), CASES)
def test_a_command_cut_off_at_any_line_spoils_no_connection(make, asked, empty_redis):
    """The next commands get their own answers, from the database of the URL."""
    url = f"redis://127.0.0.1:{empty_redis.port}/{DATABASE}"
    first = RedisStore.from_url(url)
    known = first.claim(ask("known")).record
    first.settle(settle(known, b"known result"))
    first.close()
    scripts = first._scripts
    for number in itertools.count(1, STEP):
        store = make(url)
        store._scripts = scripts  # else each one asks the server for its version first
        cut = CutAtLine(number)
        with cut:
            asked(store, number)
        for _ in range(2):
            found = store.get(None, "known")
            assert found is not None, f"asked another database after a cut at line {number}"
            assert found.result == b"known result", f"another's answer after line {number}"
            assert store.get(None, "missing") is None, f"another's answer after line {number}"
        store.clients.client().connection_pool.disconnect()
        if not cut.reached:
            break
    assert number > 100  # there is something to be cut off
    with empty_redis.client() as client:
        assert databases(client) == {f"db{DATABASE}"}


def test_a_pool_of_ours_never_has_a_connection_whose_handshake_was_cut_off(
    empty_redis, monkeypatch
):
    """Another thread could take it in the same moment."""
    url = f"redis://127.0.0.1:{empty_redis.port}/{DATABASE}"
    store = RedisStore.from_url(url)
    pool = store.clients.client().connection_pool
    send, release = redis.Connection.send_command, pool.release
    open_ones = []

    def cut_off(self, *words, **options):
        if words[0] == "SELECT":
            raise Cut
        send(self, *words, **options)

    def observed(connection):
        open_ones.append(connection._sock)
        release(connection)

    with monkeypatch.context() as patch:
        patch.setattr(redis.Connection, "send_command", cut_off)
        patch.setattr(pool, "release", observed)
        with pytest.raises(Cut):
            store.claim(ask())
    assert open_ones == [None]
    store.close()


@pytest.mark.parametrize(
    "fast", [pytest.param(True, marks=pytest.mark.fast_path("wires beside redis-py")), False]
)
async def test_coroutines_use_no_connection_whose_handshake_was_cut_off(
    fast, empty_redis, monkeypatch
):
    url = f"redis://127.0.0.1:{empty_redis.port}/{DATABASE}"
    store = AsyncRedisStore.from_url(url, fast=fast)
    send = redis.asyncio.Connection.send_command

    async def cut_off(self, *words, **options):
        if words[0] == "SELECT":
            raise Cut
        await send(self, *words, **options)

    with monkeypatch.context() as patch:
        patch.setattr(redis.asyncio.Connection, "send_command", cut_off)
        with pytest.raises(Cut):
            await store.claim(ask())
    await store.claim(ask())
    with empty_redis.client() as client:
        assert databases(client) == {f"db{DATABASE}"}
    await store.aclose()


def test_hiredis_is_given_no_numbers(monkeypatch):
    """It turns them into text without a look at whether that failed, and crashes."""
    given = []
    monkeypatch.setattr(redis_line, "_pack_any", lambda words: given.extend(words) or b"")
    redis_line.Packer().pack("CLIENT SETINFO", 1, 2.5, "text", b"bytes")
    redis_line.pack(("WAIT", 1, 100))
    assert {type(word) for word in given} == {str, bytes}


def test_commands_are_packed_as_hiredis_does():
    packed = redis_line.Packer().pack("CONFIG GET", 1, 2.5, "é", b"\xff")
    assert packed == [hiredis.pack_command(("CONFIG", "GET", 1, 2.5, "é", b"\xff"))]


def test_a_connection_that_becomes_no_line_is_closed_and_given_back(empty_redis, monkeypatch):
    def cut(_):
        raise Cut

    pool = redis.ConnectionPool.from_url(empty_redis.url)
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(redis_line, "Line", cut)
        redis_line.open_line(pool)
    (connection,) = pool._available_connections
    assert not connection.is_connected
    pool.disconnect()


async def test_coroutines_settle_and_list_after_the_scripts_were_flushed(empty_redis):
    store = AsyncRedisStore.from_url(empty_redis.url)
    granted = await store.claim(ask())
    with empty_redis.client() as client:
        client.script_flush()
    assert await store.settle(settle(granted.record)) is Verdict.DONE
    for _ in range(2):  # the second time the script is there
        assert [record.status for record in (await store.scan(Scan())).records] == ["completed"]
    await store.aclose()
