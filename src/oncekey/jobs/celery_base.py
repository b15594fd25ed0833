"""The base class for tasks of Celery: protected when they run, and on demand when they are sent."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from celery import Task, uuid  # type: ignore[import-untyped]  # celery has no types
from msgspec import Struct

from oncekey.errors import ConfigurationError
from oncekey.jobs.celery_request import job_of
from oncekey.jobs.celery_task import Protection
from oncekey.jobs.enqueue import Enqueued, Headers, enqueue_once
from oncekey.jobs.guard import KeyFunction
from oncekey.jobs.keys import by_task_id
from oncekey.jobs.tag import Until, checked_until
from oncekey.once import Once
from oncekey.policy import Duration, Policy

_PROMISED: Final = ("retries", "chain", "chord", "group_id")
"""Options of a job that something else counts on: it must be sent under its own id."""


class _Enqueue(Struct, frozen=True):
    """When a job is not sent because one like it was."""

    key: Any
    until: Until
    ttl: Duration | None
    bound: bool
    """Whether the task itself is the first argument of its function."""


class OnceTask(Task):  # type: ignore[misc]  # celery has no types
    """A task whose jobs run once: `@app.task(base=OnceTask, once=once, once_key=...)`.

    With `once_enqueue` two jobs with one key are not even in the queue at the same time.
    """

    abstract = True

    once: ClassVar[Once | None] = None
    once_key: KeyFunction = staticmethod(by_task_id)
    """The key under which the job runs: a function of the `Job`."""
    once_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """What else `once_task` takes, such as `{"ttl": "7d", "fail_mode": "closed"}`."""
    once_enqueue: KeyFunction | None = None
    """The key under which it is enqueued; None: always enqueued."""
    once_until: ClassVar[Until] = "finished"
    """When another job with that key may be enqueued."""
    once_enqueue_ttl: ClassVar[Duration | None] = None
    """When it may be at the latest, whatever became of the job."""

    _protection: ClassVar[Protection]
    _enqueue: ClassVar[_Enqueue]

    def __init_subclass__(cls, **said: Any) -> None:
        """The function of the task is protected before Celery puts its retrying around it."""
        super().__init_subclass__(**said)
        run = vars(cls).get("run")
        if run is None:
            return
        alone = isinstance(run, staticmethod)
        cls._enqueue = _Enqueue(
            key=_plain(cls, "once_enqueue"),
            until=checked_until(cls.once_until),
            ttl=Policy(ttl=cls.once_enqueue_ttl).ttl,
            bound=not alone,
        )
        if cls._enqueue.key is by_task_id:
            msg = "once_enqueue needs a key made of arguments: a job that is not sent has no id"
            raise ConfigurationError(msg)
        cls._protection = Protection(
            cls.once,  # type: ignore[arg-type]  # it says so where there is none
            _as_celery_calls_it(cls, run.__func__ if alone else run),
            _plain(cls, "once_key"),
            dict(cls.once_options),
        )
        wrapper = cls._protection.wrapper
        cls.run = staticmethod(wrapper) if alone else wrapper

    def apply_async(  # noqa: PLR0913, PLR0917 - as Celery has it
        self,
        args: Any = None,  # noqa: ANN401 - as above
        kwargs: Any = None,  # noqa: ANN401 - as above
        task_id: str | None = None,
        producer: Any = None,  # noqa: ANN401 - as above
        link: Any = None,  # noqa: ANN401 - as above
        link_error: Any = None,  # noqa: ANN401 - as above
        shadow: str | None = None,
        **options: Any,
    ) -> Any:  # noqa: ANN401 - as above
        """The job is sent, or one like it was: then the AsyncResult is that job's.

        Its attribute `duplicate` tells which. Who names an id, or wants something to go on from
        the job, gets a job of its own.
        """
        rule = self._enqueue
        send: Any = super().apply_async
        promised = task_id or link or link_error or (options and any(map(options.get, _PROMISED)))
        if rule.key is None or promised or self.app.conf.task_always_eager:
            result = send(args, kwargs, task_id, producer, link, link_error, shadow, **options)
            result.duplicate = False
            return result
        name, own_id, sent = str(self.name), str(uuid()), []
        given = (self, *(args or ())) if rule.bound else tuple(args or ())
        arguments = self._protection.guard(name).arguments(given, kwargs or {})

        def publish(headers: Headers) -> str:
            if headers:
                options["headers"] = {**(options.get("headers") or {}), **headers}
            sent.append(send(args, kwargs, own_id, producer, link, link_error, shadow, **options))
            return own_id

        found = enqueue_once(
            self._protection.once,
            rule.key(job_of(name, None, arguments)),
            publish,
            name=name,
            until=rule.until,
            ttl=rule.ttl,
        )
        result = sent[0] if sent else self.AsyncResult(found.handle)
        result.duplicate = found.duplicate
        return result

    def enqueue_once(self, *args: Any, **kwargs: Any) -> Enqueued[Any]:
        """The job with these arguments is sent, or one like it was; and which of both."""
        result = self.apply_async(args, kwargs)
        return Enqueued(result, duplicate=result.duplicate)


def _as_celery_calls_it(kind: type, function: Any) -> Any:  # noqa: ANN401 - as above
    """The function; with `pydantic=True` Celery has made plain values of what it returns."""
    if vars(kind).get("_dump_pydantic_arguments") is None:
        return function

    def plain(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
        return function(*args, **kwargs)

    # Everything but the annotations: they tell of models.
    functools.update_wrapper(plain, function, ("__module__", "__name__", "__qualname__"), ())
    plain.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # functions have it
    del plain.__wrapped__  # type: ignore[attr-defined]  # update_wrapper has put it there
    return plain


def _plain(kind: type, name: str) -> Any:  # noqa: ANN401 - whatever stands there
    """The attribute of the class as it was given: a function must not become a method."""
    found = inspect.getattr_static(kind, name)
    return found.__func__ if isinstance(found, staticmethod) else found
