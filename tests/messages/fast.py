"""Brokers of FastStream for tests, what becomes of their messages, and replies that get lost."""

import asyncio
from contextlib import asynccontextmanager

import psycopg
from faststream import AckPolicy, BaseMiddleware
from faststream.nats import JStream, NatsBroker, PullSub
from nats.js.api import ConsumerConfig

from tests.patience import PATIENCE, until_async


class LostError(ConnectionError):
    """The broker was not there when the reply was published."""


class Losing:
    """A middleware that loses the first replies, so many."""

    def __init__(self, losses=0):
        self.losses = losses

    def __call__(self, msg, /, *, context):
        return _Losing(msg, context=context, losing=self)


class _Losing(BaseMiddleware):
    def __init__(self, msg, /, *, context, losing):
        super().__init__(msg, context=context)
        self.losing = losing

    async def publish_scope(self, call_next, cmd):
        if self.msg is not None and self.losing.losses:
            self.losing.losses -= 1
            raise LostError
        return await call_next(cmd)


class Heard:
    """What arrived, in order; somebody may wait for the next."""

    def __init__(self):
        self.all = []
        self._new = asyncio.Condition()

    async def add(self, one):
        async with self._new:
            self.all.append(one)
            self._new.notify_all()

    async def wait_for(self, count):
        async with asyncio.timeout(PATIENCE), self._new:
            await self._new.wait_for(lambda: len(self.all) >= count)
        return self.all


class Jet:
    """Orders in a stream of JetStream, and a broker whose replies are heard."""

    def __init__(self, url, name, **options):
        self.name = name
        self.broker = NatsBroker(url, logger=None, **options)
        self.replies = Heard()

    def subscriber(self, ack_wait=PATIENCE, **options):
        config = ConsumerConfig(ack_wait=ack_wait, max_deliver=options.pop("max_deliver", None))
        usual = {
            "stream": JStream(self.name, subjects=[f"{self.name}.>"]),
            "pull_sub": PullSub(timeout=0.1),
            "durable": "billing",
            "ack_policy": AckPolicy.NACK_ON_ERROR,
        }
        return self.broker.subscriber(f"{self.name}.placed", config=config, **(usual | options))

    def publisher(self):
        return self.broker.publisher(f"{self.name}-replies")

    @asynccontextmanager
    async def running(self):
        await self.broker.connect()
        self.nats = self.broker._connection
        self.js = self.nats.jetstream()
        hearing = await self.nats.subscribe(f"{self.name}-replies", cb=self._hear)
        await self.broker.start()
        try:
            yield self
        finally:
            await hearing.unsubscribe()
            await self.broker.stop()

    async def _hear(self, message):
        await self.replies.add((message.data.decode(), (message.headers or {}).get("mark")))

    async def place(self, body=b"7", message_id="m-1"):
        headers = {"content-type": "application/json"}
        if message_id:
            headers["Nats-Msg-Id"] = message_id
        await self.js.publish(f"{self.name}.placed", body, headers=headers)

    async def facts(self):
        """Those that are acknowledged, those that are not, and those that came again."""
        found = await self.js.consumer_info(self.name, "billing")
        return found.ack_floor.stream_seq, found.num_ack_pending, found.num_redelivered

    async def acknowledged(self, count=1):
        """So many messages are done, or the test fails."""

        async def done():
            return (await self.facts())[:2] == (count, 0)

        await until_async(done)


@asynccontextmanager
async def transaction_to(url):
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
        connection.transaction(),
    ):
        yield connection
