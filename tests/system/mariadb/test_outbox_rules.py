"""What the outbox does otherwise on MariaDB, and what nobody may notice of it."""

import asyncio
from contextlib import closing, contextmanager

import asyncmy
import pymysql
import pytest

from oncekey import ConfigurationError
from oncekey.outbox import AsyncOutbox, AsyncRelay, Message
from oncekey.outbox import table as outbox_table
from tests.messages.together import aside, until_blocked
from tests.messages.ways import ORDERS
from tests.outbox.conftest import open_outbox
from tests.patience import PATIENCE, until_async
from tests.system.mariadb.ways import WAYS, WAYS_ASYNC, settings

__all__ = ["open_outbox"]

WRITERS = 50
NUMBERED = "SELECT message_id FROM outbox_messages ORDER BY number"


class _UndoneError(Exception):
    """Rolls a transaction back."""


@contextmanager
def connected(url, **options):
    with closing(pymysql.connect(**settings(url), **options)) as connection:
        connection.begin()
        yield connection


@pytest.fixture
def outbox(inbox_url, open_outbox):
    return open_outbox(inbox_url)


def put(way, outbox, *names, key=None, to="orders"):
    with way.transaction() as connection:
        for name in names:
            outbox.put(connection, Message(id=name), to=to, key=key)


@pytest.mark.parametrize("name", WAYS_ASYNC)
async def test_in_a_coroutine_it_is_the_same(name, inbox_url):
    way = WAYS_ASYNC[name](inbox_url)
    outbox = AsyncOutbox(getattr(way, "inbox_url", way.url))
    with pytest.raises(_UndoneError):
        async with way.transaction() as connection:
            await outbox.put(connection, Message(), to="orders.gone")
            raise _UndoneError
    async with way.transaction() as connection:
        await way.write(connection, 7)
        first = await outbox.put(connection, Message(), to="orders.paid", key="7")
        second = await outbox.put(connection, Message(), to="orders.late", after="1h")
        await outbox.put(connection, Message(id=first), to="orders.again", key="7")
    await outbox.aclose()
    assert way.execute(
        "SELECT message_id, destination, message_key, due_at > created_at + INTERVAL 30 MINUTE "
        "FROM outbox_messages ORDER BY number"
    ) == [(first, "orders.paid", "7", 0), (second, "orders.late", None, 1)]
    assert way.orders() == ["7"]


async def test_fifty_writers_of_one_key_are_numbered_as_they_commit(inbox_url):
    outbox, way = AsyncOutbox(inbox_url), WAYS["pymysql"](inbox_url)
    committed, may_commit = [], asyncio.Event()

    async def write(name):
        connection = await asyncmy.connect(**settings(inbox_url))
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT * FROM orders")
        await outbox.put(connection, Message(id=name), to="orders", key="7")
        committed.append(name)  # nobody else has the key before the commit
        await may_commit.wait()
        await connection.commit()
        connection.close()

    async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE):
        for number in range(WRITERS):
            tasks.create_task(write(f"writer {number}"))
        await until_async(lambda: way.execute(way.WAITING) == [(WRITERS - 1,)])
        with connected(inbox_url) as connection:  # whoever waits has no number yet
            async with asyncio.timeout(PATIENCE):
                await asyncio.to_thread(_put_another, inbox_url, connection)
        may_commit.set()
    await outbox.aclose()
    names = [name for (name,) in way.execute(NUMBERED)]
    assert names == [committed[0], "another", *committed[1:]]
    assert len(committed) == WRITERS


def _put_another(url, connection):
    """A message of another key, which does not wait, and is committed."""
    from oncekey.outbox import Outbox

    outbox = Outbox(url)
    outbox.put(connection, Message(id="another"), to="orders", key="8")
    connection.commit()
    outbox.close()


def test_who_waits_for_an_id_keeps_the_next_number_from_nobody(inbox_url, outbox):
    """Others wait only if their ids belong between that one and the one before it."""
    way = WAYS["pymysql"](inbox_url)
    with aside() as start, way.transaction() as connection:
        outbox.put(connection, Message(id="same"), to="orders")
        second = start(put, way, outbox, "same")
        until_blocked(way)
        start(put, way, outbox, "zfree").result(PATIENCE)
        assert way.execute(way.WAITING) == [(1,)]  # still
    second.result()
    assert sorted(way.execute(NUMBERED)) == [("same",), ("zfree",)]


def test_connections_to_another_database(inbox_url, new_url, open_outbox):
    outbox = open_outbox(inbox_url)

    def refused(key):
        with (
            connected(new_url) as connection,
            pytest.raises(ConfigurationError, match="another database"),
        ):
            outbox.put(connection, Message(), to="orders", key=key)

    refused(None)
    open_outbox(new_url).migrate()
    refused(None)
    refused("7")
    with connected(new_url, autocommit=True) as connection:
        connection.commit()
        with pytest.raises(ConfigurationError, match="is in none"):
            outbox.put(connection, Message(), to="orders")
    assert WAYS["pymysql"](new_url).execute(NUMBERED) == []


@pytest.mark.parametrize("left", ["UPDATE {} SET version = 0", "DELETE FROM {}"])
def test_a_migration_that_was_cut_off_is_done_again(new_url, open_outbox, left):
    way = WAYS["pymysql"](new_url)
    way.execute(ORDERS)
    open_outbox(new_url).migrate()
    way.execute("DROP TABLE outbox_messages")
    way.execute("DELETE FROM outbox_messages_turns WHERE turn > 7")
    way.execute(left.format("outbox_messages_schema"))
    again = open_outbox(new_url)
    again.migrate()
    put(way, again, "a", key="7")
    assert way.execute("SELECT count(*) FROM outbox_messages_turns") == [(65536,)]
    assert way.execute("SELECT message_id FROM outbox_messages") == [("a",)]


async def test_keys_and_destinations_are_told_apart_letter_by_letter(inbox_url, outbox):
    way, got = WAYS["pymysql"](inbox_url), []
    with connected(inbox_url, charset="latin1") as connection:
        for key in ("a", "A", "\N{LATIN SMALL LETTER A WITH DIAERESIS}", "\N{EURO SIGN}"):
            outbox.put(connection, Message(id=key, body=key), to=f"to.{key}", key=key)
        connection.commit()
    relay = AsyncRelay(inbox_url, {"to.a": got.append}, keep=0)
    assert await relay.drain() == 1
    assert [one.id for one in got] == ["a"]
    await relay.aclose()
    relay = AsyncRelay(inbox_url, got.append)
    assert await relay.drain() == 3
    await relay.aclose()
    assert {(one.key, one.body.decode(), one.to.removeprefix("to.")) for one in got} == {
        (one.id, one.id, one.id) for one in got
    }
    assert way.execute("SELECT count(DISTINCT message_key) FROM outbox_messages") == [(4,)]


@pytest.mark.parametrize("on_dead", ["block", "skip"])
async def test_no_key_is_left_out_however_many_there_are(inbox_url, outbox, monkeypatch, on_dead):
    """Some entries of the index are looked at with one question; here a few."""
    monkeypatch.setattr(outbox_table, "_ENTRIES", 3)
    way, got = WAYS["pymysql"](inbox_url), []
    put(way, outbox, *(f"b{number}" for number in range(10)), key="blocked")
    for number in range(8):
        put(way, outbox, f"first {number}", f"second {number}", key=f"key {number}")
    put(way, outbox, "elsewhere", key="zzz", to="elsewhere")
    way.execute("UPDATE outbox_messages SET status = 'dead' WHERE message_id = 'b0'")
    relay = AsyncRelay(
        inbox_url, {"orders": lambda one: got.append(one.id)}, batch=2, on_dead=on_dead
    )
    await relay.drain()
    while await relay.drain():
        pass
    await relay.aclose()
    expected = {f"{one} {number}" for one in ("first", "second") for number in range(8)}
    behind = {f"b{number}" for number in range(1, 10)} if on_dead == "skip" else set()
    assert len(got) == len(set(got))
    assert set(got) == expected | behind
    for number in range(8):
        assert got.index(f"first {number}") < got.index(f"second {number}")


def test_what_another_relay_has_taken_since_it_was_found_is_left_to_it(inbox_url, outbox):
    put(WAYS["pymysql"](inbox_url), outbox, "a", "b")
    asked = {"routes": ["*"], "resting": [], "lease": 60.0, "behind": "", "past_dead": False}
    table, given = outbox_table.OutboxTable(outbox._own), {"limit": 1, **asked}
    find, others = table._found, []

    def found(*asked, **options):
        numbers = find(*asked, **options)
        if not others:
            others.append(())
            others[:] = table.lease("another relay", **given)
        return numbers

    table._found = found
    assert table.lease("too late", **given) == []
    assert [one.id for one in others] == ["a"]
    assert [one.id for one in table.lease("next", **given)] == ["b"]
    assert table.sent("too late", others) == set()
    assert table.sent("another relay", others) == {others[0].number}


async def test_fifty_writers_some_of_them_slow(inbox_url):
    """None is skipped because its transaction was late, and none is sent before its commit."""
    outbox, got, may_commit = AsyncOutbox(inbox_url), [], set()

    async def take(message):
        assert message.id in may_commit
        got.append(message.id)

    relay = AsyncRelay(inbox_url, take, poll="10ms", batch=7)
    slow = asyncio.Event()

    async def write(number):
        connection = await asyncmy.connect(**settings(inbox_url))
        for turn in range(4):
            key = f"key {number % 5}" if turn % 2 else None
            name = f"{number}.{turn}"
            await connection.begin()
            await outbox.put(connection, Message(id=name), to="orders", key=key)
            if number % 10 == 0 and turn == 0:
                await slow.wait()
            may_commit.add(name)
            await connection.commit()
        connection.close()

    running = asyncio.create_task(relay.run())
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE):
        for number in range(WRITERS):
            tasks.create_task(write(number))
        await until_async(lambda: len(got) >= (WRITERS - 5) * 4)
        slow.set()
    await until_async(lambda: len(got) >= WRITERS * 4)
    relay.stop()
    await running
    await relay.aclose()
    await outbox.aclose()
    assert len(got) == len(set(got)) == WRITERS * 4
