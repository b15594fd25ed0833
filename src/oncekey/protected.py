"""A protected function: called like the one it wraps, and run once per key. Two colours."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from msgspec.structs import replace

from oncekey import attempt, attempt_async
from oncekey.arguments import Arguments
from oncekey.attempt_base import Outcome
from oncekey.core.call import Call
from oncekey.core.codec import codec_of
from oncekey.core.decide import served
from oncekey.core.key import Template, function_key
from oncekey.core.record import Record
from oncekey.errors import ConfigurationError
from oncekey.options import UNSET, Options, fingerprinter, made_key
from oncekey.target import name_of, scope_of

if TYPE_CHECKING:
    from oncekey.once import Once

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
R = TypeVar("R")


class _Protected(Generic[P]):
    """What both colours share: from arguments to a call."""

    __wrapped__: Callable[P, Any]

    def __init__(
        self,
        once: Once,
        function: Callable[P, Any],
        key: str | Callable[..., str],
        options: Options,
    ) -> None:
        """Every mistake that can be seen without calling the function shows now."""
        self._once = once
        self._function = function
        self._receiver: tuple[Any, ...] = ()
        self._arguments = Arguments(function)
        self._template = Template(key, self._arguments.names) if isinstance(key, str) else None
        self._key = cast("Callable[..., str]", key)
        self._fingerprint = fingerprinter(options.fingerprint, self._arguments)
        self._options = options
        self._terms = options.terms()
        self._scope: str | None = scope_of(function) if options.scope is UNSET else options.scope
        self._label = options.label or name_of(function)
        self._pattern: list[Call] = []  # the methods of all instances share it
        functools.update_wrapper(cast("Callable[..., Any]", self), function)

    def __repr__(self) -> str:
        """The function's name and scope."""
        return f"<{type(self).__name__} {self._label} in scope {self._scope!r}>"

    def _bound(self, instance: object) -> Any:  # noqa: ANN401 - a method of the same class
        """The method of that instance."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._receiver = (instance,)
        return bound

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key of a call with these arguments; empty when it would run unprotected."""
        return self._key_of(self._receiver + args, kwargs)

    def _key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self._template is not None:
            return self._template.fill(self._arguments.bind(args, kwargs))
        made = made_key(self._key(*args, **kwargs))
        return function_key(made) if made else ""

    def _call_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """The call with these arguments; None when its key is empty."""
        bound = self._arguments.bind(args, kwargs)
        template = self._template
        key = self._key_of(args, kwargs) if template is None else template.fill(bound)
        if not key:
            return None
        if not self._pattern:
            self._pattern.append(self._made_pattern())
        fingerprint = self._fingerprint(bound, args, kwargs)
        return replace(self._pattern[0], key=key, fingerprint=fingerprint)

    def _made_pattern(self) -> Call:
        """What all calls are like, made at the first: annotations may name what comes later."""
        return Call(
            scope=self._scope,
            key="",
            terms=self._terms,
            label=self._label,
            reference=self._options.reference,
            surface=self._options.kind,
            codec=codec_of(self._function),
            reconcile=self._options.reconcile,
        )

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        key = self._key_of(self._receiver + args, kwargs)
        if not key:
            msg = "the key function gave an empty key for these arguments: there is no record"
            raise ConfigurationError(msg)
        return key


class Protected(_Protected[P], Generic[P, R]):
    """A protected function that blocks."""

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Protected[P, R]: ...
    @overload
    def __get__(
        self: Protected[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> Protected[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """On an instance, the method of that instance; on the class, the function."""
        return self if instance is None else self._bound(instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of the function, which ran now or before."""
        given = self._receiver + args
        core, active, call = self._once.use(self._call_of(given, kwargs), self._terms)
        engine = core.engine()
        ticket = attempt.admit(engine, call, active=active)
        if ticket.duplicate:
            first: R = served(ticket.record, call)
            return first
        value: R = attempt.run(engine, ticket, self._function, given, kwargs)
        return value

    def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[R]:
        """The result, and whether it is a duplicate's."""
        given = self._receiver + args
        core, active, call = self._once.use(self._call_of(given, kwargs), self._terms)
        return attempt.perform(core.engine(), call, self._function, given, kwargs, active=active)

    def record(self, *args: P.args, **kwargs: P.kwargs) -> Record | None:
        """The record of a call with these arguments, if there is one."""
        return self._once.get(self._named(args, kwargs), scope=self._scope)

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """A call with these arguments is as if it had never been made; whether it had been."""
        return self._once.forget(self._named(args, kwargs), scope=self._scope)


class AsyncProtected(_Protected[P], Generic[P, R]):
    """A protected coroutine function."""

    # What `asyncio.iscoroutinefunction` and, from Python 3.12 on, `inspect` look for.
    _is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", True)
    _is_coroutine_mark = getattr(inspect, "_is_coroutine_mark", None)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> AsyncProtected[P, R]: ...
    @overload
    def __get__(
        self: AsyncProtected[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> AsyncProtected[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """On an instance, the method of that instance; on the class, the function."""
        return self if instance is None else self._bound(instance)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of the function, which ran now or before."""
        given = self._receiver + args
        core, active, call = self._once.use(self._call_of(given, kwargs), self._terms)
        engine = core.engine_async()
        ticket = await attempt_async.admit(engine, call, active=active)
        if ticket.duplicate:
            first: R = served(ticket.record, call)
            return first
        value: R = await attempt_async.run(engine, ticket, self._function, given, kwargs)
        return value

    async def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[R]:
        """The result, and whether it is a duplicate's."""
        given = self._receiver + args
        core, active, call = self._once.use(self._call_of(given, kwargs), self._terms)
        return await attempt_async.perform(
            core.engine_async(), call, self._function, given, kwargs, active=active
        )

    async def record(self, *args: P.args, **kwargs: P.kwargs) -> Record | None:
        """The record of a call with these arguments, if there is one."""
        return await self._once.get_async(self._named(args, kwargs), scope=self._scope)

    async def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """A call with these arguments is as if it had never been made; whether it had been."""
        return await self._once.forget_async(self._named(args, kwargs), scope=self._scope)
