"""A consumer in a process of its own: it takes messages from a pipe, and says which are done."""

import asyncio
from contextlib import asynccontextmanager, contextmanager

import asyncpg  # type: ignore[import-untyped]  # brings no types
import psycopg
from django.db import transaction  # type: ignore[import-untyped]  # Django brings no types

from oncekey import InProgressError, LeaseLostError
from oncekey.messages import AsyncInbox, Inbox, Message
from oncekey.messages.errors import worth_another_try
from tests.leases import LONG
from tests.messages.ways import AlchemyCore, Django, Psycopg
from tests.messages.ways_async import Asyncpg

LEASE = "500ms"
"""What a consumer that was killed has is soon taken over; who loses it otherwise tries again."""


class SteadyPsycopg(Psycopg):
    """One connection for all messages."""

    def connect(self, url):
        super().connect(url)
        self._connection = psycopg.connect(url, autocommit=True)

    @contextmanager
    def transaction(self):
        with self._connection.transaction():
            yield self._connection


class SteadyDjango(Django):
    """As Django has it: one connection for the thread."""

    def connect(self, url):
        super().connect(url)
        self._opened = self.opened()
        self._connection = self._opened.__enter__()

    @contextmanager
    def transaction(self):
        with transaction.atomic(using=self._connection.alias):
            yield self._connection


class SteadyAsyncpg(Asyncpg):
    """One connection for all messages."""

    _connection = None

    @asynccontextmanager
    async def transaction(self):
        self._connection = self._connection or await asyncpg.connect(self.url)
        async with self._connection.transaction():
            yield self._connection


KINDS = {
    "psycopg": SteadyPsycopg,
    "sqlalchemy": AlchemyCore,
    "django": SteadyDjango,
    "asyncpg": SteadyAsyncpg,
}


def consume(pipe, name, mode, url):
    """Until there is no more; what another consumer is at is put back."""
    consume_with(KINDS[name], pipe, mode, url)


def consume_with(kind, pipe, mode, url):
    """The same with any kind of way."""
    way = kind.__new__(kind)
    way.connect(url)
    if asyncio.iscoroutinefunction(kind.write):
        asyncio.run(_consume_async(way, pipe, mode, url))
        return
    inbox = Inbox(url, "billing", lease=LEASE, observers=())
    process = {"atomic": atomic, "leased": leased}[mode]
    while (number := pipe.recv()) is not None:
        done = None
        try:
            done = process(way, inbox, Message(id=number, type="order.placed"))
        except Exception as error:
            if not put_back(error):
                raise
        pipe.send((number, done))


async def _consume_async(way, pipe, mode, url):
    inbox = AsyncInbox(url, "billing", lease=LEASE, observers=())
    process = {"atomic": atomic_async, "leased": leased_async}[mode]
    while (number := await asyncio.to_thread(pipe.recv)) is not None:
        done = None
        try:
            done = await process(way, inbox, Message(id=number, type="order.placed"))
        except Exception as error:
            if not put_back(error):
                raise
        pipe.send((number, done))


def put_back(error):
    """Whether the message is worth another try: a database may end a transaction, too."""
    return isinstance(error, InProgressError | LeaseLostError) or worth_another_try(error)


def atomic(way, inbox, message):
    with way.transaction() as connection, inbox.atomic(connection, message) as delivery:
        if not delivery.duplicate:
            way.write(connection, message.id)
            delivery.complete(f"receipt of {message.id}")
        return delivery.result


def leased(way, inbox, message):
    with inbox.leased(message) as delivery:
        if not delivery.duplicate:
            with way.transaction() as connection:
                way.write(connection, message.id)
                delivery.complete(f"receipt of {message.id}", connection=connection)
        return delivery.result


async def atomic_async(way, inbox, message):
    async with way.transaction() as connection, inbox.atomic(connection, message) as delivery:
        if not delivery.duplicate:
            await way.write(connection, message.id)
            await delivery.complete(f"receipt of {message.id}")
        return delivery.result


async def leased_async(way, inbox, message):
    async with inbox.leased(message) as delivery:
        if not delivery.duplicate:
            async with way.transaction() as connection:
                await way.write(connection, message.id)
                await delivery.complete(f"receipt of {message.id}", connection=connection)
        return delivery.result


def stall(pipe, name, url):
    """Claims, and completes when it is told to; says what came of it."""
    way = KINDS[name].__new__(KINDS[name])
    way.connect(url)
    inbox = Inbox(url, "billing", lease=LONG, observers=())
    try:
        with inbox.leased(Message(id="m-1")) as delivery:
            pipe.send("claimed")
            pipe.recv()
            with way.transaction() as connection:
                way.write(connection, "stalled")
                delivery.complete("stalled", connection=connection)
    except LeaseLostError as error:
        pipe.send(type(error).__name__)
