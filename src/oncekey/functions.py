"""Protected functions: checks, scope and label, argument binding, options, and the wrappers."""

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


# Checks of the function to protect, and its name and scope.


def checked_function(function: object) -> Callable[..., Any]:
    """Return the function. Raise ConfigurationError if a call of it has no single result."""
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
    """Return whether calling it gives a coroutine, as far as inspection can tell."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    call = getattr(type(function), "__call__", None)  # noqa: B004 - to look at it, not to call it
    return not inspect.isroutine(function) and inspect.iscoroutinefunction(call)


def name_of(function: object) -> str:
    """Return the qualified name of the function, for messages and as label."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def scope_of(function: Callable[..., Any]) -> str:
    """Return module and qualified name, which are the default scope of a function.

    Raise ConfigurationError for a lambda, which has no name.
    """
    name = name_of(function)
    if "<lambda>" in name:
        msg = "a lambda has no name to keep its records under; give it one with scope=..."
        raise ConfigurationError(msg)
    return ".".join(escape(part) for part in (_module_of(function), name))


def _module_of(function: Callable[..., Any]) -> str:
    """Return the name of the function's module.

    For `__main__` return the name by which a worker imports it.
    """
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


# Binding of arguments to names, without the cost of `inspect` in every call.


_EMPTY = inspect.Parameter.empty
_RECEIVERS = ("self", "cls")


class Arguments:
    """The parameters of one function, to bind the arguments of its calls to names."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the signature. Raise ConfigurationError if the function has none."""
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
        """Return the name of the first parameter if it is `self` or `cls` of a method."""
        in_class = "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
        first = self.names[0] if self.names else ""
        return first if in_class and first in _RECEIVERS else None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return each parameter with its value, in the order of the signature, with defaults.

        Raise TypeError if the function cannot be called with these arguments.
        """
        return self._binder(*args, **kwargs)

    def _bind_first(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Bind with `inspect`: compiling a binder is not worth it for a single call."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self._binder = self._bind_second
        return dict(bound.arguments)

    def _bind_second(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self._binder = _binder_of(self._signature)
        self._binder.__qualname__ = self._function_name  # the name in Python's TypeError
        return self._binder(*args, **kwargs)

    def without_receiver(self, bound: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments without `self` or `cls`."""
        if self.receiver is None:
            return bound
        return {name: value for name, value in bound.items() if name != self.receiver}


def _binder_of(signature: inspect.Signature) -> Callable[..., dict[str, Any]]:
    """Compile a function with the same parameters that returns them by name.

    Python itself then binds the arguments, which costs less than `inspect`.
    """
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
    """A placeholder for a default value. Its repr is the code that looks the value up."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"defaults[{self._name!r}]"


# Arguments and codec of functions that are passed to `Once.run`, which are found out once.


class Known(NamedTuple):
    """The arguments of a function, and the codec of its results."""

    arguments: Arguments
    codec: Codec


_known: Final[WeakKeyDictionary[Callable[..., Any], Known]] = WeakKeyDictionary()


def known_of(function: Callable[..., Any]) -> Known:
    """Return the arguments and the codec of the function, found out at its first use."""
    try:
        known = _known.get(function)
    except TypeError:  # no hash or no weak reference: it cannot be cached
        return Known(Arguments(function), codec_of(function))
    if known is None:
        known = Known(Arguments(function), codec_of(function))
        _known[function] = known
    return known


# The options of one use of `Once`.


ALL: Final = "all arguments"
"""The selection of a fingerprint over every argument."""

UNSET: Final[Any] = object()

Selection = str | tuple[str, ...] | Callable[..., Any] | None
Fingerprint = Callable[[dict[str, Any], tuple[Any, ...], dict[str, Any]], str | None]


class Options(Struct, frozen=True, kw_only=True):
    """All options of a use but the key and the function. The scope is UNSET until it is given."""

    policy: Policy
    scope: Any = UNSET
    fingerprint: Any = ALL
    reconcile: Callable[[Any], Any] | None = None
    label: str | None = None
    reference: str = ""
    surface: Policy = FUNCTION
    kind: Literal["function", "job"] = "function"

    def terms(self) -> Terms:
        """Return the terms: the policy, completed by the defaults of the surface."""
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
        """Return a copy of the options with these changes.

        Raise ConfigurationError if one of them is not valid.
        """
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
    """Return the function that makes the fingerprint of a call, as the user selected it.

    Raise ConfigurationError if the selection is not valid.
    """
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
    """Return the result of a key function. An empty string means that the call is unprotected.

    Raise InvalidKeyError if it is not a string.
    """
    if isinstance(made, str):
        return made
    msg = f"the key function returned {type(made).__name__}; it must return a string"
    raise InvalidKeyError(msg)


# The wrappers of protected functions, for blocking functions and for coroutine functions.


P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
R = TypeVar("R")


class _Protected(Generic[P]):
    """The part that both wrappers share: it makes a `Call` of the arguments."""

    __wrapped__: Callable[P, Any]

    def __init__(
        self,
        once: Once,
        function: Callable[P, Any],
        key: str | Callable[..., str],
        options: Options,
    ) -> None:
        """Wrap the function. Raise ConfigurationError for mistakes in the key or the options."""
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
        """Return a text with the label and the scope of the function."""
        return f"<{type(self).__name__} {self._label} in scope {self._scope!r}>"

    def _bound(self, instance: object) -> Any:
        """Return the protected method, bound to the instance."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._receiver = (instance,)
        return bound

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key of a call with these arguments, empty if it would be unprotected."""
        return self._key_of(self._receiver + args, kwargs)

    def _key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self._template is not None:
            return self._template.fill(self._arguments.bind(args, kwargs))
        made = made_key(self._key(*args, **kwargs))
        return function_key(made) if made else ""

    def _call_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Return the call with these arguments, or None if its key is empty."""
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
        """Return the pattern of all calls.

        It is made at the first call, since annotations may name things that are defined later.
        """
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
    """A protected function that blocks. It is called like the function, and runs once per key."""

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Protected[P, R]: ...
    @overload
    def __get__(
        self: Protected[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> Protected[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the method bound to the instance, or on the class the function itself."""
        return self if instance is None else self._bound(instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function once for its key. Return its result, or the one that is kept."""
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
        """Call the function. Return its result, and whether the call is a duplicate."""
        given = self._receiver + args
        core, active, call = self._once.use(self._call_of(given, kwargs), self._terms)
        return run.perform(core.engine(), call, self._function, given, kwargs, active=active)

    def record(self, *args: P.args, **kwargs: P.kwargs) -> Record | None:
        """Return the record of a call with these arguments, or None if there is none."""
        return self._once.get(self._named(args, kwargs), scope=self._scope)

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget the call with these arguments. Return whether there was a record."""
        return self._once.forget(self._named(args, kwargs), scope=self._scope)


class AsyncProtected(_Protected[P], Generic[P, R]):
    """A protected coroutine function. It is called like the function, and runs once per key."""

    # `asyncio.iscoroutinefunction` and, from Python 3.12 on, `inspect` look for these.
    _is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", True)
    _is_coroutine_mark = getattr(inspect, "_is_coroutine_mark", None)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> AsyncProtected[P, R]: ...
    @overload
    def __get__(
        self: AsyncProtected[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> AsyncProtected[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the method bound to the instance, or on the class the function itself."""
        return self if instance is None else self._bound(instance)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function once for its key. Return its result, or the one that is kept."""
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
        """Call the function. Return its result, and whether the call is a duplicate."""
        given = self._receiver + args
        core, active, call = self._once.use(self._call_of(given, kwargs), self._terms)
        return await run_async.perform(
            core.engine_async(), call, self._function, given, kwargs, active=active
        )

    async def record(self, *args: P.args, **kwargs: P.kwargs) -> Record | None:
        """Return the record of a call with these arguments, or None if there is none."""
        return await self._once.get_async(self._named(args, kwargs), scope=self._scope)

    async def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget the call with these arguments. Return whether there was a record."""
        return await self._once.forget_async(self._named(args, kwargs), scope=self._scope)
