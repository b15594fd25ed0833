"""Which attempt is running here, and that none runs inside of itself."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from oncekey.attempt_base import BaseAttempt, running
from oncekey.compat import generation
from oncekey.core.call import Call
from oncekey.errors import ConfigurationError
from oncekey.observe import Observers

T = TypeVar("T", bound=BaseAttempt)


def forbid_nesting(call: Call, observers: Observers) -> None:
    """A call inside of itself would wait for itself: it is refused at once.

    `observers` stands for the store: every `Once` has its own.
    """
    outer = running.get()
    while outer is not None:
        if (
            outer._call.identity == call.identity  # noqa: SLF001 - how attempts see each other
            and outer._observers is observers  # noqa: SLF001 - how attempts see each other
            and not outer._ended  # noqa: SLF001 - how attempts see each other
            and outer._generation == generation()  # noqa: SLF001 - how attempts see each other
        ):
            msg = f"{call.name} is called from inside itself; call the plain function instead"
            raise ConfigurationError(msg)
        outer = outer._outer  # noqa: SLF001 - how attempts see each other


def current_of(kind: type[T], other: str) -> T:
    """The running attempt, which must be of this colour."""
    attempt = running.get()
    if attempt is None or attempt._ended or attempt._generation != generation():  # noqa: SLF001 - how attempts see each other
        msg = "no attempt is running here; call this inside a protected function"
        raise ConfigurationError(msg)
    if not isinstance(attempt, kind) and attempt._bridge is not None and not _on_a_loop():  # noqa: SLF001 - how attempts see each other
        attempt = attempt._bridge()  # noqa: SLF001 - how attempts see each other
    if not isinstance(attempt, kind):
        msg = f"the running attempt is of the other colour; use {other}()"
        raise ConfigurationError(msg)
    return attempt


def _on_a_loop() -> bool:
    """Whether this is a coroutine's thread, which must not block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
