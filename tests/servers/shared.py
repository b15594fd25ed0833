"""Servers that all tests of a worker share. The fixture `run_servers` of tests/conftest ends them.

A session fixture that several modules import is set up for each of them, so that the fixtures of
this folder ask here for what they start.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

T = TypeVar("T")


class SharedServers:
    """What runs in this worker, each server since a test first asked for it."""

    def __init__(self, ending: ExitStack) -> None:
        """Know of none. What is started registers its end with `ending`."""
        self._ending = ending
        self._started: dict[type, Any] = {}

    def get(self, kind: type[T], start: Callable[[ExitStack], T]) -> T:
        """Return the server of this kind that runs, or start it."""
        if kind not in self._started:
            self._started[kind] = start(self._ending)
        server: T = self._started[kind]
        return server
