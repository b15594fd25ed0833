"""The same as tests/outbox/test_kills.py, for longer, and with servers that are restarted."""

import asyncio

import pytest

from tests.outbox.kill_run import JetStreamReader, KillRun, RedisReader
from tests.patience import until_async
from tests.servers.nats import NatsServer
from tests.servers.postgres_fixtures import breakable_postgres
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["breakable_postgres", "empty_redis", "redis_server"]


@pytest.fixture
def url(breakable_postgres):
    return breakable_postgres.new_database()


async def test_on_jetstream_which_is_restarted(url, tmp_path):
    server = NatsServer(tmp_path).start()
    run = KillRun(url, JetStreamReader(server.url, "orders"), messages=4000)

    async def restart():
        await until_async(lambda: run.killed >= 2)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    restarting = asyncio.create_task(restart())
    try:
        await run.run(kills=12)
        await restarting
    finally:
        server.stop()
    assert (run.killed, run.paused) == (8, 4)


async def test_on_redis_streams(url, empty_redis):
    run = KillRun(url, RedisReader(empty_redis.url, "orders"), messages=4000, seed=2)
    await run.run(kills=12)
    assert (run.killed, run.paused) == (8, 4)
