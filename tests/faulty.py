"""A store that fails on cue: before it does what it is asked, or after, when its reply is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from oncekey.errors import StoreError
from oncekey.stores.adapters import Threaded
from oncekey.stores.base import VERBS, Store
from tests.patience import PATIENCE


class FaultyStore:
    """The verbs of another store, counted, and broken as a test wishes."""

    remote = False
    sends_once = True

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: Counter[str] = Counter()
        self._plans: dict[str, list[Callable[[Callable[[], Any]], Any]]] = {}
        self._lock = threading.Lock()

    def refuse(self, verb: str, times: int = 1) -> None:
        """The verb surely does not happen, so many times."""
        self._plan(verb, times, self._refused)

    def cut_off(self, verb: str, times: int = 1) -> None:
        """The store cannot be reached, so many times."""
        self._plan(verb, times, self._unreachable)

    def lose_reply(self, verb: str, times: int = 1) -> None:
        """The verb happens, but nobody hears of it."""
        self._plan(verb, times, self._lost)

    def block(self, verb: str) -> threading.Event:
        """The verb's next call waits for the event."""
        event = threading.Event()

        def blocked(do: Callable[[], Any]) -> Any:
            assert event.wait(PATIENCE)
            return do()

        self._plan(verb, 1, blocked)
        return event

    def instead(self, verb: str, function: Callable[[Callable[[], Any]], Any]) -> None:
        """The verb's next call is `function`, which is given the real one."""
        self._plan(verb, 1, function)

    def heal(self) -> None:
        """From now on everything works."""
        with self._lock:
            self._plans.clear()

    def as_async(self) -> Threaded:
        """For coroutines every verb is on a thread, so that a blocked one blocks nobody else."""
        return Threaded(cast("Store", self))

    def close(self) -> None:
        self.store.close()

    def _plan(self, verb: str, times: int, plan: Callable[[Callable[[], Any]], Any]) -> None:
        with self._lock:
            self._plans.setdefault(verb, []).extend([plan] * times)

    @staticmethod
    def _refused(do: Callable[[], Any]) -> Any:
        msg = "the store is down"
        raise StoreError(msg, happened=False)

    @staticmethod
    def _unreachable(do: Callable[[], Any]) -> Any:
        msg = "connection refused"
        raise StoreError(msg, happened=False, unreachable=True)

    @staticmethod
    def _lost(do: Callable[[], Any]) -> Any:
        do()
        msg = "the reply was lost"
        raise StoreError(msg, happened=None)

    def _call(self, verb: str, *arguments: Any) -> Any:
        self.calls[verb] += 1
        with self._lock:
            plans = self._plans.get(verb)
            plan = plans.pop(0) if plans else None
        real: Callable[..., Any] = getattr(self.store, verb)
        return real(*arguments) if plan is None else plan(lambda: real(*arguments))


def _forward(verb: str) -> Callable[..., Any]:
    def forwarded(self: FaultyStore, *arguments: Any) -> Any:
        return self._call(verb, *arguments)

    return forwarded


for _verb in VERBS:
    setattr(FaultyStore, _verb, _forward(_verb))
