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
import redis
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from redis.asyncio import Redis

from oncekey import StoreError
from oncekey.messages import AsyncInbox, from_jetstream, from_redis_stream
from oncekey.outbox import AsyncOutbox, AsyncRelay, Message
from tests.patience import until_async

ROOT = Path(__file__).parents[2]
LEASE = "2s"
TIMEOUT = "1s"
PAUSE = 3.0
KEYS = 8
OUT_OF_REACH = (psycopg.Error, OSError, StoreError)
PLACED = "CREATE TABLE placed (id TEXT PRIMARY KEY)"
PUT = "INSERT INTO placed VALUES (%s) ON CONFLICT DO NOTHING"
RECEIVED = "CREATE TABLE received (place BIGSERIAL, id TEXT, key TEXT, number INTEGER)"
KEEP = "INSERT INTO received (id, key, number) VALUES (%s, %s, %s)"
REPEATS = "CREATE TABLE repeats (id TEXT)"
REPEATED = "INSERT INTO repeats VALUES (%s)"


class JetStreamReader:
    """Reads a stream that forgets ids at once, so that the inbox alone knows what was there.

    It remembers its place itself, so that it reads in order though the server is restarted.
    """

    def __init__(self, url, name):
        self.url, self.name, self.to = url, name, f"{name}.placed"
        self._place = 0
        self._client = None

    async def open(self):
        if self._client is None:
            await self._connect()
            await self._stream.add_stream(
                name=self.name, subjects=[f"{self.name}.>"], duplicate_window=0.1, num_replicas=1
            )

    async def _connect(self):
        self._client = await nats.connect(self.url, allow_reconnect=False)
        self._stream = self._client.jetstream()
        self._pulled = None

    async def next(self):
        """Some messages, and what acknowledges each."""
        try:
            if not self._client.is_connected:
                await self._connect()
            if self._pulled is None:
                config = ConsumerConfig(
                    ack_policy=AckPolicy.NONE,
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=self._place + 1,
                )
                self._pulled = await self._stream.pull_subscribe(f"{self.name}.>", config=config)
            found = await self._pulled.fetch(100, timeout=0.2)
        except (nats.errors.TimeoutError, TimeoutError):
            return []
        except (nats.errors.Error, OSError):
            self._pulled = None
            return []
        for one in found:
            assert one.metadata.sequence.stream == self._place + 1
            self._place += 1
        return [(from_jetstream(one), _nothing) for one in found]

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
        try:
            found = await self._client.xread({self.name: self._place}, count=100, block=200)
        except redis.RedisError:
            return []
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
    """What a run needs to know.

    `seed` says who is struck when. So many relays are killed `at_once`. `restarts` are functions
    that end a server and start it again. A writer rests for `pause` seconds after each message.
    """

    def __init__(
        self, url, reader, *, messages, relays=3, at_once=1, seed=1, pause=0.0, restarts=()
    ):
        self.url, self.reader, self.messages = url, reader, messages
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.count, self.at_once, self.pause = relays, at_once, pause
        self.restarts = restarts
        self.killed = self.paused = self.restarted = 0
        self.undone: set[str] = set()
        self.over = False

    async def run(self, *, kills, every=0.75):
        """Strike about every so many seconds: `kills` times, or for as long as messages are put."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for table in (PLACED, RECEIVED, REPEATS):
                connection.execute(table)
        outbox = AsyncOutbox(self.url)
        inbox = AsyncInbox(self.url, "reader")
        await outbox.migrate()
        await inbox.migrate()
        await self.reader.open()
        relays = [self._start() for _ in range(self.count)]
        reading = asyncio.create_task(self._read(inbox))
        try:
            async with asyncio.TaskGroup() as writing:
                writers = [writing.create_task(self._write(outbox, key)) for key in range(KEYS)]
                writing.create_task(self._strike(relays, writers, kills, every))
            await until_async(self._all_sent, self.figures)
            seen = None
            while not self._all_received():  # a slow machine takes its time, but goes on
                await until_async(
                    lambda seen=seen: self._received() != seen or self._all_received(), self.figures
                )
                seen = self._received()
        finally:
            ended = [relay.poll() for relay in relays]
            for relay in relays:
                _end(relay)
            self.over = True
            await reading
            await self.reader.close()
            await inbox.aclose()
            await outbox.aclose()
        assert ended == [None] * self.count  # only those that were killed have ended
        self.check()

    def check(self):
        """Each committed message was received once, and those of a key in their order."""
        rows = self._ask("SELECT id, key, number FROM received ORDER BY place")
        committed = {name for (name,) in self._ask("SELECT id FROM placed")}
        ids = [row[0] for row in rows]
        assert len(ids) == len(set(ids))
        assert set(ids) == committed
        assert not committed & self.undone
        assert len(committed) + len(self.undone) == self.messages // KEYS * KEYS
        for key in {row[1] for row in rows}:
            numbers = [row[2] for row in rows if row[1] == key]
            assert numbers == sorted(numbers), key
        assert self._ask("SELECT count(*) FROM outbox_messages WHERE status <> 'sent'") == [(0,)]

    def _start(self):
        words = [
            *(sys.executable, "-m", "tests.outbox.kill_run", self.url, self.reader.url),
        ]
        return subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **getattr(self.reader, "environment", {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    async def _write(self, outbox, key):
        """Put the messages of a key, some of them in transactions that are rolled back."""
        connection = None
        for number in range(self.messages // KEYS):
            name, undone = f"{key}:{number}", number % 7 == 3
            message = Message(id=name, type="placed", body={"key": str(key), "number": number})
            while True:
                try:
                    if connection is None:
                        connection = await psycopg.AsyncConnection.connect(self.url)
                    async with connection.transaction(force_rollback=undone):
                        placed = await connection.execute(PUT, [name])
                        if placed.rowcount:  # else it was committed, and the answer was lost
                            await outbox.put(connection, message, to=self.reader.to, key=str(key))
                    break
                except OUT_OF_REACH:
                    connection = await _left(connection)
            if undone:
                self.undone.add(name)
            await asyncio.sleep(self.pause)
        await _left(connection)

    async def _strike(self, relays, writers, kills, every):
        """Kill relays with SIGKILL, pause one for longer than its lease, and restart servers."""
        restarts = list(self.restarts)
        turn = 0
        while turn < kills or restarts or not all(writer.done() for writer in writers):
            await asyncio.sleep(self.chance.uniform(0.5, 1.5) * every)
            doomed = self.chance.sample(range(len(relays)), self.at_once)
            for at in doomed:
                await asyncio.to_thread(_wait_for_its_work, relays[at])
            if turn % 3 == 1:
                paused = relays[doomed[0]]
                os.kill(paused.pid, signal.SIGSTOP)
                await asyncio.sleep(PAUSE)
                os.kill(paused.pid, signal.SIGCONT)
                self.paused += 1
            else:
                for at in doomed:
                    _end(relays[at])
                    relays[at] = self._start()
                self.killed += len(doomed)
            if restarts and turn % 3 == 2:
                await asyncio.to_thread(restarts.pop(0))
                self.restarted += 1
            turn += 1

    async def _read(self, inbox):
        connection = None
        while not self.over:
            for message, acknowledge in await self.reader.next():
                while not self.over:
                    try:
                        if connection is None:
                            connection = await psycopg.AsyncConnection.connect(self.url)
                        await self._receive(connection, inbox, message)
                        break
                    except OUT_OF_REACH:
                        connection = await _left(connection)
                await acknowledge()
        await _left(connection)

    async def _receive(self, connection, inbox, message):
        async with connection.transaction(), inbox.atomic(connection, message) as delivery:
            if delivery.duplicate:
                await connection.execute(REPEATED, [message.id])
            else:
                key, number = message.find("key"), message.find("number")
                await connection.execute(KEEP, (message.id, key, number))

    def figures(self):
        """What came of it, in words."""
        counted = {
            "put": "SELECT count(*) FROM placed",
            "waiting": "SELECT count(*) FROM outbox_messages WHERE status <> 'sent'",
            "received": "SELECT count(*) FROM received",
            "different": "SELECT count(DISTINCT id) FROM received",
            "repeats that the inbox knew": "SELECT count(*) FROM repeats",
        }
        found = {name: self._ask(question)[0][0] for name, question in counted.items()}
        found |= {"rolled back": len(self.undone), "relays killed": self.killed}
        found |= {"relays paused": self.paused, "servers restarted": self.restarted}
        return ", ".join(f"{count:,} {name}" for name, count in found.items())

    def _all_sent(self):
        return self._ask("SELECT count(*) FROM outbox_messages WHERE status <> 'sent'") == [(0,)]

    def _all_received(self):
        missing = "SELECT count(*) FROM placed WHERE id NOT IN (SELECT id FROM received)"
        return self._ask(missing) == [(0,)]

    def _received(self):
        return self._ask("SELECT count(*) FROM received UNION ALL SELECT count(*) FROM repeats")

    def _ask(self, question):
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(question).fetchall()


def _wait_for_its_work(relay):
    """Wait until a relay has begun, however long that takes."""
    if not relay.stdout.closed:
        relay.stdout.readline()
        relay.stdout.close()


def _end(relay):
    relay.kill()
    relay.wait()
    relay.stdout.close()


async def _left(connection):
    if connection is not None:
        await connection.close()


async def relay(url, to):
    """Be a relay, until killed."""
    made = AsyncRelay(url, to, lease=LEASE, timeout=TIMEOUT, poll="50ms", batch=10)
    sys.stdout.write("it begins\n")
    sys.stdout.flush()
    await made.run()


if __name__ == "__main__":
    asyncio.run(relay(*sys.argv[1:]))
