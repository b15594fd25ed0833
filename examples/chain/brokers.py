"""How a service gets its messages. Each of these brokers delivers at least once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from examples.chain.database import Database
from oncekey.messages import Message, from_jetstream, from_redis_stream
from oncekey.outbox import OutboxMessage
from oncekey.outbox.targets import FunctionTarget, Target, target_of

AGAIN: Final = 2.0
"""After so many seconds a message that was not acknowledged is delivered again."""
_BATCH: Final = 50
_PAUSE: Final = 0.5

Delivered = tuple[Message, Callable[[], object]]
"""A message, and what acknowledges it."""


class Reader(Protocol):
    """Reads the messages of one destination for one service."""

    def prepare(self) -> None:
        """Make what is read, if it is not there."""

    def next(self) -> Iterable[Delivered]:
        """Return some messages; none after a while in which none came."""

    def left(self) -> int:
        """Return how many messages are still to be delivered or acknowledged."""

    def close(self) -> None:
        """Close the connection."""


def reader_of(url: str, to: str, service: str) -> Reader:
    """Return a reader of the broker at this URL."""
    if url.startswith("nats://"):
        return JetStreamReader(url, to, service)
    if url.startswith("redis://"):
        return RedisReader(url, to, service)
    return FileReader(url, to)


def sender_to(url: str) -> Target:
    """Return the target of the relay that sends to the broker at this URL."""
    return target_of(url) if not url.startswith("sqlite:///") else FunctionTarget(File(url).add)


class JetStreamReader:
    """Reads a stream of NATS."""

    def __init__(self, url: str, to: str, service: str) -> None:
        self._url, self._to, self._service = url, to, service
        self._stream = to.replace(".", "-")
        self._runner = asyncio.Runner()
        self._client: Any = None
        self._pulled: Any = None

    def prepare(self) -> None:
        """Make the stream and its consumer."""
        self._runner.run(self._open())

    async def _open(self) -> None:
        import nats
        from nats.js.api import ConsumerConfig

        self._client = await nats.connect(self._url, allow_reconnect=False)
        # The stream itself would know repeated messages for two minutes. Here the inbox shall.
        context = self._client.jetstream()
        await context.add_stream(name=self._stream, subjects=[self._to], duplicate_window=0.1)
        self._pulled = await context.pull_subscribe(
            self._to, self._service, config=ConsumerConfig(ack_wait=AGAIN)
        )

    def next(self) -> Iterable[Delivered]:
        """Return some messages; none after a while in which none came."""
        if self._pulled is None:
            self.prepare()
        for one in self._runner.run(self._fetch()):
            yield from_jetstream(one), partial(self._acknowledge, one)

    def _acknowledge(self, delivered: Any) -> None:
        self._runner.run(delivered.ack_sync())

    async def _fetch(self) -> list[Any]:
        from nats.errors import TimeoutError as NothingError

        try:
            return list(await self._pulled.fetch(_BATCH, timeout=_PAUSE))
        except NothingError:
            if not self._client.is_connected:
                raise
            return []

    def left(self) -> int:
        """Return how many messages are still to be delivered or acknowledged."""
        if self._pulled is None:
            self.prepare()
        told = self._runner.run(self._pulled.consumer_info())
        return int(told.num_pending + told.num_ack_pending)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._runner.run(self._client.close())
        self._runner.close()


class RedisReader:
    """Reads a stream of Redis in a group."""

    def __init__(self, url: str, to: str, service: str) -> None:
        from redis import Redis

        self._to, self._service = to, service
        self._client = Redis.from_url(url)

    def prepare(self) -> None:
        """Make the stream and its group."""
        from redis import ResponseError

        try:
            self._client.xgroup_create(self._to, self._service, "0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def next(self) -> Iterable[Delivered]:
        """Return what was not acknowledged in time, or else what is new."""
        idle = round(AGAIN * 1000)
        answer: Any = self._client.xautoclaim(self._to, self._service, "it", idle, count=_BATCH)
        entries = answer[1]
        if not entries:
            found: Any = self._client.xreadgroup(
                self._service, "it", {self._to: ">"}, count=_BATCH, block=round(_PAUSE * 1000)
            )
            entries = [entry for _, read in found for entry in read]
        for entry in entries:
            message = from_redis_stream(self._to, entry)
            yield message, partial(self._client.xack, self._to, self._service, entry[0])

    def left(self) -> int:
        """Return how many messages are still to be delivered or acknowledged."""
        (group,) = self._client.xinfo_groups(self._to)
        behind: Any = self._client.xrange(self._to, min=f"({group['last-delivered-id'].decode()}")
        return int(group["pending"]) + len(behind)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class File:
    """A broker in a file of SQLite, for those who have no other. It does not compare ids."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database: Database | None = None

    def opened(self) -> Database:
        """Return the database, with the table."""
        if self._database is None:
            self._database = Database(self._url)
            self._database.ask(
                "CREATE TABLE IF NOT EXISTS messages "
                "(number INTEGER PRIMARY KEY, receiver TEXT, message BLOB)"
            )
        return self._database

    async def add(self, message: OutboxMessage) -> None:
        """Keep the message until it is acknowledged."""
        kept = Message(id=message.id, type=message.type, body=message.body.decode())
        database = self.opened()
        with database.transaction() as connection:
            database.run(
                connection,
                "INSERT INTO messages (receiver, message) VALUES (?, ?)",
                message.to,
                msgspec.json.encode((kept.id, kept.type, kept.body)),
            )


class FileReader:
    """Reads such a file."""

    def __init__(self, url: str, to: str) -> None:
        self._file, self._to = File(url), to

    def prepare(self) -> None:
        """Make the file."""
        self._file.opened()

    def next(self) -> Iterable[Delivered]:
        """Return the first messages."""
        database = self._file.opened()
        rows = database.ask(
            "SELECT number, message FROM messages WHERE receiver = ? ORDER BY number LIMIT ?",
            self._to,
            _BATCH,
        )
        if not rows:
            time.sleep(0.02)
        for number, message in rows:
            name, kind, body = msgspec.json.decode(message)
            yield (
                Message(id=name, type=kind, body=body),
                partial(database.ask, "DELETE FROM messages WHERE number = ?", number),
            )

    def left(self) -> int:
        """Return how many messages are still to be delivered or acknowledged."""
        (row,) = self._file.opened().ask(
            "SELECT count(*) FROM messages WHERE receiver = ?", self._to
        )
        return int(row[0])

    def close(self) -> None:
        """Close the file."""
        self._file.opened().close()
