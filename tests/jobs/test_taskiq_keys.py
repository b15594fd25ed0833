"""What the keys of tasks of Taskiq are made of."""

from typing import Annotated

import pytest
from taskiq import (
    Context,
    TaskiqDepends,
)

from oncekey import (
    InvalidKeyError,
)
from oncekey.jobs import by_entity, by_fields, by_payload
from oncekey.jobs.taskiq import enqueue_once, once_task
from tests.jobs.taskiq_fixtures import BY_ORDER, Order, broker, once, ran, result

__all__ = ["broker", "once", "ran"]


@pytest.mark.row("J5")
async def test_keys_see_what_was_sent_by_name_and_not_what_is_injected(broker, once, ran):
    seen = []

    def key(job):
        seen.append(job)
        return by_payload(job)

    @broker.task("pay")
    @once_task(once, key)
    async def pay(
        order: Order,
        amount: int = 40,
        by_default: Context = TaskiqDepends(),  # noqa: B008 - how Taskiq wants it
        *,
        annotated: "Annotated[Context, TaskiqDepends()]",
        **more: int,
    ) -> str:
        ran.append(order)
        assert by_default is annotated
        return annotated.message.task_id

    first = await pay.kiq(Order("a"))
    assert await result(first) == first.task_id
    assert await result(await pay.kiq(order=Order("a"), amount=40)) == first.task_id
    assert seen[0].arguments == {"order": Order("a"), "amount": 40, "more": {}}
    assert seen[0].arguments == seen[1].arguments
    assert (seen[0].name, seen[0].attempt, seen[0].native.task_id) == ("pay", 1, first.task_id)
    assert ran == [Order("a")]
    sent = await enqueue_once(pay, key=lambda job: str(sorted(job.arguments))).kiq(
        Order("b"), rest=1
    )
    assert await result(sent.handle) == sent.handle.task_id


@pytest.mark.row("J5")
async def test_each_key_function_of_the_library_makes_one_job_of_two(broker, once, ran):
    for number, key in enumerate([BY_ORDER, by_payload, by_entity("order")]):

        @broker.task(f"task-{number}")
        @once_task(once, key)
        async def work(order: str) -> None:
            ran.append(order)

        for order in "aab":
            await result(await work.kiq(order))
    assert ran == ["a", "b"] * 3


@pytest.mark.parametrize(
    "key", [lambda _: 7, by_fields("nothing"), lambda job: job.arguments["nothing"]]
)
async def test_a_key_that_cannot_be_made_fails_the_job(broker, once, ran, key):
    @broker.task
    @once_task(once, key)
    async def work(order: str) -> None:
        ran.append(order)

    with pytest.raises((InvalidKeyError, KeyError)):
        await result(await work.kiq("a"))
    assert ran == []
