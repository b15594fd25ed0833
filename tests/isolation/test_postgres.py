"""One among sixty-four on a real PostgreSQL: the others share statements with it."""

import asyncio
import re

import pytest

from oncekey import Once, StoreError
from oncekey.stores.postgres import statements as sql
from tests.isolation.proxy import Proxy
from tests.isolation.workload import CROWD, LARGE, ODD, Workload
from tests.leases import wait_for_rows
from tests.patience import PATIENCE, until_async
from tests.servers.postgres_fixtures import beside, postgres, postgres_url
from tests.servers.postgres_proxy_fixtures import PLAIN

__all__ = ["beside", "postgres", "postgres_url"]

FEW = 12
"""So many statements a crowd may need in all: a few for each verb, but not one for each task."""
EXECUTED = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"
"""How every statement ends on its way to the server."""
(CROWD_SETTLES,) = (crowd.text.decode() for alone, crowd in sql.CROWDS if alone is sql.SETTLE)
KEY = re.compile(rb"[\x02\x03](k\d+)\0")  # its length is before it, and the next one behind it
LOCKED = f"SELECT 1 FROM oncekey_records WHERE key = 'k{ODD}' FOR UPDATE"  # noqa: S608 - a constant
HELD_UP = """
    SELECT pid, query FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


@pytest.fixture
async def proxy(postgres):
    async with Proxy(postgres.port, EXECUTED) as proxy:
        yield proxy


@pytest.fixture
async def opened(postgres, postgres_url, monkeypatch):
    """Opens what a process of its own would: nothing is shared but the server."""
    wait_for_rows(monkeypatch, "0")
    made = []

    async def open_one(port=postgres.port):
        url = postgres_url.replace(f":{postgres.port}/", f":{port}/") + PLAIN
        once = Once(url, cache=False, observers=())
        made.append(once)
        await once.run_async(f"first:{port}:{len(made)}", asyncio.sleep, 0)
        return once

    yield open_one
    for once in made:
        await once.aclose()


@pytest.fixture
async def workload(opened, proxy):
    workload = Workload(await opened(proxy.port))
    proxy.asked = 0
    return workload


@pytest.fixture
def other(workload, beside, postgres_url):
    """A connection of somebody else."""
    return beside(postgres_url)


def keys(asked):
    """Those that are named in what was sent."""
    return {key.decode() for key in KEY.findall(asked)}


async def until_executed(other, claims):
    """The server has committed these."""
    await until_async(
        lambda: claims <= {key for (key,) in other.execute("SELECT key FROM oncekey_records")}
    )


async def test_a_slow_one_keeps_nobody_waiting(workload, opened):
    go_on = workload.hold_the_odd_one()
    workload.start()
    await workload.others_are_done()
    assert not workload.odd.done()
    go_on.set()
    await workload.odd_is_done()
    await workload.nothing_is_lost(await opened())


async def test_one_whose_key_somebody_else_holds_keeps_nobody_waiting(workload, opened):
    elsewhere = Workload(await opened())
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
    await workload.nothing_is_lost(await opened())


async def test_a_settle_whose_row_is_locked_keeps_nobody_waiting(workload, opened, other, proxy):
    """The lock goes only when all the others are answered."""
    with other.transaction(force_rollback=True):
        workload.when_all_have_claimed(lambda: other.execute(LOCKED))
        workload.start()
        await workload.others_are_done()
        assert not workload.odd.done()
    await workload.odd_is_done()
    await workload.nothing_is_lost(await opened())


async def test_a_claim_whose_row_is_not_committed_keeps_nobody_waiting(workload, opened, other):
    """Somebody inserted it and thinks about it until all the others are answered."""
    with other.transaction(force_rollback=True):
        other.execute(
            f"SELECT oncekey_claim_v1('', 'k{ODD}', 'n', null, 1, 1, false, null, '', '')"
        )
        workload.start()
        await workload.others_are_done()
        assert not workload.odd.done()
    await workload.odd_is_done()
    await workload.nothing_is_lost(await opened())


@pytest.mark.fast_path("how many statements a crowd needs around a locked row")
async def test_around_a_locked_row_a_crowd_needs_no_more_statements(workload, opened, other, proxy):
    """Crowds, and the locked one alone: for claims and for settles."""
    with other.transaction(force_rollback=True):
        workload.when_all_have_claimed(lambda: other.execute(LOCKED))
        workload.start()
        await workload.others_are_done()
        assert proxy.asked <= FEW
    await workload.odd_is_done()


async def test_a_large_result_keeps_nobody_waiting(workload, opened, proxy):
    """While it is under way, and standing still, everybody else is answered."""
    workload.odd_answer = LARGE
    workload.meet()
    proxy.large.clear()
    workload.start()
    await workload.others_are_done()
    async with asyncio.timeout(PATIENCE):
        await proxy.stuck.wait()
    assert not workload.odd.done()
    proxy.large.set()
    await workload.odd_is_done()
    await workload.nothing_is_lost(await opened())


async def test_a_poisoned_one_is_told_so_and_nobody_else(workload, opened, other, proxy):
    """A row that the server does not take spoils its statement; then each asks alone, once."""
    other.execute(f"ALTER TABLE oncekey_records ADD CONSTRAINT even CHECK (key <> 'k{ODD}')")
    workload.meet(CROWD - 1)
    workload.start()
    await workload.others_are_done()
    with pytest.raises(StoreError, match="check constraint") as told:
        await workload.odd
    assert told.value.happened is False
    assert workload.effects[ODD] == 0
    assert proxy.asked <= FEW + 2 * CROWD
    other.execute("ALTER TABLE oncekey_records DROP CONSTRAINT even")
    workload.together = None
    assert await workload.call(ODD) == workload.odd_answer
    await workload.nothing_is_lost(await opened())


# A connection that breaks


@pytest.mark.fast_path("who shares one statement, and asks again when its connection breaks")
@pytest.mark.parametrize("happened", [False, True], ids=["before it happened", "after it happened"])
async def test_claims_on_a_connection_that_breaks_are_asked_again(
    workload, opened, proxy, other, happened
):
    """Nobody hears of it: the same nonce is granted the same claim, whether it was made or not."""
    gate = proxy.replies if happened else proxy.requests
    gate.clear()
    workload.start()
    asked = 0
    while len(keys(proxy.lost)) < FEW:  # whoever comes first may ask alone, which is no crowd
        await proxy.has_more(asked)
        asked = proxy.asked
        await until_executed(other, keys(proxy.pending) if happened else set())
        proxy.cut()
    gate.set()
    await workload.all_are_done()
    await workload.nothing_is_lost(await opened())


@pytest.mark.fast_path("who shares one statement, and asks again when its connection breaks")
async def test_settles_on_a_connection_that_the_server_ends_are_asked_again(
    workload, opened, other, beside, postgres_url
):
    """Nobody hears of it: an owner who settles again is told the same."""
    admin = beside(postgres_url)
    with other.transaction(force_rollback=True):
        workload.when_all_have_claimed(
            lambda: other.execute("LOCK oncekey_records IN ACCESS EXCLUSIVE MODE")
        )
        workload.start()
        ended = set()
        while CROWD_SETTLES not in ended:
            found = await until_async(lambda: admin.execute(HELD_UP).fetchall())
            for pid, statement in found:
                # One that was ended in the turn before may still be listed, and be gone by now.
                if admin.execute("SELECT pg_terminate_backend(%s)", [pid]).fetchone() == (True,):
                    ended.add(statement)
    await workload.all_are_done()
    await workload.nothing_is_lost(await opened())


async def test_a_connection_that_breaks_is_the_trouble_of_those_who_were_on_it(
    workload, opened, proxy
):
    """The large one is cut off in the middle, asks again alone, and is answered."""
    workload.odd_answer = LARGE
    workload.meet()
    proxy.large.clear()
    workload.start()
    await workload.others_are_done()
    async with asyncio.timeout(PATIENCE):
        await proxy.stuck.wait()
    before = proxy.asked
    proxy.cut(large=True)
    proxy.large.set()
    await workload.odd_is_done()
    assert proxy.asked == before + 1  # nobody else asked again
    await workload.nothing_is_lost(await opened())
