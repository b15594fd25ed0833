"""Tasks of Taskiq in memory, in both colours: deliveries, plain calls, results and mistakes."""

import logging
from typing import Annotated, Any

import pytest
from taskiq import (
    Context,
    InMemoryBroker,
    NoResultError,
    TaskiqDepends,
)

from oncekey import (
    ConfigurationError,
    ResultNotKeptError,
    current,
)
from oncekey.jobs import by_task_id
from oncekey.jobs.taskiq import enqueue_once, once_task
from oncekey.testing import disabled
from tests.jobs.taskiq_fixtures import (
    BY_ORDER,
    broker,
    charge,
    coloured,
    once,
    ran,
    result,
)
from tests.patience import PATIENCE, until_async

__all__ = ["broker", "charge", "coloured", "once", "ran"]


async def test_jobs_with_one_key_run_once(charge, once, ran):
    assert await result(await charge.kiq("a")) == "a:40:1"
    assert await result(await charge.kiq("a", amount=41)) == "a:40:1"
    assert await result(await charge.kiq("b")) == "b:40:2"
    assert ran == ["a", "b"]
    record = await once.get_async("a", scope="charge")
    assert (record.label, len(record.reference)) == ("charge", 32)


async def test_one_message_twice_runs_once(broker, once, ran):
    @broker.task
    @once_task(once)
    async def work() -> int:
        ran.append("work")
        return len(ran)

    for _ in range(2):
        assert await result(await work.kicker().with_task_id("one").kiq()) == 1
        await broker.wait_all()
    assert ran == ["work"]


async def test_switched_off_every_job_runs(charge, ran):
    with disabled():
        for _ in range(2):
            await result(await charge.kiq("a"))
    assert ran == ["a", "a"]


@pytest.mark.row("J12")
@pytest.mark.parametrize("left", [1, 2])
async def test_a_retry_runs_with_notes_and_keeps_the_id(broker, once, ran, left):
    @broker.task(retry_on_error=True)
    @once_task(once, lambda job: seen.append((job.id, job.attempt)) or job.id)
    def work(failures: int) -> Any:
        attempt = current()
        attempt.note(seen=[*attempt.notes.get("seen", []), attempt.number])
        if attempt.number <= failures:
            raise ValueError
        return attempt.notes["seen"]

    seen: list[tuple[str, int]] = []
    sent = await work.kiq(left)
    tries = list(range(1, left + 2))
    assert await result(sent) == tries
    assert seen == [(sent.task_id, number) for number in tries]


async def test_what_tells_taskiq_something_frees_the_key(broker, once, ran):
    @broker.task
    @once_task(once, BY_ORDER, on_error="keep")
    async def work(order: str, context: Annotated[Context, TaskiqDepends()]) -> int:
        ran.append(order)
        if len(ran) == 1:
            await context.requeue()
        if len(ran) == 2:
            raise NoResultError
        if len(ran) == 3:
            context.reject()
        return len(ran)

    await work.kiq("a")
    await until_async(lambda: len(ran) == 2)
    await broker.wait_all()
    rejected = await (await work.kiq("a")).wait_result(check_interval=0.005, timeout=PATIENCE)
    assert type(rejected.error).__name__ == "TaskRejectedError"
    assert await result(await work.kiq("a")) == 4


# Plain calls


async def test_a_plain_call_with_a_key_is_answered_too(broker, once, ran):
    @broker.task
    @once_task(once, BY_ORDER)
    async def work(order: str) -> int:
        ran.append(order)
        return len(ran)

    @broker.task
    @once_task(once, BY_ORDER)
    def block(order: str) -> int:
        ran.append(order)
        return len(ran)

    assert await result(await work.kiq("a")) == await work("a") == 1
    assert block("a") == block("a") == await result(await block.kiq("a")) == 2


async def test_a_plain_call_without_an_id_runs_unprotected_and_says_so(broker, once, ran, caplog):
    @broker.task
    @once_task(once)
    async def work() -> None:
        ran.append("work")

    @broker.task
    @once_task(once)
    def block() -> None:
        ran.append("block")

    for _ in range(2):
        await work()
        block()
    assert ran == ["work", "block"] * 2
    assert caplog.text.count("runs unprotected") == 2


# Results that are not kept


@pytest.mark.parametrize("colour", ["coroutine", "blocking"])
async def test_a_result_that_was_not_kept_is_looked_up_or_none(broker, once, caplog, colour):
    def block(order: str):
        return {1, 2}

    async def work(order: str):
        return {1, 2}

    function = block if colour == "blocking" else work
    task = broker.register_task(once_task(once, BY_ORDER)(function), "work")
    for _ in range(2):  # the same job again has what it returned itself
        assert await result(await task.kicker().with_task_id("one").kiq("a")) == {1, 2}
        await broker.wait_all()
    assert "returns None" not in caplog.text
    with caplog.at_level(logging.WARNING, "oncekey"):
        assert await result(await task.kiq("a")) is None
    assert "returns None" in caplog.text
    with pytest.raises(ResultNotKeptError):  # the next step must not go on from a made-up None
        await result(await task.kicker().with_labels(_pipe_current_step=0).kiq("a"))


# Mistakes


@pytest.mark.row("J8")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"once": None}, "needs a Once"),
        ({"key": "order"}, "function that makes its key"),
        ({"ttl": "soon"}, "ttl"),
        ({"fingerprint": "order"}, "fingerprint"),
    ],
)
async def test_a_mistake_shows_at_decoration(once, given, says):
    with pytest.raises(ConfigurationError, match=says):
        once_task(**{"once": once, **given})(lambda: None)


@pytest.mark.row("J8")
async def test_what_cannot_be_a_task_shows_at_decoration(once):
    for wrong, says in ((7, "cannot be called"), (dict, "is a class")):
        with pytest.raises(ConfigurationError, match=says):
            once_task(once)(wrong)


@pytest.mark.row("J8")
async def test_a_mistake_shows_before_anything_is_sent(broker, once, charge):
    @broker.task
    async def plain(order: str) -> None:
        """Nothing."""

    by_id = broker.register_task(once_task(once)(plain.original_func), "by id")
    foreign = charge.kicker().with_broker(InMemoryBroker())
    for task, given, says in (
        (plain, {"key": BY_ORDER}, "is not protected"),
        (plain, {"once": once}, "has no id yet"),
        (by_id, {}, "has no id yet"),
        (charge, {"key": by_task_id}, "has no id yet"),
        (charge, {"key": 7}, "made of arguments"),
        (charge, {"until": "done"}, "until must be one of"),
        (foreign, {}, "no task of its broker"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            enqueue_once(task, **given)


async def test_annotations_that_taskiq_cannot_read_are_its_own_to_report(broker, once):
    def work(order: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821 - that is the point
        """Nothing."""

    with pytest.raises(NameError, match="Nowhere"):
        broker.task(once_task(once)(work))
