"""How long a test waits for something that must happen."""

import asyncio
import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from inspect import isawaitable
from pathlib import Path
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


def run_while_it_prints(words: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run a long command, which is given up only when it prints nothing for long.

    Return its exit code and what it printed.
    """
    printed = b""
    with subprocess.Popen(
        words,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        while select.select([process.stdout], [], [], PATIENCE)[0]:
            if not (chunk := os.read(process.stdout.fileno(), 65_536)):
                return process.wait(), printed.decode()
            printed += chunk
        process.kill()
    raise AssertionError(_never(lambda: f"It has printed {printed.decode()}"))


def _never(why: Callable[[], object]) -> str:
    return f"it never came true, and {PATIENCE:g} seconds are over. {why()}"
