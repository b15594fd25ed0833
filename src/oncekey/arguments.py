"""The arguments of a call by name, without the cost of `inspect` at every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from oncekey.errors import ConfigurationError

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
