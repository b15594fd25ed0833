"""How long a test waits for something that must happen."""

import asyncio
import os
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

PATIENCE = float(os.environ.get("ONCEKEY_TEST_PATIENCE", "300"))
"""Seconds. Only a test that hangs waits this long: how fast the machine is decides nothing.

`make defects` sets less, because there the tests are meant to fail.
"""

_OFTEN = 0.005


def until(condition: Callable[[], Any], why: Callable[[], object] = str) -> Any:
    """Poll until the condition holds; what it answered. `why` tells more about it if it never does.

    A condition asks for what others do. What it asks must not run in the thread that polls.
    """
    give_up = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < give_up, _never(why)
        time.sleep(_OFTEN)
    return found


async def until_async(condition: Callable[[], Any], why: Callable[[], object] = str) -> Any:
    """The same on an event loop, which goes on meanwhile. The condition may be a coroutine's."""
    give_up = time.monotonic() + PATIENCE
    while True:
        found = condition()
        if isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < give_up, _never(why)
        await asyncio.sleep(_OFTEN)


def _never(why: Callable[[], object]) -> str:
    return f"it never came true, and {PATIENCE:g} seconds are over. {why()}"
