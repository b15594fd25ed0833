"""What is done differently where gevent or eventlet has patched Python."""

import os
import select
import socket
import threading

import pytest

from oncekey import Once
from oncekey.compat import input_check
from oncekey.errors import ConfigurationError
from oncekey.stores import PostgresStore, RedisStore
from tests.patience import PATIENCE
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]


@pytest.mark.parametrize("poll", [True, False], ids=["poll", "select"])
def test_there_is_input_when_something_came_and_when_the_other_side_has_closed(poll, monkeypatch):
    if not poll:
        monkeypatch.delattr(select, "poll")
    here, there = socket.socketpair()
    with here:
        has_input = input_check(here.fileno())
        assert not has_input()
        there.send(b"x")
        assert has_input()
        here.recv(1)
        assert not has_input()
        there.close()
        assert has_input()


@pytest.mark.parametrize(("blocking", "left"), [(True, None), (False, PATIENCE)])
def test_the_time_out_is_left_to_the_system_where_the_socket_blocks(
    blocking, left, empty_redis, monkeypatch
):
    monkeypatch.setattr(os, "get_blocking", lambda _: blocking)
    store = RedisStore.from_url(f"{empty_redis.url}?socket_timeout={PATIENCE}")
    with store.clients.held() as line:
        assert line._socket.gettimeout() == left
        assert line.ask(("PING",)) == b"PONG"
    store.close()


def test_locks_that_were_replaced_after_the_import_are_refused(monkeypatch):
    once = Once("memory://")
    monkeypatch.setattr(threading, "Lock", threading.RLock)
    with pytest.raises(ConfigurationError, match="patch first, before any other import"):
        once.run("key", lambda: pytest.fail("it ran"))


async def test_so_they_are_for_coroutines(monkeypatch):
    once = Once("memory://")
    monkeypatch.setattr(threading, "Lock", threading.RLock)
    with pytest.raises(ConfigurationError, match="patch first, before any other import"):
        await once.run_async("key", lambda: pytest.fail("it ran"))


def test_postgres_is_refused_where_there_is_no_poll(monkeypatch):
    monkeypatch.delattr(select, "poll")
    with pytest.raises(ConfigurationError, match="use gevent or threads, or a store in Redis"):
        PostgresStore("postgresql://127.0.0.1/nowhere")
