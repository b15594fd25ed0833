"""One among sixty-four in a SQLite file: the others share commits with it.

A file has one lock for all of it, and no connection that breaks: what stands for both is another
process that holds the file.
"""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from oncekey import NotRecordedError, Once, StoreError
from oncekey.core.requests import Granted
from oncekey.stores import SQLiteStore
from tests.neighbours.street import CROWD, LARGE, ODD, Street
from tests.patience import PATIENCE, until_async
from tests.servers.redis_asks import ask

WRITTEN = f"UPDATE oncekey_records SET version = %d WHERE key = 'k{ODD}'"  # noqa: S608 - a constant
NEWER, READABLE = WRITTEN % 99, WRITTEN % 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.db"


@pytest.fixture
async def opened(path):
    """Opens what a process of its own would: nothing is shared but the file."""
    made = []

    async def open_one():
        store = SQLiteStore(path)
        once = Once(store, observers=())
        made.append(once)
        await once.run_async(f"first:{len(made)}", asyncio.sleep, 0)
        return once, store

    yield open_one
    for once in made:
        await once.aclose()


@pytest.fixture
async def street(opened):
    once, store = await opened()
    street = Street(once)
    street.store = store
    return street


@pytest.fixture
def other(street, path):
    """A connection of somebody else."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def commits(street, other, monkeypatch):
    """How many commits the settles of all take, when the file is free only after they came."""
    said, handed = [], []
    leader = street.once.core.store_async._leader
    hand = leader.hand
    monkeypatch.setattr(leader, "hand", lambda job: handed.append(job) or hand(job))
    street.store.writer.connection.set_trace_callback(said.append)

    async def count():
        await until_async(lambda: len(handed) >= 2 * CROWD)
        said.clear()  # what is under way now waits for the file
        other.execute("ROLLBACK")
        await street.others_are_done()
        await asyncio.wait([street.odd])
        return written(said)

    return count


def written(said):
    """Transactions that wrote something. A statement outside of one is one by itself."""
    count, inside, wrote = 0, False, False
    for text in said:
        word = text.split()[0]
        if word in ("BEGIN", "COMMIT"):
            count += wrote
            inside, wrote = word == "BEGIN", False
        elif word != "SELECT":
            count += not inside
            wrote = inside
    return count


async def test_a_slow_one_keeps_nobody_waiting(street, opened):
    go_on = street.hold_the_odd_one()
    street.start()
    await street.others_are_done()
    assert not street.odd.done()
    go_on.set()
    await street.odd_is_done()
    await street.nothing_is_lost((await opened())[0])


async def test_one_whose_key_somebody_else_holds_keeps_nobody_waiting(street, opened):
    elsewhere = Street((await opened())[0])
    go_on = elsewhere.hold_the_odd_one()
    elsewhere.odd_answer = street.odd_answer = "the other one's"
    running = asyncio.create_task(elsewhere.call(ODD))
    await elsewhere.started.wait()
    street.start()
    await street.others_are_done()
    assert not street.odd.done()
    go_on.set()
    await street.odd_is_done()
    await running
    street.effects += elsewhere.effects
    await street.nothing_is_lost((await opened())[0])


@pytest.mark.fast_path("how many commits a crowd needs with something large in it")
async def test_a_large_result_costs_nobody_a_commit(street, opened, other, commits):
    """One for whoever came first, and one for all who came meanwhile."""
    street.odd_answer = LARGE
    street.when_all_have_claimed(lambda: other.execute("BEGIN IMMEDIATE"))
    street.start()
    assert await commits() <= 2
    await street.all_are_done()
    await street.nothing_is_lost((await opened())[0])


async def test_a_poisoned_one_is_told_so_and_nobody_else(street, opened, other):
    """Its record cannot be read when it settles: the others are committed beside it.

    What it did is not forgotten: it is recorded as soon as that can be done.
    """
    street.when_all_have_claimed(lambda: other.execute(NEWER))
    street.start()
    await street.others_are_done()
    with pytest.raises(NotRecordedError) as told:
        await street.odd
    assert told.value.result == street.odd_answer
    other.execute(READABLE)
    await until_async(lambda: street.once.get(f"k{ODD}").status == "completed")  # by the keeper
    await street.nothing_is_lost((await opened())[0])


@pytest.mark.fast_path("how many commits a crowd needs with a poisoned one in it")
async def test_a_poisoned_one_costs_nobody_a_commit(street, other, commits):
    street.when_all_have_claimed(lambda: other.executescript(f"{NEWER}; BEGIN IMMEDIATE"))
    street.start()
    assert await commits() <= 2
    with pytest.raises(NotRecordedError):
        await street.odd


async def test_a_file_that_somebody_holds_loses_nobody(street, opened, other):
    """Everybody waits for it, for there is one lock; everybody is answered."""
    street.when_all_have_claimed(lambda: other.execute("BEGIN IMMEDIATE"))
    street.start()
    await until_async(lambda: len(street.effects) == CROWD)
    assert not any(task.done() for task in street.tasks)
    other.execute("ROLLBACK")
    await street.all_are_done()
    await street.nothing_is_lost((await opened())[0])


async def test_an_argument_that_sqlite_does_not_take_spoils_only_its_own_claim(street):
    """Half a character cannot be written down: the others are committed beside it."""
    store = street.once.core.store_async
    asks = [ask(f"c{number}") for number in range(CROWD)]
    asks[ODD].label = "\ud800"
    async with asyncio.timeout(PATIENCE):
        told = await asyncio.gather(*map(store.claim, asks), return_exceptions=True)
    assert isinstance(told[ODD], StoreError)
    assert told[ODD].happened is False
    assert {type(one) for one in told[:ODD] + told[ODD + 1 :]} == {Granted}
    with pytest.raises(StoreError):
        street.store.claim(asks[ODD])
