"""The parameters of a task: which ones a message brings, and which ones Taskiq injects."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from taskiq_dependencies.dependency import Dependency

from oncekey.functions import Arguments


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature with its annotations as Taskiq reads them, for they may tell a dependency."""
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001 - annotations are arbitrary code, and Taskiq complains itself
        return inspect.signature(function)


def injected(signature: inspect.Signature) -> frozenset[str]:
    """The parameters that Taskiq fills in, which say nothing about what the job is."""
    return frozenset(name for name, one in signature.parameters.items() if _is_injected(one))


def arguments_of_messages(function: Callable[..., Any]) -> Arguments:
    """How the arguments that are sent get their names."""
    whole = signature_of(function)
    left_out = injected(whole)
    sent = [one for name, one in whole.parameters.items() if name not in left_out]

    def stand_in() -> None:
        """Nothing but its signature matters."""

    stand_in.__signature__ = whole.replace(parameters=sent)  # type: ignore[attr-defined]  # functions have it
    return Arguments(stand_in)


def _is_injected(parameter: inspect.Parameter) -> bool:
    said = (parameter.default, *getattr(parameter.annotation, "__metadata__", ()))
    return any(isinstance(one, Dependency) or _of_fastapi(one) for one in said)


def _of_fastapi(value: object) -> bool:
    """Taskiq takes the dependencies of FastAPI too."""
    return type(value).__module__ == "fastapi.params" and type(value).__name__ == "Depends"
