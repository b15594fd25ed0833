"""What the tests of the front door are made of, in both colours."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from oncekey.core.requests import Claim, Forget
from tests.patience import PATIENCE, until, until_async

CUT_OFF = KeyboardInterrupt
"""What ends blocking code wherever it is."""
CUT_OFF_async = asyncio.CancelledError
"""The same for coroutines."""


@dataclass
class Order:
    id: int
    total: Decimal


@dataclass
class Receipt:
    number: str
    total: Decimal


class CardDeclinedError(Exception):
    """An exception whose arguments are not those of its constructor."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code


def answer_two() -> int:
    return 2


def fail_definitely():
    raise ValueError


def replace_record(store, key):
    """Somebody else forgets the record and claims the key, between two verbs of a caller."""
    record = store.get(None, key)
    store.forget(Forget(None, key, token=record.token, force=True))
    store.claim(Claim(None, key, nonce="n", fingerprint=None, lease=10**9, ttl=10**9))


def replace_by_completed(once, key):
    """Somebody else takes the key over and completes it, while a caller looks elsewhere."""
    once.options(fingerprint=None).run(key, lambda: "winner")


def until_status(once, key, status):
    until(lambda: getattr(once.get(key), "status", None) == status)


async def until_status_async(once, key, status):
    await until_async(lambda: getattr(once.get(key), "status", None) == status)


def until_waiting(events, callers):
    """So many callers wait for one that runs here."""
    until(lambda: names(events).count("waiting") >= callers)


async def until_waiting_async(events, callers):
    await until_async(lambda: names(events).count("waiting") >= callers)


def names(events):
    return [event.name for event in events]


class Started:
    """Something that goes on in the background, and its outcome."""

    def __init__(self, function: Callable[[], Any]):
        self._box: dict[str, Any] = {}

        def work():
            try:
                self._box["value"] = function()
            except BaseException as error:  # noqa: BLE001 - raised again in outcome()
                self._box["error"] = error

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def outcome(self):
        self._thread.join(PATIENCE)
        assert self._box, "it never ended"
        if "error" in self._box:
            raise self._box["error"]
        return self._box["value"]


def start(function: Callable[[], Any]) -> Started:
    """The function runs in a thread."""
    return Started(function)


class StartedAsync:
    def __init__(self, function):
        self._task = asyncio.ensure_future(function())

    async def outcome(self):
        return await asyncio.wait_for(self._task, PATIENCE)


def start_async(function) -> StartedAsync:
    """The coroutine function runs in a task."""
    return StartedAsync(function)
