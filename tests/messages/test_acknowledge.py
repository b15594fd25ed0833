"""Loops without a framework: what nats-py and redis-py are told, and what comes of it."""

import asyncio
import logging

import nats
import pytest
import redis.asyncio
from nats.js.api import AckPolicy, ConsumerConfig

from oncekey import ConfigurationError
from oncekey.messages import AsyncInbox, acknowledged, acknowledged_entry, by_fields
from tests.patience import PATIENCE, until_async
from tests.servers.nats_fixtures import nats_server, stream_name
from tests.servers.redis_fixtures import redis_server

__all__ = ["nats_server", "redis_server", "stream_name"]


class BrokenError(Exception):
    pass


@pytest.fixture
async def inbox():
    inbox = AsyncInbox("memory://", "billing")
    yield inbox
    await inbox.aclose()


class Nats:
    """Messages of JetStream, one after the other, as nats-py hands them out."""

    async def open(self, url, name, **limits):
        self.name = name
        self.client = await nats.connect(url)
        self.js = self.client.jetstream()
        await self.js.add_stream(name=name, subjects=[f"{name}.>"])
        config = ConsumerConfig(ack_wait=1 if limits else PATIENCE, **limits)
        self.pulled = await self.js.pull_subscribe(f"{name}.*", "billing", config=config)

    async def close(self):
        await self.client.close()

    async def place(self, name):
        headers = {"Nats-Msg-Id": name}
        await self.js.publish(f"{self.name}.placed", b'{"order": 7}', headers=headers)

    async def next(self):
        return acknowledged((await self.pulled.fetch(1, timeout=PATIENCE))[0])

    async def waiting(self):
        """Neither acknowledged nor given up."""
        await self.client.flush()
        found = await self.js.consumer_info(self.name, "billing")
        return found.num_ack_pending


class Redis:
    """Entries of a stream: new ones, and those that were left pending."""

    async def open(self, url, name):
        self.name = name
        self.client = redis.asyncio.Redis.from_url(url)
        await self.client.xgroup_create(name, "billing", mkstream=True)

    async def close(self):
        await self.client.aclose()

    async def place(self, name):
        await self.client.xadd(self.name, {"order": "7"})

    async def next(self):
        new = await self.client.xreadgroup("billing", "c-1", {self.name: ">"}, count=1)
        entries = new[0][1] if new else (await self._pending())[1]
        return acknowledged_entry(self.client, self.name, "billing", entries[0])

    async def _pending(self):
        return await self.client.xautoclaim(self.name, "billing", "c-2", min_idle_time=0)

    async def waiting(self):
        return (await self.client.xpending(self.name, "billing"))["pending"]


@pytest.fixture(params=[Nats, Redis], ids=["nats", "redis"])
async def line(request, stream_name):
    line = request.param()
    server = request.getfixturevalue(f"{request.param.__name__.lower()}_server")
    await line.open(server.url, stream_name)
    yield line
    await line.close()


async def left(line, count):
    """So many wait; JetStream hears what it is told a little later."""

    async def so_many():
        return await line.waiting() == count

    await until_async(so_many)


async def test_a_message_in_progress_then_broken_then_done(line, inbox, caplog):
    caplog.set_level(logging.INFO, "oncekey")
    await line.place("m-1")
    entered, leave = asyncio.Event(), asyncio.Event()

    async def first():
        async with await line.next() as message, inbox.leased(message):
            entered.set()
            await leave.wait()
            raise BrokenError

    async with asyncio.timeout(PATIENCE):
        running = asyncio.create_task(first())
        await entered.wait()
        if isinstance(line, Redis):  # JetStream has no reason to deliver it yet
            async with await line.next() as message, inbox.leased(message):
                raise AssertionError("it is in progress")
            assert "a message was put back" in caplog.text
            (pending,) = await line.client.xpending_range(line.name, "billing", "-", "+", 1)
            assert pending["times_delivered"] == 1  # who only asked has not used up a delivery
        leave.set()
        with pytest.raises(BrokenError):
            await running
        assert await line.waiting() == 1
        async with await line.next() as message, inbox.leased(message) as delivery:
            assert delivery.number == 2
        await left(line, 0)


@pytest.fixture
async def limited(nats_server, stream_name):
    """Opens JetStream with so many deliveries of a message."""
    line = Nats()

    async def open_line(most):
        await line.open(nats_server.url, stream_name, max_deliver=most)
        return line

    yield open_line
    await line.close()


async def test_a_limit_of_deliveries_is_not_used_up_by_waiting(limited, inbox):
    """The block waits for the message, and JetStream hears that it is in progress."""
    line = await limited(1)
    await line.place("m-1")
    beats, elsewhere = asyncio.Event(), await inbox.mark_processing("m-1")

    async def beat(message):
        if message.data == b"+WPI":
            beats.set()

    async def process():
        async with await line.next() as message, inbox.leased(message) as delivery:
            return delivery.duplicate, delivery.result

    async with asyncio.timeout(PATIENCE):
        await line.client.subscribe(f"$JS.ACK.{line.name}.>", cb=beat)
        processing = asyncio.create_task(process())
        await beats.wait()
        await inbox.mark_completed(elsewhere, "elsewhere")
        assert await processing == (True, "elsewhere")
        await left(line, 0)


@pytest.mark.parametrize(
    ("most", "lease", "said"),
    [(1, "30s", "0 s later"), (2, "2h", "3600 s later"), (2, "30s", ""), (-1, "2h", "")],
)
async def test_a_limit_that_ends_before_the_lease_is_told_once(limited, most, lease, said, caplog):
    line, inbox = await limited(most), AsyncInbox("memory://", "billing", lease=lease)
    for name in ("m-1", "m-2"):
        await line.place(name)
        async with await line.next() as message, inbox.leased(message):
            pass
    found = [one for one in caplog.messages if "before its lease" in one]
    assert len(found) == bool(said)
    assert all(said in one and line.name in one for one in found)
    await inbox.aclose()


@pytest.mark.parametrize("policy", [AckPolicy.NONE, AckPolicy.ALL])
async def test_a_consumer_that_acknowledges_what_is_put_back_is_refused(
    nats_server, stream_name, inbox, policy
):
    line = Nats()
    await line.open(nats_server.url, stream_name, ack_policy=policy)
    await line.place("m-1")
    with pytest.raises(ConfigurationError, match=f"'explicit', and not '{policy.value}'"):
        async with await line.next() as message, inbox.leased(message):
            raise AssertionError("it might be lost")
    await line.close()


async def test_a_message_without_a_usable_key_is_rejected(line, caplog):
    inbox = AsyncInbox("memory://", "billing", key=by_fields("customer"))
    await line.place("m-1")
    async with await line.next() as message, inbox.leased(message):
        raise AssertionError("nobody may run it")
    assert "a message was rejected: the message has no field 'customer'" in caplog.text
    await left(line, 1 if isinstance(line, Redis) else 0)  # Redis has no such word
    await inbox.aclose()


async def test_what_is_no_message_of_a_known_client_is_refused():
    with pytest.raises(ConfigurationError, match="nats-py and aio-pika, not for a dict"):
        async with acknowledged({}):
            pass
