"""Helpers for forks, loops and greenlets, and what blocking code and coroutines do differently."""

from __future__ import annotations

import asyncio
import inspect
import os
import select
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from oncekey.errors import ConfigurationError

T = TypeVar("T")

Runner = FrameType | asyncio.Task[Any]
"""The frame or the task that runs something."""

# What must not cross a fork: locks, threads, connections and everything that waits on them.
#
# A child process gets a copy of every lock in its current state, and of no thread. Objects that own
# such things register here, and `after_fork` replaces them in the child. Where a library keeps
# something in the memory of the process that a child cannot replace, the fork has to wait until no
# thread uses it.


FORK_PATIENCE: Final = 5.0
"""Seconds that a fork waits for other threads. Then it goes on, and the child may be worse off."""


class Forkable(Protocol):
    """An object that can be made usable again in a forked child."""

    def after_fork(self) -> None:
        """Replace everything that was inherited from the parent."""


class Pausable(Forkable, Protocol):
    """An object that no thread should use while the process forks."""

    def before_fork(self, forker: Runner, seconds: float) -> None:
        """Wait at most so many seconds for those who use it, and keep others out.

        `forker` is the frame that forks. It has not left before `after_fork_in_parent` is called.
        """

    def after_fork_in_parent(self, forker: Runner) -> None:
        """Let others in again, if they were kept out for this fork."""


class _Process:
    """The number of forks between this process and the first one."""

    generation = 0


def generation() -> int:
    """Return a number that differs between a process and its forked children."""
    return _Process.generation


_registered: WeakSet[Forkable] = WeakSet()
_pausable: WeakSet[Pausable] = WeakSet()
_forking: Final[dict[int, Runner]] = {}
"""The frames that fork, by thread."""
_left_alone: Final[list[object]] = []


def renew_after_fork(thing: Forkable) -> None:
    """Call `thing.after_fork()` in every forked child, before any other code runs."""
    _registered.add(thing)


def pause_for_fork(thing: Pausable) -> None:
    """Do the same, and call `thing.before_fork()` and `thing.after_fork_in_parent()` as well."""
    _registered.add(thing)
    _pausable.add(thing)


def leave_alone(*things: object) -> None:
    """Never touch again what a child has inherited, not even to close it.

    Closing a connection would talk to the server on behalf of the parent, or drop its locks. Python
    closes objects without references, so a reference is kept here as long as the process lives.
    """
    _left_alone.extend(things)


def _before() -> None:
    here = sys._getframe()
    forker = _forking[threading.get_ident()] = here.f_back or here  # C code has no frame
    give_up = time.monotonic() + FORK_PATIENCE
    for thing in list(_pausable):
        thing.before_fork(forker, max(0.0, give_up - time.monotonic()))


def _in_parent() -> None:
    forker = _forking.pop(threading.get_ident(), None)
    if forker is not None:
        for thing in list(_pausable):
            thing.after_fork_in_parent(forker)


def _in_child() -> None:
    _Process.generation += 1
    _forking.clear()
    for thing in list(_registered):
        thing.after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - absent on Windows, which cannot fork
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


# The running event loop, found without a system call.
#
# Before Python 3.12 `asyncio.get_running_loop` calls getpid each time, to notice forks. A request
# over HTTP would do so four times, and that can be measured.


Loop = asyncio.AbstractEventLoop


class _Last:
    """The loop that was found last, and the hook that tells whether it is still the running one.

    A loop sets its own async generator hook for its thread each time that it is run, also inside of
    another loop.
    """

    known: tuple[object, Loop | None] = (None, None)

    @classmethod
    def forget(cls) -> None:
        """Forget the loop in a forked child, which runs none but still has the parent's hook."""
        cls.known = (None, None)


def remembered() -> Loop:
    """Return the running loop. Raise RuntimeError if there is none."""
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


def refuse_other_loops() -> None:
    """Raise ConfigurationError in a coroutine that no loop of asyncio runs, as under trio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        msg = (
            "async calls need an event loop of asyncio, and none is running here; under trio use "
            "the blocking form on a thread, or trio-asyncio"
        )
        raise ConfigurationError(msg) from None


# The frame or the task that runs an attempt, and whether it has ended.


runner: Final[Callable[[], Runner | None]] = sys._getframe
"""Return the frame of the caller, as `inspect.currentframe` does, which costs more."""


runner_async: Final[Callable[[], Runner | None]] = asyncio.current_task
"""Return the task of the caller."""


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


# gevent and eventlet replace locks, threads and sockets of Python by their own.


_lock_at_import: Final = threading.Lock


def refuse_late_patching() -> None:
    """Raise ConfigurationError if Python was patched after this package was imported.

    The locks that were made before are real ones. A greenlet that waits for one blocks the greenlet
    that holds it, and so itself, for ever.
    """
    if threading.Lock is not _lock_at_import:
        msg = (
            "gevent or eventlet has patched Python after oncekey was imported, so that its locks "
            "would block for ever; patch first, before any other import"
        )
        raise ConfigurationError(msg)


def input_check(descriptor: int) -> Callable[[], bool]:
    """Return a function that tells whether a file has something to read, without waiting.

    A connection that should be silent has something to read when the server has closed it.
    eventlet removes `poll`, and has a `select` without the system's limit of 1,024 files.
    """
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return lambda: bool(poll.poll(0))
    return lambda: bool(select.select([descriptor], [], [], 0)[0])


# What blocking code and coroutines do differently, in pairs.


# The types that most functions return. Looking up an attribute that a type lacks takes longer.
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, dict, list, tuple})


def pause(seconds: float) -> None:
    """Block this thread for `seconds`."""
    time.sleep(seconds)


async def pause_async(seconds: float) -> None:
    """Suspend this task for `seconds`."""
    await asyncio.sleep(seconds)


def call_blocking(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call the function, which may block. Return its value."""
    return function(*args, **kwargs)


async def call_blocking_async(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call the function in a thread, so that the event loop goes on. Return its value."""
    return await asyncio.to_thread(function, *args, **kwargs)


def invoke(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the function. Raise ConfigurationError if it returns an awaitable."""
    value = function(*args, **kwargs)
    if type(value) not in _PLAIN and hasattr(type(value), "__await__"):
        if inspect.iscoroutine(value):
            value.close()
        msg = f"{function!r} returned something to await; use the async form of this call"
        raise ConfigurationError(msg)
    return value


def invoke_async(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
    """Call the function and return an awaitable of its result, also if it is not a coroutine."""
    value = function(*args, **kwargs)
    return value if hasattr(type(value), "__await__") else _there(value)


async def _there(value: object) -> object:
    return value
