"""What the two exchanges of Django do differently, in pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import (  # type: ignore[import-untyped]  # Django brings no types
    SynchronousOnlyOperation,
)

from oncekey import attempt
from oncekey.attempt import AsyncAttempt, Attempt, bridge
from oncekey.core.call import Call
from oncekey.once import Once

T = TypeVar("T")


def enter(once: Once, call: Call) -> Attempt:
    """The attempt at a call, running or answered."""
    core, active, call = once.use(call, call.terms)
    return attempt.enter(core.engine(), call, active=active)


async def enter_async(once: Once, call: Call) -> AsyncAttempt:
    """The attempt at a call, running or answered; views that block may ask for it too."""
    core, active, call = once.use(call, call.terms)
    entered = await attempt.enter_async(core.engine_async(), call, active=active)
    bridge(entered)
    return entered


def ask(function: Callable[..., T], /, *args: Any) -> T:
    """What the function says."""
    return function(*args)


async def ask_async(function: Callable[..., T], /, *args: Any) -> T:
    """What the function says; one that needs the database says it on Django's thread."""
    try:
        return function(*args)
    except SynchronousOnlyOperation:
        return await sync_to_async(function)(*args)
