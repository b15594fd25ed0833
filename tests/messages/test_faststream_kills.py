"""A consumer is killed between its work and its reply: the work is not done again, the reply is."""

import asyncio
import multiprocessing
import signal
from contextlib import contextmanager

import nats
import pytest
import redis.asyncio
from faststream.redis import BinaryMessageFormatV1

from oncekey.messages import Inbox
from tests.heavy import HEAVY
from tests.messages.stream_consumer import IDLE, consume
from tests.messages.together import PRELOADED
from tests.patience import PATIENCE, until_async
from tests.servers.nats_fixtures import nats_server, stream_name
from tests.servers.redis_fixtures import redis_server

__all__ = ["nats_server", "redis_server", "stream_name"]

FORKS = multiprocessing.get_context("forkserver")
CASES = [("nats", "atomic"), ("redis", "leased")]
if HEAVY:
    CASES += [("nats", "leased"), ("redis", "atomic")]


class Nats:
    def __init__(self, url, name):
        self.url, self.name = url, name

    async def __aenter__(self):
        self.client = await nats.connect(self.url)
        self.js = self.client.jetstream()
        await self.js.add_stream(name=self.name, subjects=[f"{self.name}.>"])
        self.replies = await self.client.subscribe(f"{self.name}-replies")
        return self

    async def __aexit__(self, *_):
        await self.client.close()

    async def place(self):
        headers = {"content-type": "application/json", "Nats-Msg-Id": "m-1"}
        await self.js.publish(f"{self.name}.placed", b"7", headers=headers)

    async def reply(self):
        return (await self.replies.next_msg(PATIENCE)).data.decode()

    async def unanswered(self):
        return self.replies.pending_msgs == 0

    async def give_back(self, answer):
        """In place of who had it: it is not done."""
        await self.client.publish(answer, b"-NAK")
        await self.client.flush()

    async def deliveries(self):
        """Until it was acknowledged."""

        async def done():
            found = await self.js.consumer_info(self.name, "billing")
            return found.ack_floor.stream_seq == 1 and found.delivered.consumer_seq

        return await until_async(done)


class Redis:
    def __init__(self, url, name):
        self.url, self.name = url, name

    async def __aenter__(self):
        self.client = redis.asyncio.Redis.from_url(self.url)
        await self.client.xgroup_create(self.name, "billing", mkstream=True)
        return self

    async def __aexit__(self, *_):
        await self.client.aclose()

    async def place(self):
        said = {"reply_to": None, "headers": {}, "correlation_id": "c-1"}
        body = await BinaryMessageFormatV1.encode(message=7, **said)
        await self.client.xadd(self.name, {"__data__": body})

    async def reply(self):
        found = await self.client.xread(
            {f"{self.name}-replies": "0"}, block=round(PATIENCE * 1000), count=1
        )
        ((_, ((_, fields),)),) = found
        return BinaryMessageFormatV1.parse(fields[b"__data__"])[0].decode()

    async def unanswered(self):
        return await self.client.xlen(f"{self.name}-replies") == 0

    async def give_back(self, _answer):
        """Who had it has had it for too long."""
        (left,) = await self.client.xpending_range(self.name, "billing", "-", "+", 9)
        owner, entry = left["consumer"], left["message_id"]
        await self.client.xclaim(self.name, "billing", owner, 0, [entry], idle=IDLE, justid=True)

    async def deliveries(self):
        """Until it was acknowledged."""

        async def done():
            return not (await self.client.xpending(self.name, "billing"))["pending"]

        await until_async(done)
        return 2  # Redis forgets the count with the acknowledgement


@pytest.mark.parametrize(("broker", "mode"), CASES)
async def test_killed_between_work_and_reply(broker, mode, request, way_of, stream_name):
    way = way_of("psycopg")
    inbox = Inbox(way.url, "billing")
    inbox.migrate()
    inbox.close()
    url = request.getfixturevalue(f"{broker}_server").url
    arguments = (url, stream_name, way.url, mode)
    async with {"nats": Nats, "redis": Redis}[broker](url, stream_name) as line:
        with started(*arguments, dies=True) as (first, pipe):
            await line.place()
            await asyncio.to_thread(first.join, PATIENCE)
            assert first.exitcode == -signal.SIGKILL
            await line.give_back(pipe.recv())
        assert way.orders() == ["7"]
        assert await line.unanswered()
        with started(*arguments, dies=False) as (second, pipe):
            assert await line.reply() == "receipt of 7"
            assert await line.deliveries() == 2
            pipe.send(None)
            await asyncio.to_thread(second.join, PATIENCE)
            assert second.exitcode == 0
    assert way.orders() == ["7"]
    assert [row[2:4] for row in way.marks()] == [("completed", 1)]


@contextmanager
def started(*arguments, dies):
    """A consumer, which does not outlive the block."""
    FORKS.set_forkserver_preload(PRELOADED)
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=consume, args=(theirs, *arguments), kwargs={"dies": dies})
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        ours.close()
