"""What a TaskGroup leaves behind in a protected coroutine."""

import asyncio

import pytest

from oncekey import OutcomeUnknownError


async def test_a_task_group_that_cut_a_sibling_off_is_uncertain(once, runs):
    """The sibling was cancelled in the middle of its charge, and the group does not say so."""
    charging = asyncio.Event()

    async def charge():
        charging.set()
        runs.append("sent")
        await asyncio.Event().wait()

    async def check():
        await charging.wait()
        msg = "no such order"
        raise ValueError(msg)

    async def pay():
        async with asyncio.TaskGroup() as group:
            group.create_task(charge())
            group.create_task(check())

    held = once.options(on_crash="hold")
    with pytest.raises(ExceptionGroup):
        await held.run_async("order:1", pay)
    assert once.get("order:1").status == "held"
    with pytest.raises(OutcomeUnknownError):
        await held.run_async("order:1", pay)
    with pytest.raises(ExceptionGroup):
        await held.options(definite=ValueError).run_async("order:2", pay)
    assert once.get("order:2").status == "released"
