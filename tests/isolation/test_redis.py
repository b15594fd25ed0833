"""One among sixty-four on a real Redis: the others share wires with it, and do not notice."""

import asyncio

import pytest

from oncekey import Once, StoreError
from tests.isolation.proxy import Proxy
from tests.isolation.workload import CROWD, LARGE, ODD, Workload
from tests.patience import PATIENCE, until_async
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]

NAME = f"idempotency:k{ODD}"


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
async def proxy(empty_redis):
    async with Proxy(empty_redis.port, b"EVALSHA") as proxy:
        yield proxy


@pytest.fixture
async def opened(empty_redis):
    """Opens what a process of its own would: nothing is shared but the server."""
    made = []

    async def open_one(port=empty_redis.port):
        once = Once(f"redis://127.0.0.1:{port}/0", cache=False, observers=())
        made.append(once)
        await once.run_async(f"first:{port}:{len(made)}", asyncio.sleep, 0)  # scripts and wires
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
def executed(client, workload):
    """How many verbs the server has really executed since."""
    client.config_resetstat()
    return lambda: client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


async def test_a_slow_one_keeps_nobody_waiting(workload, opened, executed):
    go_on = workload.hold_the_odd_one()
    workload.start()
    await workload.others_are_done()
    assert not workload.odd.done()
    assert executed() == CROWD + CROWD - 1  # all have claimed, and all but one have settled
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
    await workload.odd_is_done()  # and it is told what the other one did
    await running
    workload.effects += elsewhere.effects
    await workload.nothing_is_lost(await opened())


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


async def test_a_poisoned_one_is_told_so_and_nobody_else(workload, opened, client, executed):
    client.set(NAME, "somebody else's")
    workload.meet(CROWD - 1)
    workload.start()
    await workload.others_are_done()
    with pytest.raises(StoreError, match="something else under this key") as told:
        await workload.odd
    assert told.value.happened is False
    assert executed() == CROWD + CROWD - 1  # nobody had to ask again
    assert workload.effects[ODD] == 0
    client.delete(NAME)
    workload.together = None
    assert await workload.call(ODD) == workload.odd_answer
    await workload.nothing_is_lost(await opened())


# A connection that breaks


@pytest.mark.fast_path("how many share one wire, and ask again when it breaks")
@pytest.mark.parametrize("happened", [False, True], ids=["before it happened", "after it happened"])
async def test_claims_on_a_connection_that_breaks_are_asked_again(
    workload, opened, proxy, executed, happened
):
    """Nobody hears of it: the same nonce is granted the same claim, whether it was made or not."""
    gate = proxy.replies if happened else proxy.requests
    gate.clear()
    workload.start()
    await proxy.have_asked(CROWD)
    await until_async(lambda: executed() >= (CROWD if happened else 0))
    proxy.cut()
    gate.set()
    await workload.all_are_done()
    lost = CROWD if happened else 0
    assert executed() == lost + 2 * CROWD  # nobody else, and nothing else, was asked again
    await workload.nothing_is_lost(await opened())


@pytest.mark.fast_path("how many share one wire, and ask again when it breaks")
@pytest.mark.parametrize("happened", [False, True], ids=["before it happened", "after it happened"])
async def test_settles_on_a_connection_that_breaks_are_asked_again(
    workload, opened, proxy, executed, happened
):
    """Nobody hears of it: an owner who settles again is told the same."""
    gate = proxy.replies if happened else proxy.requests
    workload.when_all_have_claimed(gate.clear)
    workload.start()
    await proxy.have_asked(2 * CROWD)
    await until_async(lambda: executed() >= (2 * CROWD if happened else 0))
    proxy.cut()
    gate.set()
    await workload.all_are_done()
    lost = CROWD if happened else 0
    assert executed() == lost + 2 * CROWD
    await workload.nothing_is_lost(await opened())


async def test_a_connection_that_breaks_is_the_trouble_of_those_who_were_on_it(
    workload, opened, proxy, executed
):
    """The large one is cut off in the middle, while the others wait for their replies.

    It asks again and is answered; none of the others asks again.
    """

    def hold_back():
        proxy.large.clear()
        proxy.replies.clear()

    workload.odd_answer = LARGE
    workload.when_all_have_claimed(hold_back)
    workload.start()
    await proxy.have_asked(2 * CROWD)
    async with asyncio.timeout(PATIENCE):
        await proxy.stuck.wait()
    await until_async(lambda: executed() >= 2 * CROWD - 1)
    proxy.cut(large=True)
    proxy.large.set()
    await proxy.have_asked(2 * CROWD + 1)
    proxy.replies.set()
    await workload.all_are_done()
    assert executed() == 2 * CROWD
    await workload.nothing_is_lost(await opened())
