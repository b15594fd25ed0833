"""What counts as sent on real brokers. RabbitMQ is tried in tests/system/rabbitmq."""

import sqlite3
from contextlib import closing
from time import monotonic

import nats
import pytest
from redis.asyncio import Redis

from oncekey import ConfigurationError
from oncekey.messages import from_jetstream, from_redis_stream
from oncekey.outbox import AsyncRelay, Message, Outbox, OutboxMessage
from oncekey.outbox.targets import (
    CeleryTasks,
    JetStream,
    Kafka,
    MessageRefusedError,
    RabbitMQ,
    RedisStreams,
    RQJobs,
    Webhook,
    target_of,
)
from tests.servers.nats import NatsServer
from tests.servers.nats_fixtures import nats_server, stream_name
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server

__all__ = ["another_redis", "empty_redis", "nats_server", "redis_server", "stream_name"]


def message(to, name="m-1", body=b"7", **attributes):
    return OutboxMessage(id=name, to=to, type="paid", attributes=attributes, body=body)


async def published(target, *messages):
    """What became of the messages."""
    return [*await target.publish(messages, monotonic() + 30)]


def test_a_url_stands_for_a_target(monkeypatch):
    monkeypatch.setenv("ONCEKEY_WEBHOOK_SECRET", "whsec_YWJj whsec_ZGVm")
    for url, kind in (
        ("nats://localhost", JetStream),
        ("amqps://localhost", RabbitMQ),
        ("rediss://localhost", RedisStreams),
        ("kafka://one:9092,two:9092?client.id=shop", Kafka),
        ("https://hooks.test/in", Webhook),
        ("rq+redis://localhost/0#mail", RQJobs),
        ("celery://examples.worker.celery_app:app", CeleryTasks),
    ):
        assert type(target_of(url)) is kind
    with pytest.raises(ConfigurationError, match="librdkafka"):
        target_of("kafka://localhost?no.such.setting=1")


@pytest.fixture
async def stream(nats_server, stream_name):
    client = await nats.connect(nats_server.url)
    context = client.jetstream()
    await context.add_stream(name=stream_name, subjects=[f"{stream_name}.>"])
    yield context
    await client.close()


@pytest.fixture
async def jetstream(nats_server):
    target = target_of(nats_server.url)
    yield target
    await target.aclose()


async def test_jetstream_has_it_with_its_id_and_once(jetstream, stream, stream_name):
    one = message(f"{stream_name}.paid", tenant="a", number=3)
    assert await published(jetstream, one, message(f"{stream_name}.paid", "m-2")) == [None, None]
    assert await published(jetstream, one) == [None]  # a duplicate is as good as sent
    pulled = await stream.pull_subscribe(f"{stream_name}.*", "reader")
    found = [from_jetstream(one) for one in await pulled.fetch(3, timeout=1)]
    assert sorted(one.id for one in found) == ["m-1", "m-2"]
    (first,) = [one for one in found if one.id == "m-1"]
    assert first.body == b"7"
    assert (first.attributes["tenant"], first.attributes["number"]) == ("a", "3")


async def test_jetstream_refuses_what_no_stream_takes(jetstream, stream, stream_name):
    subject = f"{stream_name}.paid"
    found = await published(
        jetstream, message("nobody.paid"), message(subject), message(subject, "m-2", b"x" * 1048577)
    )
    assert [type(one) for one in found] == [MessageRefusedError, type(None), MessageRefusedError]
    assert "no stream takes this subject" in str(found[0])


async def test_a_relay_says_once_which_stream_forgets_ids_too_soon(
    nats_server, stream, stream_name, tmp_path, caplog
):
    lasting = f"{stream_name}-lasting"
    await stream.add_stream(name=lasting, subjects=[f"{lasting}.>"], duplicate_window=3600)
    path = tmp_path / "shop.db"
    outbox = Outbox(f"sqlite:///{path}")
    relay = AsyncRelay(f"sqlite:///{path}", nats_server.url)
    for number in (1, 2):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for name in (stream_name, lasting):
                order = Message(id=f"{name}-{number}", body=b"7")
                outbox.put(connection, order, to=f"{name}.paid")
            connection.execute("COMMIT")
        assert await relay.drain() == 2
    await relay.aclose()
    outbox.close()
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"{stream_name} remembers ids for 120 s" in said
    assert "let its consumers use an inbox" in said


async def test_jetstream_comes_back(tmp_path):
    server = NatsServer(tmp_path).start()
    target = JetStream(server.url)
    try:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="orders", subjects=["orders.>"])
        await client.close()
        assert await published(target, message("orders.paid")) == [None]
        server.kill()
        with pytest.raises(ConnectionError):
            await published(target, message("orders.paid", "m-2"))
            await published(target, message("orders.paid", "m-2"))  # the first may have been told
        server.start()
        assert await published(target, message("orders.paid", "m-2")) == [None]
    finally:
        await target.aclose()
        server.stop()


async def test_redis_has_it_as_an_inbox_reads_it(empty_redis):
    target = target_of(empty_redis.url)
    assert await published(target, message("orders", tenant="a"), message("mails", body=b"")) == [
        None,
        None,
    ]
    await target.aclose()
    async with Redis.from_url(empty_redis.url) as client:
        ((_, fields),) = await client.xrange("orders")
        assert fields == {b"tenant": b"a", b"type": b"paid", b"oncekey-id": b"m-1", b"data": b"7"}
        ((number, fields),) = await client.xrange("orders")
        found = from_redis_stream("orders", (number, fields))
        ((number, fields),) = await client.xrange("mails")
        empty = from_redis_stream("mails", (number, fields))
    assert (found.id, found.type, found.body) == ("m-1", "paid", b"7")
    assert found.attributes == {"tenant": "a", "type": "paid"}
    assert (empty.id, empty.body) == ("m-1", b"")


async def test_redis_says_of_each_what_became_of_it(empty_redis):
    async with Redis.from_url(empty_redis.url) as client:
        await client.set("no stream", "x")
    target = RedisStreams(empty_redis.url, length=1)
    found = await published(target, message("no stream"), message("orders"))
    assert "WRONGTYPE" in str(found[0])
    assert not isinstance(found[0], OSError)
    assert found[1] is None
    await target.aclose()


async def test_redis_out_of_reach_or_full_does_not_count(another_redis):
    server = another_redis()
    target = RedisStreams(server.url)
    async with Redis.from_url(server.url) as client:
        await client.config_set("maxmemory", 1)
        assert [type(one) for one in await published(target, message("orders"))] == [
            ConnectionError
        ]
        await client.config_set("maxmemory", 0)
    server.stop()
    assert [type(one) for one in await published(target, message("orders"))] == [ConnectionError]
    await target.aclose()
