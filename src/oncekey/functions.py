"""Functions that are protected: what they may be, how their arguments get names, their options."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    cast,
    overload,
)
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from oncekey.core.call import Call
from oncekey.core.codec import Codec, codec_of
from oncekey.core.decide import served
from oncekey.core.fingerprint import of_arguments, of_value
from oncekey.core.key import ArgumentPath, Template, checked_scope, escape, function_key, readable
from oncekey.core.record import Record
from oncekey.engine import run, run_async
from oncekey.engine.run_base import Outcome
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.policy import FUNCTION, Policy, PolicyFields, Terms, terms

if TYPE_CHECKING:
    from oncekey.once import Once


# The function that is to be protected: what it may be, and what it is called.


def checked_function(function: object) -> Callable[..., Any]:
    """The function itself, if a call of it has one result to keep."""
    if isinstance(function, type):
        msg = f"{function.__name__} is a class; protect a function or one of its methods"
        raise ConfigurationError(msg)
    if isinstance(function, (staticmethod, classmethod)):
        msg = f"put @{type(function).__name__} above the oncekey decorator, not below it"
        raise ConfigurationError(msg)
    if not callable(function):
        msg = f"a function must be given to protect, but {function!r} cannot be called"
        raise ConfigurationError(msg)
    if any(map(_generates, (function, getattr(type(function), "__call__", None)))):  # noqa: B004 - to look at it, not to call it
        msg = f"{name_of(function)} is a generator, which has no single result; return a list"
        raise ConfigurationError(msg)
    return function


def _generates(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine, as far as that can be seen."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    call = getattr(type(function), "__call__", None)  # noqa: B004 - to look at it, not to call it
    return not inspect.isroutine(function) and inspect.iscoroutinefunction(call)


def name_of(function: object) -> str:
    """The name of the function, for people and as label."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def scope_of(function: Callable[..., Any]) -> str:
    """Module and qualified name: the scope of a function that was given none."""
    name = name_of(function)
    if "<lambda>" in name:
        msg = "a lambda has no name to keep its records under; give it one with scope=..."
        raise ConfigurationError(msg)
    return ".".join(escape(part) for part in (_module_of(function), name))


def _module_of(function: Callable[..., Any]) -> str:
    """The module's name, also when it is the program itself: a worker imports it by that name."""
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__module__", None) or type(function).__module__
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        name: str = spec.name
        return name.removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else module


# The arguments of a call by name, without the cost of `inspect` at every call.


_EMPTY = inspect.Parameter.empty
_RECEIVERS = ("self", "cls")


class Arguments:
    """How the arguments of one function get their names."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """The signature is read once."""
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):
            msg = f"{function!r} has no signature to read; wrap it in a function that has one"
            raise ConfigurationError(msg) from None
        parameters = self._signature.parameters
        self.names = tuple(parameters)
        self.receiver = self._receiver(function)
        self._function_name: str = getattr(function, "__qualname__", type(function).__qualname__)
        self._binder: Callable[..., dict[str, Any]] = self._bind_first

    def _receiver(self, function: Callable[..., Any]) -> str | None:
        """The parameter that is the object of a method, which is no argument of the operation."""
        in_class = "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
        first = self.names[0] if self.names else ""
        return first if in_class and first in _RECEIVERS else None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Every parameter with its value, in the order of the signature, defaults included.

        TypeError when the function could not be called like this.
        """
        return self._binder(*args, **kwargs)

    def _bind_first(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Many a function is called only once, and not worth a binder of its own."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self._binder = self._bind_second
        return dict(bound.arguments)

    def _bind_second(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self._binder = _binder_of(self._signature)
        self._binder.__qualname__ = self._function_name  # as Python names it when it cannot bind
        return self._binder(*args, **kwargs)

    def without_receiver(self, bound: dict[str, Any]) -> dict[str, Any]:
        """What the operation is about: the arguments without `self` or `cls`."""
        if self.receiver is None:
            return bound
        return {name: value for name, value in bound.items() if name != self.receiver}


def _binder_of(signature: inspect.Signature) -> Callable[..., dict[str, Any]]:
    """A function of the same parameters that gives them back by name: Python itself binds them."""
    given = signature.parameters.values()
    defaults = {one.name: one.default for one in given if one.default is not _EMPTY}
    bare = [
        one.replace(
            annotation=_EMPTY, default=_Default(one.name) if one.name in defaults else _EMPTY
        )
        for one in given
    ]
    parameters = signature.replace(parameters=bare, return_annotation=_EMPTY)
    by_name = ", ".join(f"{one.name!r}: {one.name}" for one in given)
    made: dict[str, Any] = {"defaults": defaults}
    exec(f"def call{parameters}: return {{{by_name}}}", made)  # noqa: S102 - names of a signature
    binder: Callable[..., dict[str, Any]] = made["call"]
    return binder


class _Default:
    """Stands where a default does while a signature is written down."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"defaults[{self._name!r}]"


# What need not be found out again about a function that is run by hand.


class Known(NamedTuple):
    """How its arguments are named and its results kept."""

    arguments: Arguments
    codec: Codec


_known: Final[WeakKeyDictionary[Callable[..., Any], Known]] = WeakKeyDictionary()


def known_of(function: Callable[..., Any]) -> Known:
    """What is known about the function, found out at its first use."""
    try:
        known = _known.get(function)
    except TypeError:  # it cannot be remembered: no hash, or no weak reference
        return Known(Arguments(function), codec_of(function))
    if known is None:
        known = Known(Arguments(function), codec_of(function))
        _known[function] = known
    return known


# What can be said about a use of `Once`, and what it comes to.


ALL: Final = "all arguments"
"""The fingerprint covers every argument."""

UNSET: Final[Any] = object()

Selection = str | tuple[str, ...] | Callable[..., Any] | None
Fingerprint = Callable[[dict[str, Any], tuple[Any, ...], dict[str, Any]], str | None]


class Options(Struct, frozen=True, kw_only=True):
    """Everything but the key and the function. The scope is UNSET until somebody sets it."""

    policy: Policy
    scope: Any = UNSET
    fingerprint: Any = ALL
    reconcile: Callable[[Any], Any] | None = None
    label: str | None = None
    reference: str = ""
    surface: Policy = FUNCTION
    kind: Literal["function", "job"] = "function"

    def terms(self) -> Terms:
        """The policy with every blank filled in, at last by what holds on this surface."""
        return terms(self.policy.over(self.surface))

    def having(
        self,
        *,
        policy: Policy | None = None,
        scope: Any = UNSET,
        fingerprint: Any = UNSET,
        reconcile: Callable[[Any], Any] | None = None,
        label: str | None = None,
        reference: str | None = None,
        fields: PolicyFields | None = None,
    ) -> Options:
        """These options, with whatever is given in place of what was there."""
        said = Policy(**fields) if fields else Policy()
        if policy is not None:
            if not isinstance(policy, Policy):
                msg = f"policy must be a Policy, but it is {policy!r}"
                raise ConfigurationError(msg)
            said = said.over(policy)
        if reconcile is not None and not callable(reconcile):
            msg = f"reconcile must be a function of the record, but it is {reconcile!r}"
            raise ConfigurationError(msg)
        for name, text in (("label", label), ("reference", reference)):
            if text is not None and not isinstance(text, str):
                msg = f"{name} must be a string, but it is {text!r}"
                raise ConfigurationError(msg)
        return replace(
            self,
            policy=said.over(self.policy),
            scope=self.scope if scope is UNSET else checked_scope(scope),
            fingerprint=self.fingerprint if fingerprint is UNSET else fingerprint,
            reconcile=self.reconcile if reconcile is None else reconcile,
            label=self.label if label is None else readable(label),
            reference=self.reference if reference is None else readable(reference),
        )


def fingerprinter(selection: object, arguments: Arguments) -> Fingerprint:
    """How the fingerprint of a call is made, told by what the user chose."""
    if selection is None:
        return lambda _bound, _args, _kwargs: None
    if selection == ALL and arguments.receiver is None:
        return lambda bound, _args, _kwargs: of_arguments(bound)
    if selection == ALL:
        return lambda bound, _args, _kwargs: of_arguments(arguments.without_receiver(bound))
    if isinstance(selection, tuple) and all(isinstance(path, str) for path in selection):
        paths = [ArgumentPath(path, arguments.names, "the fingerprint") for path in selection]
        return lambda bound, _args, _kwargs: of_arguments(
            {path.text: path.of(bound) for path in paths}
        )
    if callable(selection):
        return lambda _bound, args, kwargs: _of_chosen(selection(*args, **kwargs))
    msg = (
        'fingerprint must be a tuple of paths such as ("order.id", "order.total"), a function of '
        f"the arguments, or None, but it is {selection!r}"
    )
    raise ConfigurationError(msg)


def _of_chosen(value: object) -> str | None:
    return None if value is None else of_value(value)


def made_key(made: object) -> str:
    """What a key function returned; an empty string stands for "run, unprotected"."""
    if isinstance(made, str):
        return made
    msg = f"the key function returned {type(made).__name__}; it must return a string"
    raise InvalidKeyError(msg)


# A protected function: called like the one it wraps, and run once per key. Two colours.


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

    def _bound(self, instance: object) -> Any:
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
        ticket = run.admit(engine, call, active=active)
        if ticket.duplicate:
            first: R = served(ticket.record, call)
            return first
        value: R = run.live(engine, ticket, self._function, given, kwargs)
        return value

    def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[R]:
        """The result, and whether it is a duplicate's."""
        given = self._receiver + args
        core, active, call = self._once.use(self._call_of(given, kwargs), self._terms)
        return run.perform(core.engine(), call, self._function, given, kwargs, active=active)

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
        ticket = await run_async.admit(engine, call, active=active)
        if ticket.duplicate:
            first: R = served(ticket.record, call)
            return first
        value: R = await run_async.live(engine, ticket, self._function, given, kwargs)
        return value

    async def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[R]:
        """The result, and whether it is a duplicate's."""
        given = self._receiver + args
        core, active, call = self._once.use(self._call_of(given, kwargs), self._terms)
        return await run_async.perform(
            core.engine_async(), call, self._function, given, kwargs, active=active
        )

    async def record(self, *args: P.args, **kwargs: P.kwargs) -> Record | None:
        """The record of a call with these arguments, if there is one."""
        return await self._once.get_async(self._named(args, kwargs), scope=self._scope)

    async def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """A call with these arguments is as if it had never been made; whether it had been."""
        return await self._once.forget_async(self._named(args, kwargs), scope=self._scope)
