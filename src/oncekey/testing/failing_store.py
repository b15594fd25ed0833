"""A store that fails when a test says so: before it acts, or after, when its reply is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Note,
    Page,
    Release,
    Renew,
    Resolve,
    Scan,
    Settle,
    Verdict,
)
from oncekey.errors import ConfigurationError, StoreError
from oncekey.stores.adapters import Threaded
from oncekey.stores.base import VERBS, Store
from oncekey.stores.memory import MemoryStore

T = TypeVar("T")
Failure = Callable[[Callable[[], Any]], Any]


class FailingStore:
    """Pass requests on to another store, count them, and fail as a test wishes.

    >>> store = FailingStore()
    >>> store.lose_reply("settle", number=2)  # of the calls from now on, the second
    >>> store.calls["settle"]
    0
    """

    remote: Final = False

    def __init__(self, store: Store | None = None) -> None:
        """Keep the records in `store`, or in memory. Nothing fails yet."""
        self.store: Final = MemoryStore() if store is None else store
        self.calls: Final[Counter[str]] = Counter()
        self._plans: dict[tuple[str, int], Failure] = {}
        self._lock = threading.Lock()

    # Planning failures

    def refuse(self, verb: str, times: int = 1, *, number: int = 1) -> None:
        """Fail the request before it happens, for this many calls."""
        self._plan(verb, times, number, _refused)

    def cut_off(self, verb: str, times: int = 1, *, number: int = 1) -> None:
        """Let the store be unreachable, for this many calls."""
        self._plan(verb, times, number, _unreachable)

    def lose_reply(self, verb: str, times: int = 1, *, number: int = 1) -> None:
        """Execute the request but lose the reply, for this many calls."""
        self._plan(verb, times, number, _lost)

    def instead(self, verb: str, failure: Failure, *, number: int = 1) -> None:
        """Call `failure` in place of the request. It is given the real one as a function."""
        self._plan(verb, 1, number, failure)

    def heal(self) -> None:
        """Drop all planned failures."""
        with self._lock:
            self._plans.clear()

    def _plan(self, verb: str, times: int, number: int, failure: Failure) -> None:
        if verb not in VERBS:
            msg = f"a store has no verb {verb!r}; it has {', '.join(VERBS)}"
            raise ConfigurationError(msg)
        if times < 1 or number < 1:
            msg = f"times and number count from 1, but they are {times} and {number}"
            raise ConfigurationError(msg)
        with self._lock:
            first = self.calls[verb] + number
            for place in range(first, first + times):
                self._plans[verb, place] = failure

    def _call(self, verb: str, do: Callable[[], T]) -> T:
        with self._lock:
            self.calls[verb] += 1
            plan = self._plans.pop((verb, self.calls[verb]), None)
        if plan is None:
            return do()
        answer: T = plan(do)
        return answer

    # The requests of a store

    def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to one caller."""
        return self._call("claim", lambda: self.store.claim(ask))

    def renew(self, ask: Renew, /) -> Verdict:
        """Move the end of the owner's lease."""
        return self._call("renew", lambda: self.store.renew(ask))

    def note(self, ask: Note, /) -> Verdict:
        """Keep the owner's notes."""
        return self._call("note", lambda: self.store.note(ask))

    def settle(self, ask: Settle, /) -> Verdict:
        """Keep the owner's answer."""
        return self._call("settle", lambda: self.store.settle(ask))

    def release(self, ask: Release, /) -> Verdict:
        """End the owner's claim."""
        return self._call("release", lambda: self.store.release(ask))

    def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        return self._call("resolve", lambda: self.store.resolve(ask))

    def forget(self, ask: Forget, /) -> Verdict:
        """Delete the record."""
        return self._call("forget", lambda: self.store.forget(ask))

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the living record, or None if there is none."""
        return self._call("get", lambda: self.store.get(scope, key))

    def scan(self, ask: Scan, /) -> Page:
        """Return some of the living records, in the order of scope and key."""
        return self._call("scan", lambda: self.store.scan(ask))

    def purge(self, grace: int, limit: int, /) -> int:
        """Delete at most `limit` records that expired `grace` microseconds ago. Return how many."""
        return self._call("purge", lambda: self.store.purge(grace, limit))

    def close(self) -> None:
        """Close the store behind this one."""
        self.store.close()

    def as_async(self) -> Threaded:
        """Return a store for coroutines. A thread per request keeps a slow one from blocking."""
        return Threaded(self)


def _refused(_do: Callable[[], Any]) -> Any:
    msg = "the store refused, as the test wished"
    raise StoreError(msg, happened=False)


def _unreachable(_do: Callable[[], Any]) -> Any:
    msg = "the store cannot be reached, as the test wished"
    raise StoreError(msg, happened=False, unreachable=True)


def _lost(do: Callable[[], Any]) -> Any:
    do()
    msg = "the reply was lost, as the test wished"
    raise StoreError(msg, happened=None)
