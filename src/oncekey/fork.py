"""What must not cross a fork: locks, threads, connections and whatever waits on them.

A child process gets a copy of every lock in whatever state it was, and of no thread.
Objects that own such things register here, and `after_fork` makes them new in the child.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


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
