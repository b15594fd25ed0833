"""Plugin of pytest: the function of every Celery task is under our decorator."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery import Celery  # type: ignore[import-untyped]  # celery has no types

from oncekey import Once
from oncekey.errors import ConfigurationError
from oncekey.jobs.celery import once_task

from .mode import BARE, MODE, fresh_key, note, store


def install() -> None:
    """Decorate each function where an application makes a task of it."""
    once = store()
    # Celery's tests count threads, so ours starts before the first of them.
    Once("memory://")("first", scope="outside")(fresh_key)()
    make = Celery._task_from_fun
    protected: dict[Callable[..., Any], Callable[..., Any]] = {}

    def make_protected(self: Celery, fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if fun not in protected:
            protected[fun] = fun
            with suppress(ConfigurationError):  # it refuses what is no plain function
                protected[fun] = once_task(once)(fun)
                note("wrapped")
        return make(self, protected[fun], *args, **options)

    Celery._task_from_fun = make_protected


if MODE != BARE:
    install()
