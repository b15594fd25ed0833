"""The inbox of coroutines. Its code is the twin of the other; here it meets its drivers."""

import asyncio

import psycopg
import pytest

from oncekey import ConfigurationError, InProgressError, LeaseLostError, Once
from oncekey.messages import AsyncInbox, Message
from tests.messages.together import WAITING
from tests.messages.ways_async import WAYS
from tests.patience import until_async

ORDER = Message(id="m-1", type="order.placed")


class BrokenError(Exception):
    pass


@pytest.fixture(params=WAYS)
def way(request):
    kind, database = WAYS[request.param]
    return kind(request.getfixturevalue(f"{database}_url"))


@pytest.fixture
async def inbox(way):
    inbox = AsyncInbox(getattr(way, "inbox_url", way.url), "billing")
    yield inbox
    await inbox.aclose()


async def process(way, inbox, name):
    async with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        if not delivery.duplicate:
            await way.write(connection, name)
            await delivery.complete(name)
        return delivery.duplicate, delivery.result


@pytest.mark.row("M6")
async def test_atomic_mode(way, inbox):
    assert await process(way, inbox, "first") == (False, "first")
    assert await process(way, inbox, "second") == (True, "first")
    assert way.orders() == ["first"]
    assert way.marks() == [("billing", "m-1", "completed", 1, None)]


async def test_an_error_undoes_the_block_and_leaves_the_transaction(way, inbox):
    await inbox.migrate()
    async with way.transaction() as connection:
        with pytest.raises(BrokenError):
            async with inbox.atomic(connection, ORDER):
                await way.write(connection, "inside")
                raise BrokenError
        await way.write(connection, "after")
    assert way.orders() == ["after"]
    assert way.marks() == []


async def test_leased_mode(way, inbox):
    other = AsyncInbox(way.url, "billing")
    async with inbox.leased(ORDER) as delivery:
        assert (delivery.duplicate, delivery.number) == (False, 1)
        with pytest.raises(InProgressError):
            async with other.leased(ORDER):
                pass
        async with way.transaction() as connection:
            await way.write(connection, "7")
            await delivery.complete({"order": 7}, connection=connection)
    async with other.leased(ORDER) as delivery:
        assert delivery.result == {"order": 7}
    assert way.orders() == ["7"]
    await other.aclose()


async def test_whoever_lost_the_lease_cannot_complete(way, inbox):
    other = AsyncInbox(way.url, "billing")
    with pytest.raises(LeaseLostError):
        async with inbox.leased(ORDER) as delivery:
            way.execute("UPDATE processed_messages SET lease_end = '2026-01-01 00:00:00'")
            async with other.leased(ORDER) as winner:
                await winner.complete("winner")
            async with way.transaction() as connection:
                await way.write(connection, "loser")
                await delivery.complete("loser", connection=connection)
    assert way.orders() == []
    assert await inbox.is_processed("m-1")
    await other.aclose()


async def test_marks(way, inbox):
    assert not await inbox.is_processed("m-1")
    claim = await inbox.mark_processing("m-1")
    assert await inbox.mark_processing("m-1") is None
    await inbox.mark_failed(claim, "no")
    assert (await inbox.mark_processing("m-1")).number == 2
    await inbox.mark_completed("m-1")
    assert await inbox.is_processed("m-1")
    assert await inbox.purge() == 0


async def test_the_second_waits_for_the_first_and_gets_its_result(postgres_url):
    way, inbox = WAYS["psycopg"][0](postgres_url), AsyncInbox(postgres_url, "billing")
    await inbox.migrate()
    async with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        second = asyncio.create_task(process(way, inbox, "second"))
        await until_async(lambda: way.execute(WAITING)[0][0])
        await delivery.complete("first")
    assert await second == (True, "first")
    await inbox.aclose()


async def test_a_poison_message_in_both_modes(postgres_url):
    letters = []

    async def box(letter):
        letters.append((letter.key, letter.attempts))

    way = WAYS["psycopg"][0](postgres_url)
    inbox = AsyncInbox(postgres_url, "billing", max_attempts=2, dead_letter=box)
    for _ in range(2):
        with pytest.raises(BrokenError):
            async with inbox.leased(ORDER):
                raise BrokenError
        with pytest.raises(BrokenError):
            async with (
                way.transaction() as connection,
                inbox.atomic(connection, Message(id="m-2")),
            ):
                raise BrokenError
    async with inbox.leased(ORDER) as delivery:
        assert delivery.dead
    async with (
        way.transaction() as connection,
        inbox.atomic(connection, Message(id="m-2")) as delivery,
    ):
        assert delivery.dead
    assert letters == [("m-1", 2), ("m-2", 2)]
    await inbox.aclose()


async def test_a_cancelled_block_frees_its_message(postgres_url):
    way, inbox = WAYS["psycopg"][0](postgres_url), AsyncInbox(postgres_url, "billing")
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
    await inbox.aclose()


async def test_marks_in_a_store_without_tables():
    once = Once("memory://")
    inbox = AsyncInbox(once, "billing")
    async with inbox.leased(ORDER) as delivery:
        await delivery.complete("done")
    async with inbox.leased(ORDER) as delivery:
        assert delivery.result == "done"
    await inbox.aclose()


async def test_waiting_too_long_is_in_progress(postgres_url):
    way = WAYS["psycopg"][0](postgres_url)
    patient = AsyncInbox(postgres_url, "billing")
    hasty = AsyncInbox(postgres_url, "billing", lock_timeout="50ms")
    async with (
        way.transaction() as connection,
        patient.atomic(connection, ORDER),
        way.transaction() as other,
    ):
        with pytest.raises(InProgressError):
            async with hasty.atomic(other, ORDER):
                pass
        async with hasty.atomic(other, Message(id="m-2")) as delivery:
            await delivery.complete(object())  # cannot be kept, which is no failure
    assert [row[2] for row in way.marks()] == ["completed", "completed"]
    await patient.aclose()
    await hasty.aclose()


async def test_the_brokers_count_decides_where_there_is_one(way):
    letters = []
    inbox = AsyncInbox(way.url, "billing", max_attempts=3, dead_letter=letters.append)
    async with (
        way.transaction() as connection,
        inbox.atomic(connection, Message(id="m-1", deliveries=4)) as delivery,
    ):
        assert delivery.dead
    assert [one.attempts for one in letters] == [3]
    await inbox.aclose()


async def test_what_is_prepared_may_be_forgotten_at_any_time(postgres_url):
    way, inbox = WAYS["psycopg"][0](postgres_url), AsyncInbox(postgres_url, "billing")
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        for number in range(6):
            if number == 2:
                await connection.execute("DEALLOCATE ALL")
            async with (
                connection.transaction(),
                inbox.atomic(connection, Message(id=f"m-{number}")) as delivery,
            ):
                await way.write(connection, number)
                if number == 4:
                    await connection.execute("DEALLOCATE ALL")
                await delivery.complete(number)
    assert way.orders() == ["0", "1", "2", "3", "4", "5"]
    await inbox.aclose()


async def test_a_transaction_that_ended_inside_the_block_is_noticed(postgres_url):
    inbox = AsyncInbox(postgres_url, "billing")
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        await connection.execute("SELECT 1")
        with pytest.raises(ConfigurationError, match="inside the block"):
            async with inbox.atomic(connection, ORDER):
                await connection.commit()
        await connection.rollback()
    await inbox.aclose()


async def test_messages_that_kill_or_fail_for_good(postgres_url):
    letters = []
    way = WAYS["psycopg"][0](postgres_url)
    inbox = AsyncInbox(postgres_url, "billing", max_attempts=1, dead_letter=letters.append)
    for number in (1, 2):
        await inbox.mark_processing(f"m-{number}", ttl="1h")
    way.execute("UPDATE processed_messages SET lease_end = '2026-01-01 00:00:00'")
    assert await inbox.mark_processing("m-1") is None
    async with inbox.leased(Message(id="m-2")) as delivery:
        assert delivery.dead
    assert [(one.key, one.attempts) for one in letters] == [("m-1", 1), ("m-2", 1)]
    with pytest.raises(LeaseLostError):
        await inbox.mark_completed("m-3")
    await inbox.aclose()
