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
from tests.isolation.workload import CROWD, LARGE, ODD, Workload
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
async def workload(opened):
    once, store = await opened()
    workload = Workload(once)
    workload.store = store
    return workload


@pytest.fixture
def other(workload, path):
    """A connection of somebody else."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def commits(workload, other, monkeypatch):
    """How many commits the settles of all take, when the file is free only after they came."""
    said, handed = [], []
    leader = workload.once.core.store_async._leader
    hand = leader.hand
    monkeypatch.setattr(leader, "hand", lambda job: handed.append(job) or hand(job))
    workload.store.writer.connection.set_trace_callback(said.append)

    async def count():
        await until_async(lambda: len(handed) >= 2 * CROWD)
        said.clear()  # what is under way now waits for the file
        other.execute("ROLLBACK")
        await workload.others_are_done()
        await asyncio.wait([workload.odd])
        return written(said)

    return count


def written(said):
    """Transactions that settled something. A statement outside of one is one by itself.

    What the keeper writes meanwhile is no UPDATE: sums of the dashboard, and records that expire.
    """
    count, inside, wrote = 0, False, False
    for text in said:
        word = text.split()[0]
        if word in ("BEGIN", "COMMIT"):
            count += wrote
            inside, wrote = word == "BEGIN", False
        elif word == "UPDATE":
            count += not inside
            wrote = inside
    return count


async def test_a_slow_one_keeps_nobody_waiting(workload, opened):
    go_on = workload.hold_the_odd_one()
    workload.start()
    await workload.others_are_done()
    assert not workload.odd.done()
    go_on.set()
    await workload.odd_is_done()
    await workload.nothing_is_lost((await opened())[0])


async def test_one_whose_key_somebody_else_holds_keeps_nobody_waiting(workload, opened):
    elsewhere = Workload((await opened())[0])
    go_on = elsewhere.hold_the_odd_one()
    elsewhere.odd_answer = workload.odd_answer = "the other one's"
    running = asyncio.create_task(elsewhere.call(ODD))
    await elsewhere.started.wait()
    workload.start()
    await workload.others_are_done()
    assert not workload.odd.done()
    go_on.set()
    await workload.odd_is_done()
    await running
    workload.effects += elsewhere.effects
    await workload.nothing_is_lost((await opened())[0])


@pytest.mark.fast_path("how many commits a crowd needs with something large in it")
async def test_a_large_result_costs_nobody_a_commit(workload, opened, other, commits):
    """One for whoever came first, and one for all who came meanwhile."""
    workload.odd_answer = LARGE
    workload.when_all_have_claimed(lambda: other.execute("BEGIN IMMEDIATE"))
    workload.start()
    assert await commits() <= 2
    await workload.all_are_done()
    await workload.nothing_is_lost((await opened())[0])


async def test_a_poisoned_one_is_told_so_and_nobody_else(workload, opened, other):
    """Its record cannot be read when it settles: the others are committed beside it.

    What it did is not forgotten: it is recorded as soon as that can be done.
    """
    workload.when_all_have_claimed(lambda: other.execute(NEWER))
    workload.start()
    await workload.others_are_done()
    with pytest.raises(NotRecordedError) as told:
        await workload.odd
    assert told.value.result == workload.odd_answer
    other.execute(READABLE)
    await until_async(lambda: workload.once.get(f"k{ODD}").status == "completed")  # by the keeper
    await workload.nothing_is_lost((await opened())[0])


@pytest.mark.fast_path("how many commits a crowd needs with a poisoned one in it")
async def test_a_poisoned_one_costs_nobody_a_commit(workload, other, commits):
    workload.when_all_have_claimed(lambda: other.executescript(f"{NEWER}; BEGIN IMMEDIATE"))
    workload.start()
    assert await commits() <= 2
    with pytest.raises(NotRecordedError):
        await workload.odd


async def test_a_file_that_somebody_holds_loses_nobody(workload, opened, other):
    """Everybody waits for it, for there is one lock; everybody is answered."""
    workload.when_all_have_claimed(lambda: other.execute("BEGIN IMMEDIATE"))
    workload.start()
    await until_async(lambda: len(workload.effects) == CROWD)
    assert not any(task.done() for task in workload.tasks)
    other.execute("ROLLBACK")
    await workload.all_are_done()
    await workload.nothing_is_lost((await opened())[0])


async def test_an_argument_that_sqlite_does_not_take_spoils_only_its_own_claim(workload):
    """Half a character cannot be written down: the others are committed beside it."""
    store = workload.once.core.store_async
    asks = [ask(f"c{number}") for number in range(CROWD)]
    asks[ODD].label = "\ud800"
    async with asyncio.timeout(PATIENCE):
        told = await asyncio.gather(*map(store.claim, asks), return_exceptions=True)
    assert isinstance(told[ODD], StoreError)
    assert told[ODD].happened is False
    assert {type(one) for one in told[:ODD] + told[ODD + 1 :]} == {Granted}
    with pytest.raises(StoreError):
        workload.store.claim(asks[ODD])
