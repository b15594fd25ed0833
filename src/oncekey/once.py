"""Once: the front door. A plain name blocks; a name that ends in `_async` is a coroutine's."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable
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

from oncekey import attempt, attempt_async
from oncekey.core.call import Call
from oncekey.core.codec import PLAIN, Codec
from oncekey.core.fingerprint import of_value
from oncekey.core.key import checked_key, checked_scope
from oncekey.core.record import Record
from oncekey.duration import SECOND
from oncekey.engine.runtime import Core
from oncekey.entering import Entering
from oncekey.errors import ConfigurationError
from oncekey.known import known_of
from oncekey.marks import Marks
from oncekey.observe import Observer
from oncekey.observe.log import LogObserver
from oncekey.options import UNSET, Options, Selection, fingerprinter
from oncekey.policy import Policy, PolicyFields, from_environment
from oncekey.protected import AsyncProtected, Protected
from oncekey.records import Records
from oncekey.stores import AsyncStore, Store
from oncekey.switch import off_in_environment
from oncekey.target import checked_function, is_async, name_of

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


class Once(Records, Marks):
    """Makes what arrives twice happen once.

    >>> once = Once("memory://")
    >>> once.run("greeting", lambda: "hello")
    'hello'
    >>> once.run("greeting", lambda: "hello again")
    'hello'
    """

    def __init__(  # noqa: PLR0913 - each is a setting of its own, and all have defaults
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
        self._core = Core(store, told, cache, self.prefix)
        self._terms = self._options.terms()
        if doctor is not None:
            from oncekey.doctor.at_start import AtStart  # noqa: PLC0415 - few ask for it

            self._core.doctor = AtStart(doctor, self._core.given, ttl=self._terms.ttl / SECOND)

    # Protecting functions

    def __call__(  # noqa: PLR0913 - each is an option of its own, and all have defaults
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

        def decorate(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - one of the two colours
            kind = AsyncProtected if is_async(function) else Protected
            return kind(self, checked_function(function), key, options)

        return cast("Decorator", decorate)

    def options(  # noqa: PLR0913 - each is an option of its own, and all have defaults
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
        done = attempt.perform(core.engine(), call, function, args, kwargs, active=active)
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
        done = await attempt_async.perform(
            core.engine_async(), call, function, args, kwargs, active=active
        )
        return cast("T", done.value)

    def attempt(self, key: str, *, fingerprint: object = None, returns: object = None) -> Entering:
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
        return Entering(self, call)

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

    # The end

    def close(self) -> None:
        """The store's connections are closed. The next use opens new ones."""
        self._core.store.close()

    async def aclose(self) -> None:
        """The store's connections are closed. The next use opens new ones."""
        await self._core.store_async.aclose()
