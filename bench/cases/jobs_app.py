"""The Celery app of the benchmark: its worker imports it, and so does whoever measures it."""

from __future__ import annotations

import os
import warnings
from typing import Any, Final

import redis
from celery import Celery  # type: ignore[import-untyped]  # celery has no types

from oncekey import Once
from oncekey.jobs import by_fields
from oncekey.jobs.celery import OnceTask, once_task

ADDRESS: Final = "ONCEKEY_BENCH_REDIS"
"""Where the environment names the server, without a database."""
READY, GO, DONE = "bench:ready", "bench:go", "bench:done"


def make(address: str) -> tuple[Celery, Once]:
    """Every setting of Celery at its default, without a result back end. One server for all."""
    app = Celery("bench", broker=f"{address}/1", set_as_current=False)
    app.conf.update(
        ONCE={
            "backend": "celery_once.backends.Redis",
            "settings": {"url": f"{address}/2", "default_timeout": 3600},
        },
        singleton_backend_url=f"{address}/3",
        singleton_lock_expiry=3600,
        broker_connection_retry_on_startup=True,
    )
    once = Once(f"{address}/0", cache=False)
    signals = redis.Redis.from_url(f"{address}/0", socket_timeout=None)

    def nothing(order: str) -> None:
        """The job that is measured."""

    def wait() -> None:
        signals.rpush(READY, "")
        signals.blpop([GO])

    def end() -> None:
        signals.rpush(DONE, "")

    app.task(nothing, name="bare", shared=False)
    app.task(once_task(once)(nothing), name="protected", shared=False)
    app.task(wait, name="wait", shared=False)
    app.task(end, name="end", shared=False)
    app.task(
        nothing,
        name="ours",
        base=OnceTask,
        once=once,
        once_enqueue=by_fields("order"),
        shared=False,
    )
    for name, base, options in _peers():
        app.task(nothing, name=name, base=base, shared=False, **options)
    app.finalize()
    return app, once


def _peers() -> list[tuple[str, type, dict[str, Any]]]:
    """Return the peers that are installed; a worker needs none of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns when it first compiles celery-once
        try:
            from celery_once import QueueOnce  # type: ignore[import-untyped]  # it brings no types
            from celery_singleton import (  # type: ignore[import-untyped]  # it brings no types
                Singleton,
            )
        except ImportError:
            return []
    return [
        ("celery-singleton", Singleton, {"unique_on": ["order"]}),
        ("celery-once", QueueOnce, {"once": {"graceful": True, "keys": ["order"]}}),
    ]


if ADDRESS in os.environ:
    app, _ = make(os.environ[ADDRESS])
