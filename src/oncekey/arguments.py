"""The arguments of a call by name, without the cost of `inspect` at every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from oncekey.errors import ConfigurationError

_EMPTY = inspect.Parameter.empty
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
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
        self._simple = all(one.kind in _BY_NAME for one in parameters.values())
        self._defaults = {
            name: one.default for name, one in parameters.items() if one.default is not _EMPTY
        }
        self._positional = sum(
            one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for one in parameters.values()
        )

    def _receiver(self, function: Callable[..., Any]) -> str | None:
        """The parameter that is the object of a method, which is no argument of the operation."""
        in_class = "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
        first = self.names[0] if self.names else ""
        return first if in_class and first in _RECEIVERS else None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Every parameter with its value, in the order of the signature, defaults included.

        TypeError when the function could not be called like this.
        """
        if self._simple and not kwargs and len(args) == len(self.names) == self._positional:
            return dict(zip(self.names, args))  # noqa: B905 - they are as many, and it is faster
        if self._simple and len(args) <= self._positional:
            bound = {**self._defaults, **kwargs, **dict(zip(self.names, args, strict=False))}
            # As many names as parameters and arguments: nothing missing, unknown or given twice.
            if len(bound) == len(self.names) and self._each_once(args, kwargs):
                return {name: bound[name] for name in self.names}
        slow = self._signature.bind(*args, **kwargs)
        slow.apply_defaults()
        return dict(slow.arguments)

    def _each_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not kwargs:
            return True
        rest = self.names[len(args) :]
        return all(name in rest for name in kwargs)

    def without_receiver(self, bound: dict[str, Any]) -> dict[str, Any]:
        """What the operation is about: the arguments without `self` or `cls`."""
        if self.receiver is None:
            return bound
        return {name: value for name, value in bound.items() if name != self.receiver}
