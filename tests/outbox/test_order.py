"""The messages of a key are numbered in the order of their commits."""

import asyncio

import psycopg

from oncekey.outbox import AsyncOutbox, Message
from tests.patience import PATIENCE, until_async

WRITERS = 50
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
DRAWN = "SELECT last_value FROM outbox_messages_number_seq"


async def test_fifty_writers_of_one_key_are_numbered_as_they_commit(postgres_url):
    outbox = AsyncOutbox(postgres_url)
    committed = []

    async def write(name, may_commit=None):
        async with (
            await psycopg.AsyncConnection.connect(postgres_url) as connection,
            connection.transaction(),
        ):
            await outbox.put(connection, Message(id=name), to="orders", key="7")
            committed.append(name)  # nobody else has the key before the commit
            if may_commit is not None:
                await may_commit.wait()

    try:
        await outbox.migrate()
        may_commit = asyncio.Event()
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE):
            tasks.create_task(write("first", may_commit))
            await until_async(lambda: committed)
            for number in range(1, WRITERS):
                tasks.create_task(write(f"writer {number}"))
            async with await psycopg.AsyncConnection.connect(
                postgres_url, autocommit=True
            ) as beside:
                await until_async(lambda: _is(beside, WAITING, WRITERS - 1))
                assert await _one(beside, DRAWN) == 1  # whoever waits has no number yet
            may_commit.set()
    finally:
        await outbox.aclose()
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT message_id FROM outbox_messages ORDER BY number")
        assert [name for (name,) in rows] == committed
    assert len(committed) == WRITERS


async def _one(connection, question):
    return (await (await connection.execute(question)).fetchone())[0]


async def _is(connection, question, number):
    return await _one(connection, question) == number


async def test_other_keys_do_not_wait(postgres_url):
    outbox = AsyncOutbox(postgres_url)
    try:
        async with (
            await psycopg.AsyncConnection.connect(postgres_url) as one,
            await psycopg.AsyncConnection.connect(postgres_url) as two,
            one.transaction(),
        ):
            await outbox.put(one, Message(id="one"), to="orders", key="7")
            async with asyncio.timeout(PATIENCE), two.transaction():
                await outbox.put(two, Message(id="two"), to="orders", key="8")
                await outbox.put(two, Message(id="three"), to="orders")
    finally:
        await outbox.aclose()
