"""Signals: an exception that comes between two lines of the library, wherever a call is.

Python calls a handler of signals between two instructions of the main thread, and what the handler
raises is raised there. Here a trace function does the same in front of a chosen line.
"""

import sys
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent  # type: ignore[import-untyped]  # it ships no types

import oncekey

if TYPE_CHECKING:
    from tests.simulation.caller import Try

_HOME = str(Path(oncekey.__file__).parent)
_OURS: dict[str, bool] = {}
"""By file: whether it is a part of the library."""
_tears: dict[Any, "Tear"] = {}
"""By greenlet: the calls that a signal is on its way to."""


class Tear:
    """Raises an exception in a call, in front of the nth line of the library that it comes to.

    Only the lines of functions with the name `within` count, if it has one.
    """

    def __init__(self, call: "Try", nth: int, within: str) -> None:
        self._call = call
        self._left = nth
        self.within = within

    def __enter__(self) -> None:
        _tears[getcurrent()] = self
        sys.settrace(_entered)

    def __exit__(self, *_: object) -> None:
        del _tears[getcurrent()]
        sys.settrace(_entered if _tears else None)

    def line(self, frame: FrameType, event: str, argument: object) -> Any:
        """Raise what the handler of the signal raises, if this is the line."""
        if event in ("line", "return") and self._call.can_be_torn:
            self._left -= 1
            if not self._left:
                where = f"{Path(frame.f_code.co_filename).stem}.py:{frame.f_lineno}"
                raise self._call.torn_by_a_signal(where)
        return self.line


def _entered(frame: FrameType, event: str, argument: object) -> Any:
    """Watch the lines of this function, if it is ours and runs for such a call."""
    code = frame.f_code
    ours = _OURS.get(code.co_filename)
    if ours is None:
        ours = _OURS[code.co_filename] = code.co_filename.startswith(_HOME)
    if code.co_flags & CO_GENERATOR:  # which Python may be closing, where nothing can be raised
        return None
    tear = _tears.get(getcurrent()) if ours else None
    if tear is None or (tear.within and tear.within != code.co_name):
        return None
    return tear.line
