"""Stores of one colour, seen from the other."""

import asyncio
import gc
import threading

import pytest

from oncekey.core.requests import Forget, Granted, Resolve, Scan, Verdict
from oncekey.errors import StoreError
from oncekey.stores import MemoryStore, adapters
from oncekey.stores.adapters import Inline, Looped, Threaded
from oncekey.stores.base import VERBS, AsyncStore, Store
from tests.patience import PATIENCE, until


class Watched(MemoryStore):
    """Remembers in which thread each verb was called, and whether it was closed."""

    def __init__(self):
        super().__init__()
        self.threads = {}
        self.closed = False

    def __getattribute__(self, name):
        if name in VERBS:
            self.threads[name] = threading.current_thread()
        return super().__getattribute__(name)

    def close(self):
        self.closed = True


@pytest.mark.parametrize("kind", [Inline, Threaded])
async def test_a_blocking_store_answers_coroutines(calling, kind):
    blocking = Watched()
    store = kind(blocking)
    call = calling()
    answer = await store.claim(call.claim("n"))
    assert type(answer) is Granted
    record = answer.record
    assert await store.renew(call.renew(record)) is Verdict.DONE
    assert await store.note(call.note(record, b"", 1)) is Verdict.DONE
    assert await store.release(call.release(record, uncertain=True, hold=True)) is Verdict.DONE
    held = await store.get(*call.identity)
    assert held is not None
    assert held.status == "held"
    ask = Resolve(
        *call.identity, token=held.token, status="released", result=None, error=None, ttl=1
    )
    assert await store.resolve(ask) is Verdict.DONE
    record = (await store.claim(call.claim("m"))).record
    assert await store.settle(call.settle(record, "completed")) is Verdict.DONE
    assert len((await store.scan(Scan())).records) == 1
    assert await store.purge(0, 10) == 0
    forget = Forget(*call.identity, token=record.token, force=False)
    assert await store.forget(forget) is Verdict.DONE
    assert await store.get(*call.identity) is None
    await store.aclose()
    assert blocking.closed
    assert set(blocking.threads) == set(VERBS)
    assert isinstance(blocking, Store)
    assert isinstance(store, AsyncStore)


async def test_a_store_that_never_waits_is_called_on_the_loop_itself():
    blocking = Watched()
    await Inline(blocking).get(None, "k")
    assert blocking.threads["get"] is threading.current_thread()


async def test_a_store_that_blocks_does_not_block_the_loop():
    turn = threading.Event()

    class Slow(MemoryStore):
        def get(self, scope, key, /):
            assert turn.wait(PATIENCE)
            return super().get(scope, key)

    asked = asyncio.create_task(Threaded(Slow()).get(None, "k"))
    await asyncio.sleep(0)
    turn.set()
    assert await asked is None


# A native async store and the keeper's thread


class Native:
    """An async store that is one: it lives on the loop that uses it."""

    def __init__(self):
        self.memory = MemoryStore()
        self.loops = []
        self.gate = None
        self.cancelled = threading.Event()

    async def _do(self, name, *arguments):
        self.loops.append(asyncio.get_running_loop())
        if self.gate is not None:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        return getattr(self.memory, name)(*arguments)

    async def claim(self, ask, /):
        return await self._do("claim", ask)

    async def get(self, scope, key, /):
        return await self._do("get", scope, key)

    async def aclose(self):
        """Nothing to close."""


class Charting(Native):
    """One that keeps counts for charts, too."""

    async def add_activity(self, counts, ago, /):
        return await self._do("add_activity", counts, ago)


async def test_the_keeper_adds_counts_on_that_loop_where_the_store_keeps_them():
    native = Charting()
    looped = Looped(native)
    assert await looped.get(None, "k") is None
    await asyncio.to_thread(looped.blocking.add_activity, (1, 2, 3, 4), 0)
    assert {slot.counts for slot in native.memory.activity().slots} == {(1, 2, 3, 4)}
    assert not hasattr(Looped(Native()).blocking, "add_activity")


@pytest.mark.parametrize("adapter", [Inline, Threaded])
async def test_counts_pass_through_the_adapters(adapter):
    adapted = adapter(MemoryStore())
    await adapted.add_activity((1, 0, 0, 0), 0)
    assert {slot.counts for slot in (await adapted.activity()).slots} == {(1, 0, 0, 0)}
    assert adapter(Bare()).add_activity is None
    assert adapter(Bare()).activity is None


class Bare:
    """A store with nothing but what must be there."""


async def test_the_keeper_asks_on_the_loop_that_used_the_store(calling):
    native = Native()
    looped = Looped(native)
    assert await looped.get(None, "k") is None
    answer = await asyncio.to_thread(looped.blocking.claim, calling().claim("n"))
    assert type(answer) is Granted
    assert native.loops == [asyncio.get_running_loop()] * 2


def test_the_loop_that_used_the_store_last_counts(calling):
    native = Native()
    looped = Looped(native)

    async def use():
        await looped.get(None, "k")
        await asyncio.to_thread(looped.blocking.get, None, "k")

    asyncio.run(use())
    asyncio.run(use())
    first, second, third, fourth = native.loops
    assert first is second
    assert third is fourth
    assert first is not third


def test_a_store_that_no_loop_has_used_cannot_be_asked():
    looped = Looped(Native())
    with pytest.raises(StoreError) as caught:
        looped.blocking.get(None, "k")
    assert str(caught.value) == "get was not sent: the event loop of the store is closed"
    assert caught.value.happened is False


def test_a_store_whose_loop_is_closed_cannot_be_asked():
    looped = Looped(Native())

    async def use():
        await looped.get(None, "k")

    asyncio.run(use())
    with pytest.raises(StoreError) as caught:
        looped.blocking.get(None, "k")
    assert caught.value.happened is False


def test_a_loop_that_never_comes_to_it_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(adapters, "_LOOP_PATIENCE", 0.01)
    native = Native()
    looped = Looped(native)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_used(looped))  # it stands still from here on
    with pytest.raises(StoreError) as caught:
        looped.blocking.get(None, "k")
    words = "get was not sent: the event loop of the store did not come to it in time"
    assert str(caught.value) == words
    assert caught.value.happened is False
    loop.run_until_complete(asyncio.sleep(0))  # the errand's turn comes, too late
    assert native.loops == [loop]
    loop.close()


def test_a_loop_that_closes_under_a_verb_leaves_it_unknown(until_async):
    native = Native()
    looped = Looped(native)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_used(looped))
    native.gate = asyncio.Event()
    caught = []

    def ask():
        with pytest.raises(StoreError) as error:
            looped.blocking.get(None, "k")
        caught.append(error.value)

    asking = threading.Thread(target=ask)
    asking.start()

    loop.run_until_complete(until_async(lambda: len(native.loops) == 2))
    task = next(iter(asyncio.all_tasks(loop)))
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()
    asking.join()
    assert caught[0].happened is None


def test_a_loop_that_closes_before_the_first_step_leaves_nothing_behind(until):
    looped = Looped(Native())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_used(looped))
    caught = []

    def ask():
        with pytest.raises(StoreError) as error:
            looped.blocking.get(None, "k")
        caught.append(error.value)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: loop._ready)
    loop.call_soon(loop.stop)
    loop.run_forever()  # the errand has its task, which has taken no step
    assert len(asyncio.all_tasks(loop)) == 1
    loop.close()
    asking.join()
    assert caught[0].happened is False
    gc.collect()  # a coroutine that was never awaited would be seen, and a task


def test_an_errand_can_be_stopped_at_every_point():
    errand = adapters._Errand(Native().get)
    errand.close()
    with pytest.raises(ValueError, match="stopped"):
        errand.throw(ValueError("stopped"))
    with pytest.raises(NotImplementedError):
        errand.__await__()

    async def forever():
        await asyncio.sleep(3600)

    begun = adapters._Errand(forever)
    loop = asyncio.new_event_loop()
    loop.call_soon(lambda: (begun.send(None), loop.stop()))
    loop.run_forever()
    begun.close()
    loop.close()


async def _used(looped):
    await looped.get(None, "k")


async def test_a_loop_that_does_not_answer_in_time_leaves_it_unknown(monkeypatch, until_async):
    native = Native()
    result = adapters._Errand.result

    def impatient(errand, loop):
        until(lambda: len(native.loops) == 2)  # it has begun
        monkeypatch.setattr(adapters, "_LOOP_PATIENCE", 0.01)
        return result(errand, loop)

    monkeypatch.setattr(adapters._Errand, "result", impatient)
    looped = Looped(native)
    await looped.get(None, "k")
    native.gate = asyncio.Event()
    with pytest.raises(StoreError) as caught:
        await asyncio.to_thread(looped.blocking.get, None, "k")
    words = "get was sent, but the event loop of the store did not answer in time"
    assert str(caught.value) == words
    assert caught.value.happened is None
    await until_async(native.cancelled.is_set)


async def test_a_verb_that_was_cancelled_leaves_it_unknown(until_async):
    native = Native()
    looped = Looped(native)
    await looped.get(None, "k")
    native.gate = asyncio.Event()
    before = asyncio.all_tasks()
    asking = asyncio.create_task(asyncio.to_thread(looped.blocking.get, None, "k"))
    await until_async(lambda: len(native.loops) == 2)
    for task in asyncio.all_tasks() - before - {asking}:
        task.cancel()
    with pytest.raises(StoreError) as caught:
        await asking
    assert caught.value.happened is None


async def test_an_error_of_the_store_comes_through_as_it_is():
    class Down(Native):
        async def get(self, scope, key, /):
            msg = "no way through"
            raise StoreError(msg, happened=False)

    looped = Looped(Down())
    with pytest.raises(StoreError, match="no way through"):
        await looped.get(None, "k")
    with pytest.raises(StoreError, match="no way through") as caught:
        await asyncio.to_thread(looped.blocking.get, None, "k")
    assert caught.value.happened is False


def test_the_blocking_side_has_verbs_and_nothing_else():
    blocking = Looped(Native()).blocking
    assert all(callable(getattr(blocking, verb)) for verb in VERBS)
    for name in ("aclose", "remote", "as_async"):
        with pytest.raises(AttributeError, match=name):
            getattr(blocking, name)
