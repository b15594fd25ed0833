"""Once: the front door. A plain name blocks; a name that ends in `_async` is a coroutine's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from secrets import token_hex
from types import TracebackType
from typing import (
    Any,
    Final,
    Literal,
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
from oncekey.core.key import checked_key, checked_scope
from oncekey.core.record import Record, Status
from oncekey.engine import run as blocking
from oncekey.engine import run_async as awaiting
from oncekey.engine.run import Run
from oncekey.engine.run_async import AsyncRun
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
    known_of,
    name_of,
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
from oncekey.records import MISSING, AsyncRecords, Records, resolution
from oncekey.stores import AsyncStore, Store

# The way into an attempt block, in both colours.


class AttemptBlock:
    """The way into an attempt: `with` it in code that blocks, `async with` it in coroutines."""

    _run: Run
    _run_async: AsyncRun

    def __init__(self, view: Once, call: Call) -> None:
        """The call that is to be attempted."""
        self._view = view
        self._call = call

    def __enter__(self) -> Attempt:
        """The attempt: running, or a duplicate with its result."""
        core, active, call = self._view.use(self._call, self._call.terms)
        self._run = blocking.enter(core.engine(), call, active=active)
        return attempt_of(self._run.__enter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The attempt has ended."""
        self._run.__exit__(kind, error, trace)

    async def __aenter__(self) -> AsyncAttempt:
        """The attempt: running, or a duplicate with its result."""
        core, active, call = self._view.use(self._call, self._call.terms)
        engine = core.engine_async()
        self._run_async = await awaiting.enter(engine, call, active=active)
        return attempt_of(await self._run_async.__aenter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The attempt has ended."""
        await self._run_async.__aexit__(kind, error, trace)


_STATUSES: Final = ("running", "completed", "failed", "released", "held")


def _grace(grace: Duration) -> int:
    return microseconds(seconds(grace, "grace", zero=True))


def _checked_status(status: object) -> Any:
    if status is not None and status not in _STATUSES:
        msg = f"a status is one of {', '.join(_STATUSES)}, not {status!r}"
        raise ConfigurationError(msg)
    return status


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

DEFAULT_PREFIX: Final = "idempotency:"
Reconciler = Callable[[Record], Any]


class Decorator(Protocol):
    """What `once(...)` gives: it protects a function of either colour."""

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
        store: str | Store | AsyncStore | None = None,
        *,
        policy: Policy | None = None,
        scope: str | None = None,
        prefix: str | None = None,
        cache: bool | str | int | None = None,
        observers: Iterable[Observer] | None = None,
        active: bool = True,
        doctor: Literal["warn", "refuse"] | None = None,
    ) -> None:
        """Nothing is opened before the first use.

        `store` is a URL or a store; without one, `$ONCEKEY_STORE`, `$REDIS_URL`, or a file here.
        `prefix` opens the name of every record in a store that others share.
        `cache` is the size of the local cache, or False; by default remote stores have one.
        `doctor` has the store examined before its first use: dangers are logged, or refused.
        """
        environment = from_environment(os.environ)
        base = Options(policy=environment).having(policy=policy)
        self._scope = checked_scope(scope)
        self._options = base if scope is None else base.having(scope=scope)
        self.prefix = prefix or os.environ.get("ONCEKEY_PREFIX") or DEFAULT_PREFIX
        self.active = active and not off_in_environment()
        told = (LogObserver(),) if observers is None else observers
        self.core = Core(store, told, cache, self.prefix)
        self._terms = self._options.terms()
        if doctor is not None:
            from oncekey.doctor.startup import StartupCheck

            self.core.doctor = StartupCheck(doctor, self.core.given, ttl=self._terms.ttl / SECOND)

    # Protecting functions

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
        """A decorator: calls of the function with one key run once.

        `key` is a template over the arguments, or a function of them.
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

        def decorate(function: Callable[..., Any]) -> Any:
            kind = AsyncProtected if is_async(function) else Protected
            return kind(self, checked_function(function), key, options)

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
        """The same `Once` with other options: it shares the store and everything around it."""
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
        """What the function returns, now or the first time."""
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
        """What the coroutine function returns, now or the first time."""
        checked_function(function)
        core, active, call = self.use(self._call_of(key, function, args, kwargs), self._terms)
        done = await awaiting.perform(
            core.engine_async(), call, function, args, kwargs, active=active
        )
        return cast("T", done.value)

    def attempt(
        self, key: str, *, fingerprint: object = None, returns: object = None
    ) -> AttemptBlock:
        """A block that runs once: `with once.attempt(key) as attempt:`, or `async with`.

        `fingerprint` is whatever tells this operation from another one under the same key;
        `returns` is the type of the result, where it is more than plain values.
        """
        call = self._call(
            checked_key(key),
            fingerprint=None if fingerprint is None else of_value(fingerprint),
            codec=PLAIN if returns is None else Codec(returns),
            label=self._options.label or "attempt",
        )
        return AttemptBlock(self, call)

    def _call_of(
        self, key: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call:
        arguments, codec = known_of(function)
        bound = arguments.bind(args, kwargs)
        fingerprint = fingerprinter(self._options.fingerprint, arguments)(bound, args, kwargs)
        label = self._options.label or name_of(function)
        return self._call(checked_key(key), fingerprint=fingerprint, codec=codec, label=label)

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
        """The record of the key, if there is one."""
        return self._records().get(self._in(scope), key)

    def scan(self, *, scope: str | None = UNSET, status: Status | None = None) -> Iterator[Record]:
        """All records, or those of one scope or status, in the order of scope and key."""
        within = None if scope is UNSET else checked_scope(scope)
        return self._records().scan(
            within, any_scope=scope is UNSET, status=_checked_status(status)
        )

    def forget(self, key: str, *, scope: str | None = UNSET, force: bool = False) -> bool:
        """The key is as if it had never been used; whether it had been.

        A running or held record is only forgotten by force, and its attempt is lost.
        """
        return self._records().forget(self._in(scope), key, force=force)

    def resolve(
        self,
        key: str,
        *,
        scope: str | None = UNSET,
        result: object = MISSING,
        error: BaseException | None = None,
        retry: bool = False,
    ) -> bool:
        """A held record ends with this result or error, or may run again; False: it is not held."""
        ended = resolution(result=result, error=error, retry=retry, ttl=self._terms.ttl)
        return self._records().resolve(self._in(scope), key, ended)

    def purge(self, *, grace: Duration = 0, progress: Callable[[int], None] | None = None) -> int:
        """Records that expired longer ago than `grace` are gone; how many.

        `progress` hears the count after each batch.
        """
        return self._records().purge(_grace(grace), progress)

    async def get_async(self, key: str, *, scope: str | None = UNSET) -> Record | None:
        """The record of the key, if there is one."""
        return await self._records_async().get(self._in(scope), key)

    def scan_async(
        self, *, scope: str | None = UNSET, status: Status | None = None
    ) -> AsyncIterator[Record]:
        """All records, or those of one scope or status, in the order of scope and key."""
        within = None if scope is UNSET else checked_scope(scope)
        records = self._records_async()
        return records.scan(within, any_scope=scope is UNSET, status=_checked_status(status))

    async def forget_async(
        self, key: str, *, scope: str | None = UNSET, force: bool = False
    ) -> bool:
        """The key is as if it had never been used; whether it had been."""
        return await self._records_async().forget(self._in(scope), key, force=force)

    async def resolve_async(
        self,
        key: str,
        *,
        scope: str | None = UNSET,
        result: object = MISSING,
        error: BaseException | None = None,
        retry: bool = False,
    ) -> bool:
        """A held record ends with this result or error, or may run again; False: it is not held."""
        ended = resolution(result=result, error=error, retry=retry, ttl=self._terms.ttl)
        return await self._records_async().resolve(self._in(scope), key, ended)

    async def purge_async(
        self, *, grace: Duration = 0, progress: Callable[[int], None] | None = None
    ) -> int:
        """Records that expired longer ago than `grace` are gone; how many."""
        return await self._records_async().purge(_grace(grace), progress)

    def _records(self) -> Records:
        return Records(self.core, self.core.store)

    def _records_async(self) -> AsyncRecords:
        return AsyncRecords(self.core, self.core.store_async)

    # Markers and plain results

    def check(self, key: str, ttl: Duration | None = None) -> bool:
        """Whether the key is new: True for one caller until the ttl is over.

        While the store is down, True where calls fail open, else StoreError.
        """
        return self._markers().check(self._scope, key, self._lasting(ttl))

    def keep_result(self, key: str, value: object, ttl: Duration | None = None) -> None:
        """The plain value is kept under the key until the ttl is over."""
        self._markers().keep_result(self._scope, key, value, self._lasting(ttl))

    def read_result(self, key: str, default: Any = None) -> Any:
        """The plain value that was kept, or the default."""
        return self._markers().read_result(self._scope, key, default, self._terms)

    async def check_async(self, key: str, ttl: Duration | None = None) -> bool:
        """Whether the key is new: True for one caller until the ttl is over."""
        return await self._markers_async().check(self._scope, key, self._lasting(ttl))

    async def keep_result_async(self, key: str, value: object, ttl: Duration | None = None) -> None:
        """The plain value is kept under the key until the ttl is over."""
        await self._markers_async().keep_result(self._scope, key, value, self._lasting(ttl))

    async def read_result_async(self, key: str, default: Any = None) -> Any:
        """The plain value that was kept, or the default."""
        return await self._markers_async().read_result(self._scope, key, default, self._terms)

    def _markers(self) -> Markers:
        return Markers(self.core, self.core.store)

    def _markers_async(self) -> AsyncMarkers:
        return AsyncMarkers(self.core, self.core.store_async)

    def _lasting(self, ttl: Duration | None) -> Terms:
        return self._terms if ttl is None else self._options.having(fields={"ttl": ttl}).terms()

    # What HTTP, jobs and messages stand on

    @property
    def policy(self) -> Policy:
        """What was said about protection so far, and nothing that was not."""
        return self._options.policy

    @property
    def store(self) -> Store:
        """The store, for code that blocks."""
        return self.core.store

    @property
    def store_async(self) -> AsyncStore:
        """The store, for coroutines."""
        return self.core.store_async

    def having(self, **said: Any) -> Options:
        """The options of this view, with whatever is said in place of what was there."""
        return self._options.having(**said)

    def use(self, call: Call | None, terms: Terms) -> tuple[Core, bool, Call]:
        """The core, whether it protects, and the call; one without a key has one of its own."""
        if call is None:
            return self.core, False, Call(scope=None, key=token_hex(16), terms=terms)
        return self.core, self.active and not switched_off(), call

    def _in(self, scope: str | None) -> str | None:
        return self._scope if scope is UNSET else scope

    # The end

    def close(self) -> None:
        """The store's connections are closed. The next use opens new ones."""
        self.core.store.close()

    async def aclose(self) -> None:
        """The store's connections are closed. The next use opens new ones."""
        await self.core.store_async.aclose()
