"""The jobs of `work.py` for queues that hand a context to each function as its first argument."""

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from oncekey import current_async
from tests.jobs.work import NotYetError, effect, flaky, hear, say, stall

CONTEXT = inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY)


async def stall_async(order: str) -> str:
    """The same as `stall`."""
    attempt = current_async()
    receipt: str = await attempt.step("charge", on_thread, effect, order, "charge")
    await on_thread(say, order, "inside")
    await on_thread(hear, order)
    return receipt


async def flaky_async(order: str, failures: int) -> list[Any]:
    """The same as `flaky`."""
    attempt = current_async()
    receipt = await attempt.step("reserve", on_thread, effect, order, "reserve")
    await attempt.note(seen=[*attempt.notes.get("seen", []), attempt.number])
    if attempt.number <= failures:
        raise NotYetError
    return [receipt, attempt.notes["seen"], await on_thread(effect, order, "charge")]


on_thread = asyncio.to_thread
COROUTINES: dict[Any, Any] = {stall: stall_async, flaky: flaky_async}


def as_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the job as a coroutine function that takes a context."""

    @functools.wraps(function)
    async def coroutine(_context: Any, *args: Any, **kwargs: Any) -> Any:
        if function in COROUTINES:
            return await COROUTINES[function](*args, **kwargs)
        return await on_thread(function, *args, **kwargs)

    return _with_context(coroutine, function)


def as_blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the job as a function that takes a context."""

    @functools.wraps(function)
    def blocking(_context: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return _with_context(blocking, function)


def named(function: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Return the arguments by name, for queues that take no others."""
    return inspect.signature(function).bind(*args).arguments


def _with_context(made: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    given = inspect.signature(function)
    parameters = [CONTEXT, *given.parameters.values()]
    made.__signature__ = given.replace(parameters=parameters)  # type: ignore[attr-defined]  # functions have it
    return made
