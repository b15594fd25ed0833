"""A store that fails on cue: before it does what it is asked, or after, when its reply is lost."""

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
    """The verbs of another store, counted, and broken as a test wishes.

    >>> store = FailingStore()
    >>> store.lose_reply("settle", number=2)  # of the calls from now on, the second
    >>> store.calls["settle"]
    0
    """

    remote: Final = False

    def __init__(self, store: Store | None = None) -> None:
        """Everything works; the records are in `store`, or in memory."""
        self.store: Final = MemoryStore() if store is None else store
        self.calls: Final[Counter[str]] = Counter()
        self._plans: dict[tuple[str, int], Failure] = {}
        self._lock = threading.Lock()

    # What goes wrong

    def refuse(self, verb: str, times: int = 1, *, number: int = 1) -> None:
        """The verb surely does not happen, so many times."""
        self._plan(verb, times, number, _refused)

    def cut_off(self, verb: str, times: int = 1, *, number: int = 1) -> None:
        """The store cannot be reached, so many times."""
        self._plan(verb, times, number, _unreachable)

    def lose_reply(self, verb: str, times: int = 1, *, number: int = 1) -> None:
        """The verb happens, but nobody hears of it, so many times."""
        self._plan(verb, times, number, _lost)

    def instead(self, verb: str, failure: Failure, *, number: int = 1) -> None:
        """The verb is whatever `failure` does, which is given the real one."""
        self._plan(verb, 1, number, failure)

    def heal(self) -> None:
        """From now on everything works."""
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

    # The verbs

    def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        return self._call("claim", lambda: self.store.claim(ask))

    def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return self._call("renew", lambda: self.store.renew(ask))

    def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return self._call("note", lambda: self.store.note(ask))

    def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        return self._call("settle", lambda: self.store.settle(ask))

    def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        return self._call("release", lambda: self.store.release(ask))

    def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        return self._call("resolve", lambda: self.store.resolve(ask))

    def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        return self._call("forget", lambda: self.store.forget(ask))

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        return self._call("get", lambda: self.store.get(scope, key))

    def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key."""
        return self._call("scan", lambda: self.store.scan(ask))

    def purge(self, grace: int, limit: int, /) -> int:
        """At most `limit` records that expired `grace` microseconds ago are gone; how many."""
        return self._call("purge", lambda: self.store.purge(grace, limit))

    def close(self) -> None:
        """The store behind this one is closed."""
        self.store.close()

    def as_async(self) -> Threaded:
        """For coroutines every verb is on a thread, so that one that waits holds up nobody else."""
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
