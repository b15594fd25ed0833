"""The inbox of coroutines on MariaDB, with asyncmy and SQLAlchemy on it."""

import asyncio

import pytest

from oncekey.messages import AsyncInbox, Message
from tests.messages.test_async import (
    ORDER,
    inbox,
    process,
    test_an_error_undoes_the_block_and_leaves_the_transaction,
    test_atomic_mode,
    test_leased_mode,
    test_marks,
    test_the_brokers_count_decides_where_there_is_one,
    test_whoever_lost_the_lease_cannot_complete,
)
from tests.patience import until_async
from tests.system.mariadb.ways import WAYS_ASYNC

__all__ = [
    "inbox",
    "test_an_error_undoes_the_block_and_leaves_the_transaction",
    "test_atomic_mode",
    "test_leased_mode",
    "test_marks",
    "test_the_brokers_count_decides_where_there_is_one",
    "test_whoever_lost_the_lease_cannot_complete",
]


@pytest.fixture(params=WAYS_ASYNC)
def way(request, inbox_url):
    return WAYS_ASYNC[request.param](inbox_url)


async def test_the_second_waits_for_the_first_and_gets_its_result(way, inbox):
    async with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        second = asyncio.create_task(process(way, inbox, "second"))
        await until_async(lambda: way.execute(way.WAITING)[0][0])
        await delivery.complete("first")
    assert await second == (True, "first")


async def test_a_cancelled_block_frees_its_message(way, inbox):
    entered = asyncio.Event()

    async def forever():
        async with way.transaction() as connection, inbox.atomic(connection, ORDER):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(forever())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await process(way, inbox, "second") == (False, "second")


async def test_batches(way):
    inbox = AsyncInbox(way.url, "billing")
    for expected in (False, True):
        async with (
            way.transaction() as connection,
            inbox.atomic_many(connection, [Message(id="a"), Message(id="b")]) as batch,
        ):
            assert [one.duplicate for one in batch] == [expected, expected]
            for delivery in batch:
                if not delivery.duplicate:
                    await way.write(connection, delivery.key)
                    await delivery.complete(delivery.key)
        assert [one.result for one in batch] == ["a", "b"]
    assert way.orders() == ["a", "b"]
    await inbox.aclose()
