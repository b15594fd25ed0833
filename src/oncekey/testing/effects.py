"""Declared effects: what the outside world sees of a handler, counted."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any, Final

from oncekey.compat import pause, pause_async
from oncekey.errors import ConfigurationError
from oncekey.testing.processes import here

_A_MOMENT: Final = 0.002


class Effect:
    """Something that must happen once. Call it in place of the real thing, or `with` it.

    It behaves as a provider does: under an idempotency key that it has seen it answers as the
    first time, and nothing happens. Without one it happens as often as it is called.
    """

    def __init__(self, name: str, function: Callable[..., Any] | None, key: str) -> None:
        """`function` is what is called; `key` the name of the argument that carries the key."""
        self.name: Final = name
        self._function = function
        self._key = key
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """It has never happened."""
        self.count = 0
        self._seen: set[Hashable] = set()
        self._answers: dict[Hashable, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, or the name and number of the effect where there is none."""
        process = here.get()
        process.passing(f"before {self.name}")
        key = kwargs.get(self._key)
        if self._arrives(key):
            answer = self._answers[key] = self._happen(args, kwargs)
        else:
            while key not in self._answers:  # the first one is still at it
                pause(_A_MOMENT)
            answer = self._answers[key]
        process.passing(f"after {self.name}")
        return answer

    def _arrives(self, key: Hashable) -> bool:
        """Whether it happens now: not if the key was here before."""
        with self._lock:
            if key is not None and key in self._seen:
                return False
            self._seen.add(key)
            self.count += 1
            return True

    def _happen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._function is None:
            return f"{self.name} {self.count}"
        return self._function(*args, **kwargs)

    def __enter__(self) -> None:
        """The effect is about to happen."""
        here.get().passing(f"before {self.name}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """It has happened, unless the block raised."""
        if kind is None:
            with self._lock:
                self.count += 1
            here.get().passing(f"after {self.name}")

    def __repr__(self) -> str:
        return f"<effect {self.name!r}, happened {self.count} times>"


class AsyncEffect(Effect):
    """The same for code that awaits it."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, awaited where it is to be."""
        process = here.get()
        process.passing(f"before {self.name}")
        key = kwargs.get(self._key)
        if self._arrives(key):
            made = self._happen(args, kwargs)
            answer = self._answers[key] = await made if inspect.isawaitable(made) else made
        else:
            while key not in self._answers:  # the first one is still at it
                await pause_async(_A_MOMENT)
            answer = self._answers[key]
        process.passing(f"after {self.name}")
        return answer


def checked_name(name: object) -> str:
    """The name of an effect, if it is one."""
    if not isinstance(name, str) or not name:
        msg = f"an effect needs a name for the report, such as 'charge', not {name!r}"
        raise ConfigurationError(msg)
    return name
