"""The few things that blocking code and coroutines do differently, in pairs."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from oncekey.errors import ConfigurationError

# What most functions return; to find out that a type lacks something takes longer.
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, dict, list, tuple})


def pause(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)


async def pause_async(seconds: float) -> None:
    """Let others run."""
    await asyncio.sleep(seconds)


def invoke(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the user's function
    """What the function returns, which must not be something to await."""
    value = function(*args, **kwargs)
    if type(value) not in _PLAIN and hasattr(type(value), "__await__"):
        if inspect.iscoroutine(value):
            value.close()
        msg = f"{function!r} returned something to await; use the async form of this call"
        raise ConfigurationError(msg)
    return value


def invoke_async(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
    """What the function returns, to be awaited: most often that is what it is for."""
    value = function(*args, **kwargs)
    return value if hasattr(type(value), "__await__") else _there(value)


async def _there(value: object) -> object:
    return value
