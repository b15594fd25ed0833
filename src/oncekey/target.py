"""The function that is to be protected: what it may be, and what it is called."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oncekey.core.key import escape
from oncekey.errors import ConfigurationError


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
