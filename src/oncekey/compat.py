"""What processes, threads and event loops do differently: forks, the running loop, pauses."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Final, Protocol
from weakref import WeakSet

from oncekey.errors import ConfigurationError

# What must not cross a fork: locks, threads, connections and whatever waits on them.
#
# A child process gets a copy of every lock in whatever state it was, and of no thread.
# Objects that own such things register here, and `after_fork` makes them new in the child.


class Forkable(Protocol):
    """Something that can be made usable again in a forked child."""

    def after_fork(self) -> None:
        """Everything inherited from the parent is replaced by something of this process."""


class _Process:
    """How many forks lie between this process and the first one."""

    generation = 0


def generation() -> int:
    """A number that differs between a process and its forked children."""
    return _Process.generation


_registered: WeakSet[Forkable] = WeakSet()
_left_alone: Final[list[object]] = []


def renew_after_fork(thing: Forkable) -> None:
    """From now on a forked child calls `thing.after_fork()` before any other code runs."""
    _registered.add(thing)


def leave_alone(*things: object) -> None:
    """What a child has inherited is never touched again, not even to be closed.

    To close a connection is to speak for the parent, or to drop its locks. Python closes what
    nobody refers to, and so it is referred to from here for as long as the process lives.
    """
    _left_alone.extend(things)


def _in_child() -> None:
    _Process.generation += 1
    for thing in list(_registered):
        thing.after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - absent on Windows, which cannot fork
    os.register_at_fork(after_in_child=_in_child)


# The event loop that runs here, found without asking the system.
#
# Before Python 3.12 `asyncio.get_running_loop` asks for the number of the process each time, to
# tell whether it was forked. A request over HTTP would do so four times, and that can be measured.


Loop = asyncio.AbstractEventLoop


class _Last:
    """The loop that was found last, and the hook by which it can be told that it still runs.

    A loop sets a hook of its own for its thread each time that it is run, also inside another loop.
    """

    known: tuple[object, Loop | None] = (None, None)

    @classmethod
    def forget(cls) -> None:
        """A forked child runs no loop, though the hook of its parent's is still there."""
        cls.known = (None, None)


def remembered() -> Loop:
    """The running loop; RuntimeError where there is none."""
    hook = sys.get_asyncgen_hooks()[0]
    known, loop = _Last.known
    if known is hook and loop is not None:
        return loop
    loop = asyncio.get_running_loop()
    if hook is not None:
        _Last.known = hook, loop
    return loop


_CHEAP: Final = sys.version_info >= (3, 12)
running_loop: Final[Callable[[], Loop]] = asyncio.get_running_loop if _CHEAP else remembered

if hasattr(os, "register_at_fork"):  # pragma: no branch - absent on Windows, which cannot fork
    os.register_at_fork(after_in_child=_Last.forget)


# Who runs an attempt, and whether that is still there.


Runner = FrameType | asyncio.Task[Any]


def runner() -> Runner | None:
    """Return the frame of the caller."""
    return sys._getframe(1)  # noqa: SLF001 - as `inspect` does it, which costs more


def runner_async() -> Runner | None:
    """Return the task of the caller."""
    return asyncio.current_task(running_loop())


def has_left(runner: Runner | None) -> bool:
    """Return whether the frame or the task has ended for certain.

    Python refuses to clear a frame that runs, also one of a greenlet that is switched away.
    """
    if runner is None:
        return False
    if not isinstance(runner, FrameType):
        return runner.done()
    try:
        runner.clear()
    except RuntimeError:
        return False
    return True


# The few things that blocking code and coroutines do differently, in pairs.


# What most functions return; to find out that a type lacks something takes longer.
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, dict, list, tuple})


def pause(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)


async def pause_async(seconds: float) -> None:
    """Let others run."""
    await asyncio.sleep(seconds)


def invoke(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
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
