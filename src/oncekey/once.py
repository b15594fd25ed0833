"""Once: protect functions and blocks, read and change records, and keep markers and results.

A method with a plain name blocks. Its twin for coroutines has a name that ends in `_async`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import (
    Any,
    Final,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from oncekey.attempt import AsyncAttempt, Attempt, attempt_of
from oncekey.core.call import Call
from oncekey.core.codec import PLAIN, Codec
from oncekey.core.fingerprint import of_value
from oncekey.core.key import checked_key, checked_scope, without_placeholder
from oncekey.core.record import Record, Status
from oncekey.engine import run as blocking
from oncekey.engine import run_async as awaiting
from oncekey.engine.run import Run
from oncekey.engine.run_async import AsyncRun
from oncekey.engine.run_base import running
from oncekey.engine.runtime import Core
from oncekey.errors import ConfigurationError
from oncekey.functions import (
    UNSET,
    AsyncProtected,
    Options,
    Protected,
    Selection,
    checked_function,
    fingerprinter,
    is_async,
    is_blocking,
    known_of,
    name_of,
    protect,
)
from oncekey.markers import AsyncMarkers, Markers
from oncekey.observe import Observer
from oncekey.observe.log import LogObserver
from oncekey.policy import (
    SECOND,
    Duration,
    Policy,
    PolicyFields,
    Terms,
    from_environment,
    microseconds,
    off_in_environment,
    seconds,
    switched_off,
)
from oncekey.records import MISSING, AsyncRecords, Records, by_hand, resolution
from oncekey.stores import AsyncStore, Store
from oncekey.stores.sqlalchemy import AnyEngine

# The attempt block, for blocking code and for coroutines.


class AttemptBlock:
    """The block of one attempt: use it with `with` in blocking code, `async with` in coroutines."""

    def __init__(self, view: Once, call: Call) -> None:
        """Prepare the attempt. Nothing is claimed before the block is entered."""
        self._view = view
        self._call = call
        self._entered: list[Any] = []

    def __enter__(self) -> Attempt:
        """Claim the key. Return the attempt, which runs or is a duplicate with its result."""
        core, active, call = self._view.use(self._call, self._call.terms)
        run = blocking.enter(core.engine(), call, active=active)
        self._entered.append(run)
        return attempt_of(run.__enter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the attempt, unless it has ended: complete it, or fail it with the error."""
        run: Run = self._left()
        run.__exit__(kind, error, trace)

    async def __aenter__(self) -> AsyncAttempt:
        """Claim the key. Return the attempt, which runs or is a duplicate with its result."""
        core, active, call = self._view.use(self._call, self._call.terms)
        run = await awaiting.enter(core.engine_async(), call, active=active)
        self._entered.append(run)
        return attempt_of(await run.__aenter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the attempt, unless it has ended: complete it, or fail it with the error."""
        run: AsyncRun = self._left()
        await run.__aexit__(kind, error, trace)

    def _left(self) -> Any:
        """Return the run that this code has entered. Others may have entered the block too."""
        mine = running.get()
        run = mine if mine in self._entered else self._entered[-1]
        self._entered.remove(run)
        return run


_STATUSES: Final = ("running", "completed", "failed", "released", "held")


def _grace(grace: Duration) -> int:
    return microseconds(seconds(grace, "grace", zero=True))


def _checked_status(status: object) -> Any:
    if status is not None and status not in _STATUSES:
        msg = f"a status is one of {', '.join(_STATUSES)}, not {status!r}"
        raise ConfigurationError(msg)
    return status


def _checked_prefix(prefix: object) -> str | None:
    if prefix is not None and not isinstance(prefix, str):
        msg = f"prefix must be a string, but it is {prefix!r}"
        raise ConfigurationError(msg)
    return prefix


def _is_function(thing: object) -> bool:
    return callable(thing) or isinstance(thing, (classmethod, staticmethod))


def _no_decorator(key: str | Callable[..., str]) -> ConfigurationError:
    """Return the error for `once(key)` that is not given a function to protect."""
    if isinstance(key, str):
        return ConfigurationError(f"once({key!r}) is a decorator; put it above a function")
    name = name_of(key)
    return ConfigurationError(
        f"{name} was taken for the function that makes the key, because @once stands above it "
        f"without a key; write @once('{name}:{{id}}') with the arguments that name the operation"
    )


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

DEFAULT_PREFIX: Final = "idempotency:"
Reconciler = Callable[[Record], Any]


class Decorator(Protocol):
    """The decorator that `once(...)` returns. It takes functions and coroutine functions."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a coroutine function is a function too
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncProtected[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Protected[P, R]: ...


class Once:
    """Makes what arrives twice happen once.

    >>> once = Once("memory://")
    >>> once.run("greeting", lambda: "hello")
    'hello'
    >>> once.run("greeting", lambda: "hello again")
    'hello'
    """

    active: bool
    core: Core
    _options: Options
    _scope: str | None
    _terms: Terms

    def __init__(
        self,
        store: str | Store | AsyncStore | AnyEngine | None = None,
        *,
        policy: Policy | None = None,
        scope: str | None = None,
        prefix: str | None = None,
        cache: bool | str | int | None = None,
        observers: Iterable[Observer] | None = None,
        active: bool = True,
        doctor: Literal["warn", "refuse"] | None = None,
        **fields: Unpack[PolicyFields],
    ) -> None:
        """Set the store and the defaults. Nothing is opened before the first use.

        `store` is a URL, a store, or an engine of SQLAlchemy. Without one, `$ONCEKEY_STORE` is
        used, then `$REDIS_URL`, then the file `oncekey.db` in the working directory.
        `prefix` is put before the name of every record, for a store that others share.
        `cache` is the size of the local cache, or False. By default remote stores have one.
        `doctor` examines the store before its first use: "warn" logs dangers, "refuse" raises.
        The fields of `policy` may also be given one by one, such as `ttl="7d"`.
        """
        environment = from_environment(os.environ)
        base = Options(policy=environment).having(policy=policy, fields=fields)
        self._scope = checked_scope(scope)
        self._options = base if scope is None else base.having(scope=scope)
        self.prefix = _checked_prefix(prefix) or os.environ.get("ONCEKEY_PREFIX") or DEFAULT_PREFIX
        if not isinstance(active, bool):
            msg = f"active must be True or False, but it is {active!r}"
            raise ConfigurationError(msg)
        self.active = active and not off_in_environment()
        told = (LogObserver(),) if observers is None else observers
        self.core = Core(store, told, cache, self.prefix)
        self._terms = self._options.terms()
        if doctor is not None:
            from oncekey.doctor.startup import StartupCheck

            self.core.doctor = StartupCheck(doctor, self.core.given, ttl=self._terms.ttl / SECOND)

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: what a `Once` holds cannot be copied."""
        msg = (
            "a Once cannot be pickled or copied, because it holds connections and threads; create "
            "it in a module that each process imports"
        )
        raise TypeError(msg)

    # Protect functions and blocks

    def __call__(
        self,
        key: str | Callable[..., str],
        *,
        scope: str | None = UNSET,
        fingerprint: Selection = UNSET,
        reconcile: Reconciler | None = None,
        label: str | None = None,
        policy: Policy | None = None,
        **fields: Unpack[PolicyFields],
    ) -> Decorator:
        """Return a decorator. A call of the function runs once for each key.

        `key` is a template over the arguments, or a function of them that returns the key.
        """
        if not isinstance(key, str) and (isinstance(key, type) or not callable(key)):
            msg = f"a key is a template such as 'charge:{{order.id}}' or a function, not {key!r}"
            raise ConfigurationError(msg)
        options = self._options.having(
            policy=policy,
            scope=scope,
            fingerprint=fingerprint,
            reconcile=reconcile,
            label=label,
            fields=fields,
        )

        def decorate(*called: Any, **with_names: Any) -> Any:
            if len(called) != 1 or with_names or not _is_function(called[0]):
                raise _no_decorator(key)
            return protect(self, called[0], key, options)

        return cast("Decorator", decorate)

    def options(
        self,
        *,
        scope: str | None = UNSET,
        fingerprint: Selection = UNSET,
        reconcile: Reconciler | None = None,
        label: str | None = None,
        reference: str | None = None,
        policy: Policy | None = None,
        **fields: Unpack[PolicyFields],
    ) -> Once:
        """Return a view of this `Once` with other options. It shares store, cache and engine."""
        view = object.__new__(Once)
        view.__dict__.update(self.__dict__)
        view._options = self._options.having(
            policy=policy,
            scope=scope,
            fingerprint=fingerprint,
            reconcile=reconcile,
            label=label,
            reference=reference,
            fields=fields,
        )
        view._scope = self._scope if scope is UNSET else scope
        view._terms = view._options.terms()
        return view

    def run(self, key: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run the function once for this key. Return its result, or the one that is kept.

        Raise ConfigurationError for a coroutine function: use `run_async`.
        """
        checked_function(function)
        if is_async(function):
            msg = f"{name_of(function)} is a coroutine function; use `await once.run_async(...)`"
            raise ConfigurationError(msg)
        core, active, call = self.use(self._call_of(key, function, args, kwargs), self._terms)
        done = blocking.perform(core.engine(), call, function, args, kwargs, active=active)
        return cast("T", done.value)

    async def run_async(
        self,
        key: str,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> T:
        """Run the coroutine function once for this key. Return its result, or the kept one.

        Raise ConfigurationError for a blocking function: use `run`.
        """
        checked_function(function)
        if is_blocking(function):
            msg = (
                f"{name_of(function)} is not a coroutine function and would block the event loop; "
                f"use `once.run(...)`, or make it `async def`"
            )
            raise ConfigurationError(msg)
        core, active, call = self.use(self._call_of(key, function, args, kwargs), self._terms)
        done = await awaiting.perform(
            core.engine_async(), call, function, args, kwargs, active=active
        )
        return cast("T", done.value)

    def attempt(
        self, key: str, *, fingerprint: object = None, returns: object = None
    ) -> AttemptBlock:
        """Return a block to use as `with once.attempt(key) as attempt:`, or with `async with`.

        `fingerprint` is a value that differs for different operations: if the same key comes with
        another one, KeyReusedError is raised. `returns` is the type of the result, needed where it
        is more than plain values.
        """
        call = self._call(
            without_placeholder(checked_key(key)),
            fingerprint=None if fingerprint is None else of_value(fingerprint),
            codec=PLAIN if returns is None else Codec(returns),
            label=self._options.label or "attempt",
        )
        return AttemptBlock(self, call)

    def _call_of(
        self, key: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call:
        arguments, codec = known_of(function)
        bound = arguments.bind(*args, **kwargs)
        fingerprint = fingerprinter(self._options.fingerprint, arguments)(bound, args, kwargs)
        label = self._options.label or name_of(function)
        key = without_placeholder(checked_key(key))
        return self._call(key, fingerprint=fingerprint, codec=codec, label=label)

    def _call(self, key: str, *, fingerprint: str | None, codec: Codec, label: str) -> Call:
        return Call(
            scope=self._scope,
            key=key,
            terms=self._terms,
            fingerprint=fingerprint,
            label=label,
            reference=self._options.reference,
            surface=self._options.kind,
            codec=codec,
            reconcile=self._options.reconcile,
        )

    # Records

    def get(self, key: str, *, scope: str | None = UNSET) -> Record | None:
        """Return the record of the key, or None if there is none."""
        return self._records().get(self._in(scope), key)

    def scan(self, *, scope: str | None = UNSET, status: Status | None = None) -> Iterator[Record]:
        """Iterate over all records, or those of one scope or status, by scope and key."""
        within = None if scope is UNSET else checked_scope(scope)
        return self._records().scan(
            within, any_scope=scope is UNSET, status=_checked_status(status)
        )

    def forget(
        self,
        key: str,
        *,
        scope: str | None = UNSET,
        force: bool = False,
        by: str = "",
        reason: str = "",
    ) -> bool:
        """Forget the key. Return whether there was a record.

        A running or held record is forgotten only with `force`, and its attempt is lost. Without
        it, InProgressError or OutcomeUnknownError is raised. If `by` or `reason` says who wants it
        and why, the store keeps that in its audit trail.
        """
        return self._records().forget(self._in(scope), key, force=force, hand=by_hand(by, reason))

    def resolve(
        self,
        key: str,
        *,
        scope: str | None = UNSET,
        result: object = MISSING,
        error: BaseException | None = None,
        retry: bool = False,
        by: str = "",
        reason: str = "",
    ) -> bool:
        """End a held record with a result or an error, or let it run again with `retry`.

        Return False if the record is not held. Raise ConfigurationError unless exactly one of
        `result`, `error` and `retry` is given. If `by` or `reason` says who decided it and why, the
        store keeps that in its audit trail.
        """
        ended = resolution(result=result, error=error, retry=retry, ttl=self._terms.ttl)
        return self._records().resolve(self._in(scope), key, ended, by_hand(by, reason))

    def purge(
        self,
        *,
        grace: Duration = 0,
        progress: Callable[[int], None] | None = None,
        by: str = "",
        reason: str = "",
    ) -> int:
        """Remove the records that expired longer ago than `grace`. Return how many.

        `progress` is called with the count so far after each batch. If `by` or `reason` is given,
        the store keeps an entry about it in its audit trail.
        """
        return self._records().purge(_grace(grace), progress, by_hand(by, reason))

    async def get_async(self, key: str, *, scope: str | None = UNSET) -> Record | None:
        """Return the record of the key, or None if there is none."""
        return await self._records_async().get(self._in(scope), key)

    def scan_async(
        self, *, scope: str | None = UNSET, status: Status | None = None
    ) -> AsyncIterator[Record]:
        """Iterate over all records, or those of one scope or status, by scope and key."""
        within = None if scope is UNSET else checked_scope(scope)
        records = self._records_async()
        return records.scan(within, any_scope=scope is UNSET, status=_checked_status(status))

    async def forget_async(
        self,
        key: str,
        *,
        scope: str | None = UNSET,
        force: bool = False,
        by: str = "",
        reason: str = "",
    ) -> bool:
        """Forget the key. Return whether there was a record. See `forget`."""
        return await self._records_async().forget(
            self._in(scope), key, force=force, hand=by_hand(by, reason)
        )

    async def resolve_async(
        self,
        key: str,
        *,
        scope: str | None = UNSET,
        result: object = MISSING,
        error: BaseException | None = None,
        retry: bool = False,
        by: str = "",
        reason: str = "",
    ) -> bool:
        """End a held record. Return False if it is not held. See `resolve`."""
        ended = resolution(result=result, error=error, retry=retry, ttl=self._terms.ttl)
        return await self._records_async().resolve(self._in(scope), key, ended, by_hand(by, reason))

    async def purge_async(
        self,
        *,
        grace: Duration = 0,
        progress: Callable[[int], None] | None = None,
        by: str = "",
        reason: str = "",
    ) -> int:
        """Remove the records that expired longer ago than `grace`. Return how many. See `purge`."""
        return await self._records_async().purge(_grace(grace), progress, by_hand(by, reason))

    def _records(self) -> Records:
        return Records(self.core, self.core.store)

    def _records_async(self) -> AsyncRecords:
        return AsyncRecords(self.core, self.core.store_async)

    # Markers and plain results

    def check(self, key: str, ttl: Duration | None = None) -> bool:
        """Mark the key. Return True if it is new: one caller gets True until the ttl is over.

        While the store is down, return True if the policy fails open, else raise StoreError.
        """
        return self._markers().check(self._scope, key, self._lasting(ttl))

    def keep_result(self, key: str, value: object, ttl: Duration | None = None) -> None:
        """Keep a plain value under the key until the ttl is over, in place of an earlier one."""
        self._markers().keep_result(self._scope, key, value, self._lasting(ttl))

    def read_result(self, key: str, default: Any = None) -> Any:
        """Return the plain value that was kept under the key, or the default."""
        return self._markers().read_result(self._scope, key, default, self._terms)

    async def check_async(self, key: str, ttl: Duration | None = None) -> bool:
        """Mark the key. Return True if it is new. See `check`."""
        return await self._markers_async().check(self._scope, key, self._lasting(ttl))

    async def keep_result_async(self, key: str, value: object, ttl: Duration | None = None) -> None:
        """Keep a plain value under the key until the ttl is over, in place of an earlier one."""
        await self._markers_async().keep_result(self._scope, key, value, self._lasting(ttl))

    async def read_result_async(self, key: str, default: Any = None) -> Any:
        """Return the plain value that was kept under the key, or the default."""
        return await self._markers_async().read_result(self._scope, key, default, self._terms)

    def _markers(self) -> Markers:
        return Markers(self.core, self.core.store)

    def _markers_async(self) -> AsyncMarkers:
        return AsyncMarkers(self.core, self.core.store_async)

    def _lasting(self, ttl: Duration | None) -> Terms:
        return self._terms if ttl is None else self._options.having(fields={"ttl": ttl}).terms()

    # For HTTP, jobs and messages

    @property
    def policy(self) -> Policy:
        """The policy as it was given, without defaults."""
        return self._options.policy

    @property
    def store(self) -> Store:
        """The store for blocking code."""
        return self.core.store

    @property
    def store_async(self) -> AsyncStore:
        """The store for coroutines."""
        return self.core.store_async

    def having(self, **said: Any) -> Options:
        """Return the options of this view with these changes. See `Options.having`."""
        return self._options.having(**said)

    def use(self, call: Call | None, terms: Terms) -> tuple[Core, bool, Call]:
        """Return the core, whether protection is active, and the call.

        If `call` is None, the key was empty: return a call with a random key, without protection.
        """
        if call is None:
            return self.core, False, Call(scope=None, key=os.urandom(16).hex(), terms=terms)
        return self.core, self.active and not switched_off(), call

    def _in(self, scope: str | None) -> str | None:
        return self._scope if scope is UNSET else scope

    # Close

    def close(self) -> None:
        """Close the connections of the store. The next use opens new ones."""
        self.core.write_counts()
        self.core.store.close()

    async def aclose(self) -> None:
        """Close the connections of the store. The next use opens new ones."""
        await asyncio.to_thread(self.core.write_counts)
        await self.core.store_async.aclose()
