"""Effects of a handler on the outside world, declared in a test and counted."""

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
    """Something that must happen once. Call it in place of the real thing, or use it in `with`.

    It behaves as a payment provider does: a second call with the same idempotency key returns the
    first answer and has no effect. Without a key it happens as often as it is called.
    """

    def __init__(self, name: str, function: Callable[..., Any] | None, key: str) -> None:
        """Call `function` for the effect. `key` names the argument with the idempotency key."""
        self.name: Final = name
        self._function = function
        self._key = key
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Set the count to zero and forget all keys."""
        self.count = 0
        self._seen: set[Hashable] = set()
        self._answers: dict[Hashable, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns, or the name and number of the effect without one."""
        process = here.get()
        process.passing(f"before {self.name}")
        key = kwargs.get(self._key)
        if self._arrives(key):
            answer = self._answers[key] = self._happen(args, kwargs)
        else:
            while key not in self._answers:  # the first call is still running
                pause(_A_MOMENT)
            answer = self._answers[key]
        process.passing(f"after {self.name}")
        return answer

    def _arrives(self, key: Hashable) -> bool:
        """Count the effect and return True, unless the key was seen before."""
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
        """Pass the point before the effect."""
        here.get().passing(f"before {self.name}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Count the effect and pass the point after it, unless the block raised."""
        if kind is None:
            with self._lock:
                self.count += 1
            here.get().passing(f"after {self.name}")

    def __repr__(self) -> str:
        return f"<effect {self.name!r}, happened {self.count} times>"


class AsyncEffect(Effect):
    """The same for code that awaits it."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns, awaited if it is awaitable."""
        process = here.get()
        process.passing(f"before {self.name}")
        key = kwargs.get(self._key)
        if self._arrives(key):
            made = self._happen(args, kwargs)
            answer = self._answers[key] = await made if inspect.isawaitable(made) else made
        else:
            while key not in self._answers:  # the first call is still running
                await pause_async(_A_MOMENT)
            answer = self._answers[key]
        process.passing(f"after {self.name}")
        return answer


def checked_name(name: object) -> str:
    """Return the name of an effect. Raise `ConfigurationError` if it is no name."""
    if not isinstance(name, str) or not name:
        msg = f"an effect needs a name for the report, such as 'charge', not {name!r}"
        raise ConfigurationError(msg)
    return name
