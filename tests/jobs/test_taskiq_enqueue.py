"""Jobs of Taskiq that are not enqueued twice."""

import asyncio

import pytest
from taskiq import (
    Context,
    NoResultError,
    TaskiqDepends,
)
from taskiq.exceptions import SendTaskError

from oncekey.jobs.taskiq import OnceMiddleware, enqueue_once, once_task
from tests.jobs.taskiq_fixtures import (
    BY_ORDER,
    broken,
    broker,
    charge,
    coloured,
    kicked,
    once,
    ran,
    result,
)
from tests.patience import until_async

__all__ = ["broker", "charge", "coloured", "kicked", "once", "ran"]


@pytest.fixture
def gate():
    return asyncio.Event()


@pytest.fixture
def slow(broker, once, ran, gate):
    @broker.task("slow")
    @once_task(once, BY_ORDER, retry_after="10ms")
    async def slow(order: str) -> str:
        ran.append(order)
        await gate.wait()
        return f"{order}:{len(ran)}"

    return slow


@pytest.mark.row("J9")
async def test_a_job_that_waits_is_not_enqueued_again(broker, slow, ran, gate):
    first = await enqueue_once(slow).kiq("a")
    second = await enqueue_once(slow).kiq(order="a")
    other = await enqueue_once(slow).kiq("b")
    assert [one.duplicate for one in (first, second, other)] == [False, True, False]
    assert first.handle.task_id == second.handle.task_id
    gate.set()
    assert (await result(second.handle)).startswith("a:")
    await broker.wait_all()
    again = await enqueue_once(slow).kiq("a")
    assert not again.duplicate
    assert await result(again.handle) == await result(first.handle)
    assert ran == ["a", "b"]
    assert sum(isinstance(one, OnceMiddleware) for one in broker.middlewares) == 1


@pytest.mark.row("J9")
async def test_from_its_start_another_may_be_enqueued(slow, ran, gate):
    sending = enqueue_once(slow, until="started")
    assert not (await sending.kiq("a")).duplicate
    await until_async(lambda: ran == ["a"])
    second = await sending.kiq("a")
    assert not second.duplicate
    gate.set()
    assert await result(second.handle) == "a:1"


@pytest.mark.row("J9")
@pytest.mark.parametrize(("rule", "freed"), [("finished", True), ("succeeded", False)])
@pytest.mark.parametrize("error", [ValueError, NoResultError])
async def test_after_the_last_failure_the_rule_decides(broker, once, rule, freed, error):
    tried = []

    @broker.task(retry_on_error=True)
    @once_task(once, BY_ORDER)
    async def work(order: str) -> None:
        tried.append((await sending.kiq(order)).duplicate)
        raise error

    sending = enqueue_once(work, until=rule)
    await sending.kiq("a")
    await until_async(lambda: len(tried) == (3 if error is ValueError else 1))
    await broker.wait_all()
    assert all(tried)  # while it is to be tried again it is still enqueued
    assert await once.get_async("a", scope=f"enqueue:{work.task_name}") is None or not freed
    assert (await sending.kiq("a")).duplicate is not freed
    await broker.wait_all()


@pytest.mark.row("J9")
async def test_a_blocking_job_that_wants_no_result_has_ended_too(broker, once):
    @broker.task
    @once_task(once, BY_ORDER)
    def work(order: str) -> None:
        raise NoResultError

    for _ in range(2):
        assert not (await enqueue_once(work).kiq("a")).duplicate
        await broker.wait_all()


@pytest.mark.row("J9")
async def test_a_task_without_protection_can_be_enqueued_once(broker, once, ran):
    @broker.task
    async def work(order: str, context: Context = TaskiqDepends()) -> None:  # noqa: B008 - how Taskiq wants it
        ran.append((await sending.kiq(order)).duplicate)

    broker.add_middlewares(OnceMiddleware(once))
    sending = enqueue_once(work, key=BY_ORDER, once=once)
    for _ in range(2):
        await result((await sending.kiq("a")).handle)
        await broker.wait_all()
    assert ran == [True, True]


async def test_a_kicker_keeps_its_labels_and_its_id(charge, kicked):
    kicker = charge.kicker().with_labels(queue_name="slow").with_task_id("mine")
    sent = await enqueue_once(kicker, key="of my own").kiq("a")
    assert (sent.handle.task_id, kicked[0].labels["queue_name"]) == ("mine", "slow")
    assert "oncekey-enqueued" not in kicker.labels
    assert (await enqueue_once(charge, key="of my own").kiq("b")).duplicate


async def test_what_cannot_be_sent_is_not_enqueued(broker, charge, once, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(SendTaskError):
        patched.setattr(broker, "kick", broken)
        await enqueue_once(charge).kiq("a")
    assert not (await enqueue_once(charge).kiq("a")).duplicate
