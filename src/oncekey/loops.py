"""The event loop that runs here, found without asking the system.

Before Python 3.12 `asyncio.get_running_loop` asks for the number of the process each time, to tell
whether it was forked. A request over HTTP would do so four times, and that can be measured.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Final

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
