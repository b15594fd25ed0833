"""Markers of keys that were seen, and results that are kept without a function.

`Markers` is for blocking code and `AsyncMarkers` for coroutines. Their code is the same.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

from oncekey.core.call import Call
from oncekey.core.codec import NotKeepableError
from oncekey.core.decide import served
from oncekey.core.key import checked_key, without_placeholder
from oncekey.core.requests import Forget, Granted
from oncekey.engine.runtime import Core
from oncekey.engine.ticket import new_nonce
from oncekey.errors import ConfigurationError, StoreError
from oncekey.observe import Name
from oncekey.policy import Terms
from oncekey.stores.base import AsyncStore, Store

# The records that hold markers and results, for both classes.


def check_call(scope: str | None, key: str, terms: Terms) -> Call:
    """Return the call that stands for the marker of the key."""
    return _call("oncekey.check", scope, key, terms)


def result_call(scope: str | None, key: str, terms: Terms) -> Call:
    """Return the call that stands for the plain result of the key."""
    return _call("oncekey.result", scope, key, terms)


def result_of(call: Call, value: object) -> bytes:
    """Return the bytes of a plain result.

    Raise ConfigurationError if the value is not plain, or larger than max_result.
    """
    try:
        data = call.codec.encode(value)
    except NotKeepableError as error:
        msg = f"keep_result takes plain values (str, int, list, dict ...): {error}"
        raise ConfigurationError(msg) from None
    if len(data) > call.terms.max_result:
        msg = f"the result has {len(data)} bytes, more than max_result allows"
        raise ConfigurationError(msg)
    return data


def _call(kind: str, scope: str | None, key: str, terms: Terms) -> Call:
    place = kind if scope is None else f"{kind}:{scope}"
    key = without_placeholder(checked_key(key))
    return Call(scope=place, key=key, terms=terms, label=kind, surface="mark")


# For blocking code.


_TRIES: Final = 8


class Markers:
    """Check whether keys are new, and keep and read plain results."""

    def __init__(self, core: Core, store: Store) -> None:
        """Use the markers of this store, which have scopes of their own."""
        self.core = core
        self._store = store

    def check(self, scope: str | None, key: str, terms: Terms) -> bool:
        """Mark the key. Return True if it is new: one caller gets True until the ttl is over.

        While the store is down, return True if the terms fail open, else raise StoreError.
        """
        call = check_call(scope, key, terms)
        observers = self.core.observers
        started = perf_counter()
        try:
            insist = self.core.engine().insist
            answer = insist(self._store.claim, call.claim(new_nonce()))
            new = type(answer) is Granted
            if new:
                insist(self._store.settle, call.settle(answer.record, "completed"))
        except StoreError as error:
            took = perf_counter() - started
            name: Name = "unprotected" if terms.fail_open else "refused"
            observers.tell(name, call, seconds=took, detail=str(error))
            if terms.fail_open:
                return True
            raise
        observers.tell("new" if new else "duplicate", call, 1, perf_counter() - started)
        return new

    def keep_result(self, scope: str | None, key: str, value: object, terms: Terms) -> None:
        """Keep the value under the key until the ttl is over, in place of an earlier one.

        Raise StoreError if others replace it each time in `_TRIES` tries.
        """
        call = result_call(scope, key, terms)
        result = result_of(call, value)
        for _ in range(_TRIES):  # replace a result that another caller keeps just now
            answer = self._store.claim(call.claim(new_nonce()))
            record = answer.record
            if type(answer) is Granted:
                self._store.settle(call.settle(record, "completed", result=result))
                return
            self._store.forget(Forget(*call.identity, token=record.token, force=True))
        msg = f"the result of {key!r} was not kept: others keep results of it all the time"
        raise StoreError(msg, happened=False)

    def read_result(self, scope: str | None, key: str, default: Any, terms: Terms) -> Any:
        """Return the value that was kept under the key, or the default."""
        call = result_call(scope, key, terms)
        record = self._store.get(*call.identity)
        if record is None or record.status != "completed":
            return default
        return served(record, call)


# For coroutines.


class AsyncMarkers:
    """Check whether keys are new, and keep and read plain results."""

    def __init__(self, core: Core, store: AsyncStore) -> None:
        """Use the markers of this store, which have scopes of their own."""
        self.core = core
        self._store = store

    async def check(self, scope: str | None, key: str, terms: Terms) -> bool:
        """Mark the key. Return True if it is new: one caller gets True until the ttl is over.

        While the store is down, return True if the terms fail open, else raise StoreError.
        """
        call = check_call(scope, key, terms)
        observers = self.core.observers
        started = perf_counter()
        try:
            insist = self.core.engine_async().insist
            answer = await insist(self._store.claim, call.claim(new_nonce()))
            new = type(answer) is Granted
            if new:
                await insist(self._store.settle, call.settle(answer.record, "completed"))
        except StoreError as error:
            took = perf_counter() - started
            name: Name = "unprotected" if terms.fail_open else "refused"
            observers.tell(name, call, seconds=took, detail=str(error))
            if terms.fail_open:
                return True
            raise
        observers.tell("new" if new else "duplicate", call, 1, perf_counter() - started)
        return new

    async def keep_result(self, scope: str | None, key: str, value: object, terms: Terms) -> None:
        """Keep the value under the key until the ttl is over, in place of an earlier one.

        Raise StoreError if others replace it each time in `_TRIES` tries.
        """
        call = result_call(scope, key, terms)
        result = result_of(call, value)
        for _ in range(_TRIES):  # replace a result that another caller keeps just now
            answer = await self._store.claim(call.claim(new_nonce()))
            record = answer.record
            if type(answer) is Granted:
                await self._store.settle(call.settle(record, "completed", result=result))
                return
            await self._store.forget(Forget(*call.identity, token=record.token, force=True))
        msg = f"the result of {key!r} was not kept: others keep results of it all the time"
        raise StoreError(msg, happened=False)

    async def read_result(self, scope: str | None, key: str, default: Any, terms: Terms) -> Any:
        """Return the value that was kept under the key, or the default."""
        call = result_call(scope, key, terms)
        record = await self._store.get(*call.identity)
        if record is None or record.status != "completed":
            return default
        return served(record, call)
