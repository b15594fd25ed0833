"""Relays that are killed and paused while messages come, and a consumer with an inbox."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import nats
import psycopg
from redis.asyncio import Redis

from oncekey.messages import AsyncInbox, from_jetstream, from_redis_stream
from oncekey.outbox import AsyncOutbox, AsyncRelay, Message
from tests.patience import until_async

ROOT = Path(__file__).parents[2]
LEASE = "2s"
TIMEOUT = "1s"
PAUSE = 3.0
KEYS = 8
RECEIVED = "CREATE TABLE received (place BIGSERIAL, id TEXT, key TEXT, number INTEGER)"
KEEP = "INSERT INTO received (id, key, number) VALUES (%s, %s, %s)"


class JetStreamReader:
    """Reads a stream that forgets ids at once, so that the inbox alone knows what was there."""

    def __init__(self, url, name):
        self.url, self.name, self.to = url, name, f"{name}.placed"

    async def open(self):
        self._client = await nats.connect(self.url, max_reconnect_attempts=-1)
        stream = self._client.jetstream()
        await stream.add_stream(
            name=self.name, subjects=[f"{self.name}.>"], duplicate_window=0.1, num_replicas=1
        )
        self._pulled = await stream.pull_subscribe(f"{self.name}.>", "reader")

    async def next(self):
        """Some messages, and what acknowledges each."""
        try:
            found = await self._pulled.fetch(100, timeout=0.2)
        except (nats.errors.Error, OSError):
            return []
        return [(from_jetstream(one), one.ack) for one in found]

    async def close(self):
        await self._client.close()


class RedisReader:
    """Reads a stream of Redis from its start."""

    def __init__(self, url, name):
        self.url, self.name, self.to = url, name, name
        self._place = "0"

    async def open(self):
        self._client = Redis.from_url(self.url)

    async def next(self):
        found = await self._client.xread({self.name: self._place}, count=100, block=200)
        messages = []
        for _, entries in found:
            for entry in entries:
                self._place = entry[0]
                messages.append((from_redis_stream(self.name, entry), _nothing))
        return messages

    async def close(self):
        await self._client.aclose()


async def _nothing():
    """A stream that is read by its places acknowledges nothing."""


class KillRun:
    """What a run needs to know. `seed` says who is killed when."""

    def __init__(self, url, reader, *, messages, relays=3, seed=1):
        self.url, self.reader, self.messages = url, reader, messages
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.count = relays
        self.committed: set[str] = set()
        self.killed = self.paused = 0
        self.over = False

    async def run(self, *, kills):
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(RECEIVED)
        outbox = AsyncOutbox(self.url)
        inbox = AsyncInbox(self.url, "reader")
        await outbox.migrate()
        await inbox.migrate()
        await self.reader.open()
        relays = [self._start() for _ in range(self.count)]
        reading = asyncio.create_task(self._read(inbox))
        try:
            async with asyncio.TaskGroup() as tasks:
                for key in range(KEYS):
                    tasks.create_task(self._write(outbox, key))
                tasks.create_task(self._strike(relays, kills))
            await until_async(self._all_sent)
            await until_async(self._all_received)
        finally:
            for relay in relays:
                relay.kill()
                relay.wait()
            self.over = True
            await reading
            await self.reader.close()
            await inbox.aclose()
            await outbox.aclose()
        self.check()

    def check(self):
        """Each committed message was received once, and those of a key in their order."""
        rows = self._ask("SELECT id, key, number FROM received ORDER BY place")
        ids = [row[0] for row in rows]
        assert len(ids) == len(set(ids))
        assert set(ids) == self.committed
        for key in {row[1] for row in rows}:
            numbers = [row[2] for row in rows if row[1] == key]
            assert numbers == sorted(numbers), key
        assert self._ask("SELECT count(*) FROM outbox_messages WHERE status <> 'sent'") == [(0,)]

    def _start(self):
        words = [
            *(sys.executable, "-m", "tests.outbox.kill_run", self.url, self.reader.url),
        ]
        return subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL)

    async def _write(self, outbox, key):
        """Put the messages of a key, some of them in transactions that are rolled back."""
        each = self.messages // KEYS
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            for number in range(each):
                name = f"{key}:{number}"
                message = Message(id=name, type="placed", body={"key": str(key), "number": number})
                async with connection.transaction(force_rollback=number % 7 == 3):
                    await outbox.put(connection, message, to=self.reader.to, key=str(key))
                if number % 7 != 3:
                    self.committed.add(name)
                await asyncio.sleep(0)

    async def _strike(self, relays, kills):
        """Kill relays with SIGKILL, and pause one for longer than its lease in between."""
        for turn in range(kills):
            await asyncio.sleep(self.chance.uniform(0.3, 1.2))
            at = self.chance.randrange(len(relays))
            if turn % 3 == 1:
                os.kill(relays[at].pid, signal.SIGSTOP)
                await asyncio.sleep(PAUSE)
                os.kill(relays[at].pid, signal.SIGCONT)
                self.paused += 1
            else:
                relays[at].kill()
                relays[at].wait()
                relays[at] = self._start()
                self.killed += 1

    async def _read(self, inbox):
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            while not self.over:
                for message, acknowledge in await self.reader.next():
                    async with (
                        connection.transaction(),
                        inbox.atomic(connection, message) as delivery,
                    ):
                        if not delivery.duplicate:
                            key, number = message.find("key"), message.find("number")
                            await connection.execute(KEEP, (message.id, key, number))
                    await acknowledge()

    def _all_sent(self):
        return self._ask("SELECT count(*) FROM outbox_messages WHERE status <> 'sent'") == [(0,)]

    def _all_received(self):
        return self._ask("SELECT count(DISTINCT id) FROM received") == [(len(self.committed),)]

    def _ask(self, question):
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(question).fetchall()


async def relay(url, to):
    """Be a relay, until killed."""
    made = AsyncRelay(url, to, lease=LEASE, timeout=TIMEOUT, poll="50ms", batch=10)
    await made.run()


if __name__ == "__main__":
    asyncio.run(relay(*sys.argv[1:]))
