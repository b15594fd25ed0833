"""Protected functions: checks, scope and label, argument binding, options, and what is returned."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FunctionType, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
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
from oncekey.core.key import (
    ArgumentPath,
    Template,
    checked_scope,
    escape,
    function_key,
    readable,
    without_placeholder,
)
from oncekey.core.record import Record
from oncekey.engine import run, run_async
from oncekey.engine.run_base import Outcome
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.policy import FUNCTION, Policy, PolicyFields, Terms, policy_of, terms

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


def is_blocking(function: Any) -> bool:
    """Return whether calling it gives no coroutine, as far as inspection can tell.

    A lambda, a wrapper of a coroutine function and a function with an annotation that promises an
    awaitable may give one.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if is_async(function):
        return False
    function = inspect.unwrap(getattr(function, "__func__", function))
    if is_async(function) or not inspect.isfunction(function) or function.__name__ == "<lambda>":
        return False
    promised = str(function.__annotations__.get("return", ""))
    return not any(word in promised for word in ("Awaitable", "Coroutine", "Future", "Task"))


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

    For `__main__`, and for what multiprocessing makes of it in a child, return the name by which a
    worker imports it.
    """
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__module__", None) or type(function).__module__
    if module not in ("__main__", "__mp_main__"):
        return module
    main = sys.modules.get(module)
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
        self.bind: Callable[..., dict[str, Any]] = self._bind_first
        """Return each parameter of a call with its value, in the order of the signature.

        Defaults are filled in. Raise TypeError if the function cannot be called like this.
        """

    def _receiver(self, function: Callable[..., Any]) -> str | None:
        """Return the name of the first parameter if it is `self` or `cls` of a method."""
        in_class = "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
        first = self.names[0] if self.names else ""
        return first if in_class and first in _RECEIVERS else None

    def _bind_first(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Bind with `inspect`: compiling a binder is not worth it for a single call."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self.bind = self._bind_second
        return dict(bound.arguments)

    def _bind_second(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.bind = _binder_of(self._signature)
        self.bind.__qualname__ = self._function_name  # the name in Python's TypeError
        return self.bind(*args, **kwargs)

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
        said = policy_of(fields) if fields else Policy()
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


# Protected functions. The decorator returns a real function, which is what frameworks look for; the
# two Protocols are what type checkers see of it.


P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
R = TypeVar("R")


class Protected(Protocol[P, R]):
    """A protected function that blocks. It is called like the function, and runs once per key."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, R]

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Protected[P, R]: ...
    @overload
    def __get__(
        self: Protected[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> Protected[Q, R]: ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function once for its key. Return its result, or the one that is kept."""
        ...

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key of a call with these arguments, empty if it would be unprotected."""
        ...

    def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[R]:
        """Call the function. Return its result, and whether the call is a duplicate."""
        ...

    def record(self, *args: P.args, **kwargs: P.kwargs) -> Record | None:
        """Return the record of a call with these arguments, or None if there is none."""
        ...

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget the call with these arguments. Return whether there was a record."""
        ...


class AsyncProtected(Protocol[P, R]):
    """A protected coroutine function. It is called like the function, and runs once per key."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, Coroutine[Any, Any, R]]

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> AsyncProtected[P, R]: ...
    @overload
    def __get__(
        self: AsyncProtected[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> AsyncProtected[Q, R]: ...

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function once for its key. Return its result, or the one that is kept."""
        ...

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key of a call with these arguments, empty if it would be unprotected."""
        ...

    async def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[R]:
        """Call the function. Return its result, and whether the call is a duplicate."""
        ...

    async def record(self, *args: P.args, **kwargs: P.kwargs) -> Record | None:
        """Return the record of a call with these arguments, or None if there is none."""
        ...

    async def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget the call with these arguments. Return whether there was a record."""
        ...


ATTRIBUTES: Final = ("key", "outcome", "record", "forget")
"""The attributes that a protected function has beside those of the plain one."""


def protect(once: Once, function: Any, key: str | Callable[..., str], options: Options) -> Any:
    """Return the protected function. Raise ConfigurationError for mistakes in key or options.

    A class method stays a class method, and a static method a static method.
    """
    if isinstance(function, staticmethod):
        return staticmethod(protect(once, function.__func__, key, options))
    if isinstance(function, classmethod):
        return _ClassMethod(protect(once, function.__func__, key, options))
    kind = _AsyncProtection if is_async(function) else _BlockingProtection
    protection = kind(once, checked_function(function), key, options)
    protected: Any = functools.wraps(function)(protection.wrapper())
    if not hasattr(function, "__name__"):  # a partial, or an object that can be called
        protected.__name__ = protected.__qualname__ = name_of(function)
    protected.__oncekey__ = protection
    for name in ATTRIBUTES:
        setattr(protected, name, getattr(protection, name))
    _bind_in_class(protected)
    return protected


class _Protection:
    """What a protected function and its attributes share. It makes a `Call` of the arguments."""

    def __init__(
        self,
        once: Once,
        function: Callable[..., Any],
        key: str | Callable[..., str],
        options: Options,
    ) -> None:
        self._once = once
        self._function = function
        self._arguments = Arguments(function)
        self._template = Template(key, self._arguments.names) if isinstance(key, str) else None
        self._key = cast("Callable[..., str]", key)
        self._fingerprint = fingerprinter(options.fingerprint, self._arguments)
        self._options = options
        self._terms = options.terms()
        self._scope: str | None = scope_of(function) if options.scope is UNSET else options.scope
        self._label = options.label or name_of(function)
        self._pattern: Call | None = None

    def key(self, /, *args: Any, **kwargs: Any) -> str:
        if self._template is not None:
            return self._template.fill(self._arguments.bind(*args, **kwargs))
        made = made_key(self._key(*args, **kwargs))
        return function_key(without_placeholder(made)) if made else ""

    def _call_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Return the call with these arguments, or None if its key is empty."""
        bound = self._arguments.bind(*args, **kwargs)
        template = self._template
        key = self.key(*args, **kwargs) if template is None else template.fill(bound)
        if not key:
            return None
        if self._pattern is None:
            self._pattern = self._made_pattern()
        fingerprint = self._fingerprint(bound, args, kwargs)
        return replace(self._pattern, key=key, fingerprint=fingerprint)

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
        key = self.key(*args, **kwargs)
        if not key:
            msg = "the key function gave an empty key for these arguments: there is no record"
            raise ConfigurationError(msg)
        return key


class _BlockingProtection(_Protection):
    def wrapper(self) -> Callable[..., Any]:
        once, terms, call_of, function = self._once, self._terms, self._call_of, self._function

        def protected(*args: Any, **kwargs: Any) -> Any:
            core, active, call = once.use(call_of(args, kwargs), terms)
            engine = core.engine()
            ticket = run.admit(engine, call, active=active)
            if ticket.duplicate:
                return served(ticket.record, call)
            return run.live(engine, ticket, function, args, kwargs)

        return protected

    def outcome(self, /, *args: Any, **kwargs: Any) -> Any:
        core, active, call = self._once.use(self._call_of(args, kwargs), self._terms)
        return run.perform(core.engine(), call, self._function, args, kwargs, active=active)

    def record(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._once.get(self._named(args, kwargs), scope=self._scope)

    def forget(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._once.forget(self._named(args, kwargs), scope=self._scope)


class _AsyncProtection(_Protection):
    def wrapper(self) -> Callable[..., Any]:
        once, terms, call_of, function = self._once, self._terms, self._call_of, self._function

        async def protected(*args: Any, **kwargs: Any) -> Any:
            core, active, call = once.use(call_of(args, kwargs), terms)
            engine = core.engine_async()
            ticket = await run_async.admit(engine, call, active=active)
            if ticket.duplicate:
                return served(ticket.record, call)
            return await run_async.live(engine, ticket, function, args, kwargs)

        return protected

    async def outcome(self, /, *args: Any, **kwargs: Any) -> Any:
        core, active, call = self._once.use(self._call_of(args, kwargs), self._terms)
        return await run_async.perform(
            core.engine_async(), call, self._function, args, kwargs, active=active
        )

    async def record(self, /, *args: Any, **kwargs: Any) -> Any:
        return await self._once.get_async(self._named(args, kwargs), scope=self._scope)

    async def forget(self, /, *args: Any, **kwargs: Any) -> Any:
        return await self._once.forget_async(self._named(args, kwargs), scope=self._scope)


# Protected methods. `shop.charge.outcome(order)` must know the shop. Python's bound method hands on
# the attributes of the function, which does not know it, and functions cannot be told how to bind.
# So when the class is complete, its protected functions are put into descriptors.


class _BoundMethod:
    """A protected method of one object: a method to `inspect`, whose attributes know the object."""

    __slots__ = ("__func__", "__self__", "__weakref__")

    __class__ = cast("Any", property(lambda _self: MethodType))  # pyright: ignore[reportIncompatibleMethodOverride]  # only read, by `isinstance`
    __doc__ = cast("Any", property(lambda self: self.__func__.__doc__))
    __module__ = cast("Any", property(lambda self: self.__func__.__module__))

    def __init__(self, function: Callable[..., Any], receiver: object) -> None:
        self.__func__ = function
        self.__self__ = receiver

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__func__, name)
        return MethodType(found, self.__self__) if name in ATTRIBUTES else found

    def __eq__(self, other: object) -> bool:
        if type(other) is not _BoundMethod:
            return NotImplemented
        return self.__func__ is other.__func__ and self.__self__ is other.__self__

    def __hash__(self) -> int:
        return hash((self.__func__, id(self.__self__)))

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.__self__, self.__func__.__name__)

    def __repr__(self) -> str:
        return repr(MethodType(self.__func__, self.__self__))


class _Method:
    """A protected function in a class: a function to `inspect`, which binds as it must."""

    __slots__ = ("__func__",)

    __class__ = cast("Any", property(lambda _self: FunctionType))  # pyright: ignore[reportIncompatibleMethodOverride]  # only read, by `isinstance`

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__func__ = function

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self.__func__ if instance is None else _BoundMethod(self.__func__, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "__func__"), name)


class _ClassMethod(classmethod):  # type: ignore[type-arg]  # it takes none at run time
    """A protected class method, which binds as it must."""

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return _BoundMethod(self.__func__, type(instance) if owner is None else owner)


class _ClassHook:
    """Put into the body of a class: Python calls `__set_name__` when the class is complete."""

    name: Final = "__oncekey_hook__"

    def __set_name__(self, owner: type, name: str) -> None:
        type.__delattr__(owner, name)
        for attribute, value in tuple(vars(owner).items()):
            if type(value) is FunctionType and hasattr(value, "__oncekey__"):
                type.__setattr__(owner, attribute, _Method(value))
            elif type(value) is classmethod and hasattr(value.__func__, "__oncekey__"):
                type.__setattr__(owner, attribute, _ClassMethod(value.__func__))


def _bind_in_class(function: Callable[..., Any]) -> None:
    """Put a hook into the body of the class in which the function is being defined, if any."""
    owner = function.__qualname__.rpartition(".")[0]
    frame = inspect.currentframe() if owner else None
    while frame is not None:
        in_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if not in_function and frame.f_locals.get("__qualname__") == owner:
            frame.f_locals[_ClassHook.name] = _ClassHook()
            return
        frame = frame.f_back
