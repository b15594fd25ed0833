"""What blocking code and coroutines do differently."""

import asyncio
import threading

import pytest

from oncekey import compat
from oncekey.compat import (
    call_blocking,
    call_blocking_async,
    invoke,
    invoke_async,
    pause,
    pause_async,
)
from oncekey.errors import ConfigurationError


def add(a, b=0):
    return a + b


async def add_async(a, b=0):
    await asyncio.sleep(0)
    return a + b


def test_a_pause_blocks_for_as_long_as_it_says(monkeypatch):
    slept = []
    monkeypatch.setattr(compat.time, "sleep", slept.append)
    pause(0.25)
    assert slept == [0.25]


async def test_an_async_pause_lets_others_run():
    order = []
    other = asyncio.create_task(asyncio.sleep(0, order.append("other")))
    await pause_async(0.0)
    order.append("me")
    await other
    assert order == ["other", "me"]


def test_a_function_is_called_with_what_is_given():
    assert invoke(add, 1, b=2) == 3


def test_a_function_may_have_an_argument_called_function():
    assert invoke(lambda function: function, function=7) == 7


async def test_either_colour_can_be_awaited():
    assert await invoke_async(add, 1, b=2) == 3
    assert await invoke_async(add_async, 1, b=2) == 3
    assert await invoke_async(lambda: asyncio.ensure_future(add_async(5))) == 5


class Later:
    def __await__(self):
        yield


@pytest.mark.parametrize("function", [add_async, lambda _: Later()])
def test_something_to_await_is_refused_where_nobody_awaits(function):
    with pytest.raises(ConfigurationError) as caught:
        invoke(function, 1)
    words = f"{function!r} returned something to await; use the async form of this call"
    assert str(caught.value) == words


def test_a_function_that_blocks_is_called_where_it_is_asked_for():
    assert call_blocking(threading.get_ident) == threading.get_ident()
    assert call_blocking(int, "11", base=2) == 3


async def test_for_coroutines_it_is_called_on_a_thread():
    assert await call_blocking_async(threading.get_ident) != threading.get_ident()
    assert await call_blocking_async(int, "11", base=2) == 3
