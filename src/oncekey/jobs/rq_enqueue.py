"""Deduplicate jobs when they are enqueued. Retries never come this way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from rq.exceptions import NoSuchJobError
from rq.job import Job

from oncekey.core.key import function_key
from oncekey.core.requests import Forget
from oncekey.errors import ConfigurationError
from oncekey.jobs import enqueue
from oncekey.jobs.enqueue import Enqueued, Headers
from oncekey.jobs.enqueue_key import enqueue_key
from oncekey.jobs.guard import KeyFunction
from oncekey.jobs.rq_delivery import Delivery
from oncekey.jobs.rq_job import PROTECTION, Protection
from oncekey.jobs.tag import Until
from oncekey.policy import Policy

if TYPE_CHECKING:
    from rq import Queue

_REFUSED: Final = ("job_id", "unique", "pipeline")
"""Options of RQ that decide themselves when, or under which id, a job is enqueued."""


def enqueue_once(  # noqa: PLR0913 - each is an option of its own, and most have defaults
    queue: Queue,
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: KeyFunction | str,
    until: Until = "finished",
    policy: Policy | None = None,
    **options: Any,
) -> Enqueued[Job]:
    """The job is in the queue, or one like it was: then the handle is that job.

    `function` must be protected by `once_job`. `key` is a function of the `Job`, or the key itself.
    Other options are those of `queue.enqueue`; `policy` says how long the record lives at most.
    A first job that is gone before it began or ended is enqueued anew; where its rule outlives it,
    the handle has its id and nothing more.
    """
    protection = _protection(function)
    if wrong := sorted(_REFUSED & options.keys()):
        msg = f"enqueue_once chooses the id and sends the job at once: it takes no {wrong[0]}"
        raise ConfigurationError(msg)
    given = dict(kwargs or {})
    name = protection.guard.name
    made = enqueue_key(key, Delivery(protection.guard, None, args, given).job)
    sent: list[Job] = []

    def publish(headers: Headers) -> str:
        meta = {**(options.get("meta") or {}), **headers}
        sent.append(queue.enqueue(function, args=args, kwargs=given, **{**options, "meta": meta}))
        return sent[0].id

    while True:
        found = enqueue.enqueue_once(
            protection.once, made, publish, name=name, until=until, policy=policy
        )
        if sent:
            return Enqueued(sent[0], duplicate=False)
        try:
            first = Job.fetch(found.handle, queue.connection, serializer=queue.serializer)
        except NoSuchJobError:
            if until in {"started", "finished"}:
                _forget(protection, made, found.handle)
                continue
            first = Job(found.handle, queue.connection, queue.serializer)
        return Enqueued(first, duplicate=True)


def _protection(function: Callable[..., Any]) -> Protection:
    """How the function is protected, also where a worker looks for it by its name."""
    found = getattr(function, PROTECTION, None)
    if not isinstance(found, Protection):
        msg = (
            f"{function!r} is not protected, and nobody would tell when its job has ended: put "
            f"@once_job on it first"
        )
        raise ConfigurationError(msg)
    there: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        there = getattr(there, part, None)
    same = getattr(there, PROTECTION, None) is found
    if not same:
        msg = (
            f"a worker that looks for {function.__module__}.{function.__qualname__} does not find "
            f"what once_job made of it: use @once_job as a decorator, in a module"
        )
        raise ConfigurationError(msg)
    return found


def _forget(protection: Protection, key: str, job_id: str) -> None:
    """The record of a job that nobody will end is gone, unless it is another job's by now."""
    once, scope = protection.once, f"enqueue:{protection.guard.name}"
    record = once.get(function_key(key), scope=scope)
    if record is not None and record.value == job_id:
        once.store.forget(Forget(record.scope, record.key, token=record.token, force=False))
