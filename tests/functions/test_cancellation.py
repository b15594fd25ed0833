"""Coroutines that are cancelled, at every place where they can be."""

import asyncio
from contextvars import copy_context

import pytest

from oncekey import (
    ConfigurationError,
    Once,
    OutcomeUnknownError,
    ResultNotKeptError,
    current_async,
)
from oncekey.stores import MemoryStore, SQLiteStore
from oncekey.stores.adapters import Inline
from tests.faulty import FaultyStore
from tests.functions.calls import (
    until_status,
    until_status_async,
    until_waiting_async,
)
from tests.patience import until_async


async def test_a_cancelled_call_frees_its_key_and_keeps_its_history(once, runs):
    async def work():
        await current_async().note(step=len(runs))
        runs.append(current_async().uncertain)
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "done"

    task = asyncio.ensure_future(once.run_async("k", work))
    await until_async(lambda: runs)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    record = once.get("k")
    assert (record.status, record.uncertain, record.notes) == ("released", True, {"step": 0})
    assert await once.run_async("k", work) == "done"
    assert runs == [False, True]


async def test_a_cancelled_call_is_held_under_hold(once):
    inside = asyncio.Event()

    async def work():
        if inside.is_set():
            pytest.fail("it ran again")
        inside.set()
        await asyncio.Event().wait()

    holding = once.options(on_crash="hold")
    task = asyncio.ensure_future(holding.run_async("k", work))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(OutcomeUnknownError):
        await holding.run_async("k", work)


async def test_a_claim_granted_after_its_caller_was_cancelled_is_released(once, store, runs):
    async def work():
        runs.append(1)

    go_on = store.block("claim")
    task = asyncio.ensure_future(once.run_async("k", work))
    await until_async(lambda: store.calls["claim"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await until_status_async(once, "k", "released")
    assert runs == []
    await once.run_async("k", work)
    assert once.get("k").attempt == 1


async def test_a_call_cancelled_while_it_settles_is_settled(once, store):
    go_on = store.block("settle")
    task = asyncio.ensure_future(once.run_async("k", asyncio.sleep, 0, 5))
    await until_async(lambda: store.calls["settle"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await until_status_async(once, "k", "completed")
    assert await once.run_async("k", asyncio.sleep, 0, 5) == 5


async def test_a_cancelled_waiter_leaves_the_others_alone(once, events):
    go_on = asyncio.Event()

    async def work():
        await go_on.wait()
        return "done"

    first = asyncio.ensure_future(once.run_async("k", work))
    waiters = [asyncio.ensure_future(once.run_async("k", work)) for _ in range(3)]
    await until_waiting_async(events, 3)
    waiters[0].cancel()
    go_on.set()
    assert await asyncio.gather(first, *waiters[1:]) == ["done"] * 3


async def test_a_cancelled_write_in_a_batch_leaves_the_others_alone(tmp_path):
    once = Once(SQLiteStore(tmp_path / "records.db"), observers=())
    tasks = [asyncio.ensure_future(once.run_async(f"k{n}", asyncio.sleep, 0, n)) for n in range(9)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert await asyncio.gather(*tasks[1:]) == list(range(1, 9))
    assert await once.run_async("k0", asyncio.sleep, 0, 0) == 0
    await once.aclose()


class Suspending(Inline):
    """A store whose release takes a moment, which a coroutine that is closed does not have."""

    async def release(self, ask, /):
        await asyncio.sleep(0)
        return await super().release(ask)


@pytest.mark.parametrize("down", [False, True])
def test_a_coroutine_that_is_closed_gives_its_key_back(down):
    """Its loop ended without it: it cannot await any more, and the keeper does it."""
    store = FaultyStore(MemoryStore())
    once = Once(Suspending(store), observers=()).options(fail_mode="open")
    seen = Once(store, observers=())

    async def work():
        await current_async().note(inside=True)
        await asyncio.Event().wait()

    for key, entered in (("run", once.run_async("run", work)), ("block", block(once))):
        if down:
            store.refuse("claim", 2)
        loop = asyncio.new_event_loop()
        asyncio._set_running_loop(loop)
        copy_context().run(entered.send, None)
        copy_context().run(entered.close)
        asyncio._set_running_loop(None)
        until_closed(seen, loop, key)
        assert seen.get(key).uncertain


def until_closed(once, loop, key):
    """The keeper asks on that loop; it runs until the key is free, and is closed then."""
    loop.run_until_complete(until_status_async(once, key, "released"))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def block(once):
    async with once.attempt("block"):
        await asyncio.Event().wait()


@pytest.mark.parametrize("down", [False, True])
def test_a_generator_that_is_closed_gives_its_key_back(once, store, down):
    def rows():
        with once.options(fail_mode="open").attempt("rows"):
            yield 1

    if down:
        store.refuse("claim", 2)
    reading = rows()
    assert next(reading) == 1
    reading.close()
    until_status(once, "rows", "released")
    assert once.get("rows").uncertain


async def test_a_task_that_outlives_its_attempt_has_no_current_one(once):
    ended = asyncio.Event()

    async def later():
        await ended.wait()
        with pytest.raises(ConfigurationError, match="no attempt"):
            current_async()

    async def work():
        return asyncio.ensure_future(later())

    with pytest.raises(ResultNotKeptError):
        once_task = await once.run_async("outlive", work)
        ended.set()
        await once_task
        await once.run_async("outlive", work)
