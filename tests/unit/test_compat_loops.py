"""The running loop is the one that asyncio names, whatever ran before."""

import asyncio
import os
import sys

import pytest

from oncekey.compat import remembered


async def find():
    return remembered(), asyncio.get_running_loop()


def test_each_run_has_its_own_loop():
    found = [asyncio.run(find()) for _ in range(2)]
    assert all(ours is theirs for ours, theirs in found)
    assert found[0][0] is not found[1][0]


async def test_it_is_the_same_for_as_long_as_the_loop_runs():
    first = remembered()
    await asyncio.sleep(0)
    assert remembered() is first is asyncio.get_running_loop()


async def test_a_thread_beside_it_has_its_own():
    here = remembered()
    ours, theirs = await asyncio.to_thread(asyncio.run, find())
    assert ours is theirs is not here
    assert remembered() is here


def test_without_a_loop_there_is_none():
    asyncio.run(find())
    with pytest.raises(RuntimeError, match="no running event loop"):
        remembered()


async def test_code_on_a_thread_without_a_loop_does_not_get_that_of_another():
    remembered()
    with pytest.raises(RuntimeError, match="no running event loop"):
        await asyncio.to_thread(remembered)


async def test_a_loop_inside_another_is_the_one_that_runs():
    """As tools for notebooks do it: the outer loop still says that it is running."""
    outer = remembered()
    inner = asyncio.new_event_loop()
    asyncio._set_running_loop(None)
    try:
        ours, theirs = inner.run_until_complete(find())
    finally:
        asyncio._set_running_loop(outer)
        inner.close()
    assert ours is theirs is inner
    assert remembered() is outer


async def test_a_loop_without_a_hook_is_asked_for_each_time():
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        assert remembered() is asyncio.get_running_loop()
    finally:
        sys.set_asyncgen_hooks(*hooks)


def in_a_child(function):
    """What a forked child says of the function: what it raised, or that it returned."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in another process
        try:
            function()
            os.write(write, b"returned")
        except RuntimeError as error:
            os.write(write, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(write)
    assert os.waitpid(child, 0)[1] == 0
    with os.fdopen(read) as told:
        return told.read()


async def test_a_forked_child_runs_no_loop():
    """What the parent remembers is not true in the child, whose hook is still the parent's."""
    remembered()
    assert in_a_child(remembered) == "RuntimeError"
