"""Failpoints: named moments of a worker at which it kills or stops itself.

`after_effect:kill@0.05` kills it at one in twenty of these moments, `before_settle:stop#3` stops
it at the third. The store's moments are those of a store that stands before the real one; the
product knows nothing of them.
"""

import os
import random
import re
import signal
import threading
from typing import Any

from oncekey.stores.base import AsyncStore, Store

POINTS = (
    "before_claim",
    "after_claim",
    "before_effect",
    "after_effect",
    "before_settle",
    "after_settle",
    "before_answer",
)
FORM = re.compile(r"(?P<point>\w+):(?P<what>kill|stop)(?:@(?P<chance>[\d.]+)|#(?P<number>\d+))")
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Failpoints:
    """The failpoints of one worker."""

    def __init__(self, plans: list[str], seed: str) -> None:
        """A plan for a point that does not exist is an error: it would never fail."""
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._lock = threading.Lock()
        self._plans: dict[str, list[tuple[int, float, int]]] = {}
        self._passed: dict[str, int] = {}
        for plan in plans:
            found = FORM.fullmatch(plan)
            if found is None or found["point"] not in POINTS:
                msg = f"{plan!r} is no failpoint: write point:kill@0.05 or point:stop#3"
                raise ValueError(msg)
            one = (
                SIGNALS[found["what"]],
                float(found["chance"] or 0),
                int(found["number"] or 0),
            )
            self._plans.setdefault(found["point"], []).append(one)

    def passing(self, point: str) -> None:
        """This moment has come; the worker may not outlive it."""
        plans = self._plans.get(point)
        if not plans:
            return
        with self._lock:
            passed = self._passed[point] = self._passed.get(point, 0) + 1
            hits = [
                sent
                for sent, chance, number in plans
                if passed == number or (chance and self._random.random() < chance)
            ]
        for sent in hits:
            os.kill(os.getpid(), sent)


class PointedStore:
    """A store with a moment before and after each claim and settle."""

    def __init__(self, store: Store, points: Failpoints) -> None:
        self._store, self._points = store, points

    def claim(self, ask: Any, /) -> Any:
        self._points.passing("before_claim")
        answer = self._store.claim(ask)
        self._points.passing("after_claim")
        return answer

    def settle(self, ask: Any, /) -> Any:
        self._points.passing("before_settle")
        verdict = self._store.settle(ask)
        self._points.passing("after_settle")
        return verdict

    def as_async(self) -> "AsyncPointedStore":
        """The same before the store's own coroutines."""
        return AsyncPointedStore(self._store.as_async(), self._points)  # type: ignore[attr-defined]  # every store here has it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class AsyncPointedStore:
    """The same for coroutines."""

    def __init__(self, store: AsyncStore, points: Failpoints) -> None:
        self._store, self._points = store, points

    async def claim(self, ask: Any, /) -> Any:
        self._points.passing("before_claim")
        answer = await self._store.claim(ask)
        self._points.passing("after_claim")
        return answer

    async def settle(self, ask: Any, /) -> Any:
        self._points.passing("before_settle")
        verdict = await self._store.settle(ask)
        self._points.passing("after_settle")
        return verdict

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
