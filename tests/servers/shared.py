"""Servers that all tests of a worker share.

A session fixture that several modules import is set up for each of them, so that the fixtures of
this folder ask here for what they start.
"""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_started: dict[type, Any] = {}


def started_once(kind: type[T], start: Callable[[], T]) -> T:
    """Return the server of this kind that runs in this worker, or start it."""
    if kind not in _started:
        _started[kind] = start()
    server: T = _started[kind]
    return server
