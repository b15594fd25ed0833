"""Celery: run a task that is delivered twice once, and return its first result.

    @app.task(acks_late=True)
    @once_task(once, key=by_fields("order_id"))
    def charge(order_id: str) -> str: ...

or `@app.task(base=OnceTask, once=once, once_key=by_fields("order_id"))`, which can deduplicate at
enqueue too. Both wrap the function that the worker calls, below Celery's own retrying.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar, Unpack, cast

from msgspec import Struct

from oncekey.compat import pause
from oncekey.errors import ConfigurationError, LeaseLostError, ResultNotKeptError
from oncekey.extras import needing
from oncekey.functions import UNSET, checked_function, is_async, name_of
from oncekey.jobs.enqueue import (
    HEADER,
    Enqueued,
    EnqueueRule,
    Headers,
    JobMoment,
    Until,
    checked_until,
    enqueue_known,
    forget_ended,
    free_tagged,
    read_tag,
)
from oncekey.jobs.job import Job, by_task_id
from oncekey.jobs.protect import NOT_BEGUN, JobGuard, KeyFunction, comes_again, seconds_until
from oncekey.once import Once, Reconciler
from oncekey.policy import Duration, Policy, PolicyFields, seconds

with needing("celery", __name__):
    from billiard.exceptions import (  # type: ignore[import-untyped]  # celery has no types
        SoftTimeLimitExceeded,
    )
    from celery import (  # type: ignore[import-untyped]  # celery has no types
        Task,
        current_task,
        states,
        uuid,
    )
    from celery.canvas import (  # type: ignore[import-untyped]  # as above
        Signature,
        chain,
    )
    from celery.exceptions import (  # type: ignore[import-untyped]  # as above
        Ignore,
        Reject,
        Retry,
    )
    from celery.signals import (  # type: ignore[import-untyped]  # celery has no types
        before_task_publish,
        task_failure,
        task_revoked,
        task_success,
        worker_ready,
    )


_log = logging.getLogger("oncekey")

_ENTERED: Final = "oncekey_entered"
"""An attribute of a request whose task has begun. A call from inside the task is no delivery."""


_VISIBLE: Final = 1800
"""The visibility time-out in seconds if none is configured. No usual broker has a shorter one."""

_SHORTEST: Final = 0.1
"""Seconds that a job waits at least before it is tried again in place."""

_APPLY: Final = Task.apply.__code__
_APPLY_CHAIN: Final = chain.apply.__code__
_APPLY_ALL: Final = {_APPLY, Signature.apply.__code__, _APPLY_CHAIN}
"""What runs a job, a chain and other signatures in place."""

_DELAYED: Final = re.compile(r"(?:[01]\.){28}")
"""What Celery puts before the routing key of a message that RabbitMQ delays: its seconds."""


def layers(task: Any) -> Iterator[Any]:
    """Yield the functions that a worker runs for the task, from the outermost to the user's own."""
    found = task.run
    while found is not None:
        found = getattr(found, "__func__", found)  # a method of the task
        yield found
        found = getattr(found, "__wrapped__", None)


def task_now() -> Any:
    """Return the task that Celery runs now, or None."""
    return current_task._get_current_object() if current_task else None


def delivery(task: Any) -> Any:
    """Return the request if this call begins a delivery, or None if the user's code calls."""
    request = None if task is None else task.request
    if request is None or request.called_directly or _ENTERED in vars(request):
        return None
    setattr(request, _ENTERED, True)
    return request


def job_of(name: str, request: Any, arguments: dict[str, Any]) -> Job:
    """Return the job for a delivery, as key functions see it. A plain call has no id."""
    arguments = {one: value for one, value in arguments.items() if not isinstance(value, Task)}
    if request is None:
        return Job(name=name, arguments=arguments)
    told = request.delivery_info or {}
    return Job(
        id=own_id(request),
        name=name,
        arguments=arguments,
        attempt=request.retries + 1,
        redelivered=told.get("redelivered"),
        queue=told.get("routing_key") or "",
        native=request,
    )


def own_id(request: Any) -> str:
    """Return the id of the job, or "" if it has none.

    An eager chain that was frozen or given a `task_id` runs each of its steps under that one id.
    There the second step is `id:2`, since a worker would have given it an id of its own.
    """
    found = request.id or ""
    return found + _eager_step() if found and request.is_eager else found


def _eager_step() -> str:
    """Return ":2" if an eager chain runs this job as its second step, and "" for the first.

    A step of a chain inside a chain has the step of each, as in ":2:3".
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not _APPLY:
        frame = frame.f_back
    found = ""
    # Celery tells the step nowhere else. A retry applies a signature from its task.
    while frame is not None and frame.f_code in _APPLY_ALL:
        if frame.f_code is _APPLY_CHAIN:
            step, before = 1, frame.f_locals.get("last")  # the result of the step before
            while before is not None:
                step, before = step + 1, before.parent
            found = f":{step}{found}" if step > 1 or found else ""
        frame = frame.f_back
    return found


def awaited(request: Any) -> bool:
    """Return whether a chain, a callback or a chord uses the value that the job returns."""
    return bool(request.chain or request.callbacks or request.chord)


def put_back(task: Any, request: Any, seconds: float, why: Exception) -> bool:
    """Send the job again, with the same id and retries, to be delivered in so many seconds.

    Return whether it was sent. If so, this delivery is to be acknowledged: a new message costs
    nothing where the broker counts deliveries, and a rejected one does.
    """
    seconds = min(seconds, longest_delay(task))
    options: dict[str, Any] = {"countdown": seconds, "retries": request.retries}
    try:
        # Ask as Celery does when it decides whether RabbitMQ delays the message.
        if task.app.producer_pool.connections.connection.transport.driver_type == "amqp":
            # It does so for whole seconds, and sends a job that names no queue to the default one.
            options["countdown"] = max(1, math.ceil(seconds))
            options["queue"] = _queue_of(task.app, request.delivery_info or {})
        task.signature_from_request(request, **options).apply_async()
    except Exception as error:  # noqa: BLE001 - the client of a broker may raise anything
        _log.warning("%s[%s] could not be put back: %s", task.name, request.id, error)
        return False
    _log.debug("%s[%s] comes back in %.3g s: %s", task.name, request.id, seconds, why)
    return True


def _queue_of(app: Any, told: Mapping[str, Any]) -> str | None:
    """Return the name of the queue that delivered a job, or None if it is not configured."""
    exchange, routing_key = told.get("exchange"), str(told.get("routing_key") or "")
    if not exchange:  # the name of the queue is the routing key
        return routing_key or None
    plain = _DELAYED.sub("", routing_key, count=1)
    for name, queue in app.amqp.queues.items():
        # What RabbitMQ has delayed comes from an exchange of its own.
        known = plain != routing_key or queue.exchange.name == exchange
        if known and queue.routing_key == plain:
            return str(name)
    return None


def longest_delay(task: Any) -> float:
    """Return a third of the broker's visibility time-out, in seconds.

    After a longer delay the broker would deliver a job that waits a second time.
    """
    options = task.app.conf.broker_transport_options or {}
    return float(options.get("visibility_timeout") or _VISIBLE) / 3


def longest_hold(task: Any, request: Any) -> float:
    """Return for how many seconds a job may wait in its worker: a third of its time limits, too."""
    limits = (*(request.timelimit or ()), task.time_limit, task.soft_time_limit)
    return min([longest_delay(task), *(float(one) / 3 for one in limits if one)])


# Freeing of jobs that were deduplicated at enqueue: when a job ends, another one with the same key
# may be enqueued.
#
# Celery's signals tell the end of a job. They are sent after its own retrying, and also by the
# worker when it finds its child process dead.


def free_job(once: Once, request: Any, moment: JobMoment) -> None:
    """Free the key of the enqueued job at this moment, if its tag says so."""
    tag = read_tag(_headers(request).get(HEADER))
    if tag is not None:
        free_tagged(once, tag, moment)


def _headers(request: Any) -> Mapping[str, Any]:
    """Return the headers of the job. Celery hands on whatever a producer has sent as such."""
    return request.headers if isinstance(request.headers, Mapping) else {}


def _at(moment: JobMoment, task: Any, request: Any = None) -> None:
    request = getattr(task, "request", None) if request is None else request
    if request is None or HEADER not in _headers(request):
        return
    once = next((one.oncekey.once for one in layers(task) if hasattr(one, "oncekey")), None)
    if once is not None:
        free_job(once, request, moment)


@task_success.connect(weak=False)  # type: ignore[untyped-decorator]  # celery has no types
def _succeeded(sender: Any = None, **_: Any) -> None:
    _at("succeeded", sender)


@task_failure.connect(weak=False)  # type: ignore[untyped-decorator]  # celery has no types
def _failed(sender: Any = None, **_: Any) -> None:
    _at("failed", sender)


@task_revoked.connect(weak=False)  # type: ignore[untyped-decorator]  # celery has no types
def _revoked(sender: Any = None, request: Any = None, **_: Any) -> None:
    """Free the key of a job that was revoked or terminated, or that has expired."""
    _at("failed", sender, request)


# What a worker says when it starts.


@worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]  # celery has no types
def _warn_of_limits(sender: Any, **_: Any) -> None:
    """Log a warning for each queue that gives a job up when its worker dies.

    A larger limit is enough: a job that is in progress elsewhere is sent again as a new message.
    """
    app = sender.app
    if not any(hasattr(one, "oncekey") for task in app.tasks.values() for one in layers(task)):
        return
    for name, queue in app.amqp.queues.consume_from.items():
        if (queue.queue_arguments or {}).get("x-delivery-limit") == 0:
            _log.warning(
                "the queue %s has x-delivery-limit 0, so that a job whose worker has died is given "
                "up at once, before its lease is over: raise the limit",
                name,
            )


# One delivery of a Celery job: run it, return its first result, put it back, or fail.


class SentAgainError(Exception):
    """Carries the value of a run that called `self.retry(throw=False)` past the record.

    The job was sent again under the same id, and is to run then. So this run is not its last.
    """

    def __init__(self, value: object) -> None:
        """Take what the function returned."""
        super().__init__("the job was sent again")
        self.value = value


_SENT_AGAIN: Final = "oncekey_sent_again"


@before_task_publish.connect(weak=False)  # type: ignore[untyped-decorator]  # celery has no types
def _published(headers: Any = None, **_: Any) -> None:
    """Note in the request of a running job that it was sent again."""
    request = getattr(task_now(), "request", None)
    if request is None or not isinstance(headers, dict) or headers.get("id") != request.id:
        return
    if (headers.get("retries") or 0) > (request.retries or 0):
        setattr(request, _SENT_AGAIN, True)


class CeleryDelivery:
    """A job, its task, and the request that Celery made of its message."""

    def __init__(self, guard: JobGuard, job: Job, task: Any) -> None:
        """Prepare the delivery. Nothing runs yet."""
        self._guard = guard
        self._job = job
        self._task = task
        self._request = job.native
        self._begun = False

    def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the job, or return its first result. Raise to put it back into its queue."""
        held = 0.0
        while True:
            self._begun = False
            try:
                return self._run(function, args, kwargs)
            except (*NOT_BEGUN, LeaseLostError) as error:
                again = comes_again(error, self._guard, self._job, begun=self._begun)
                if self._request.is_eager or not again:
                    raise  # an eager job has no queue to go back to
                seconds = seconds_until(error, self._guard)
                if put_back(self._task, self._request, seconds, error):
                    raise Ignore(str(error)) from None
                # Wait here: a broker that counts deliveries drops a job that is rejected again and
                # again.
                limit = longest_hold(self._task, self._request)
                if held >= limit:
                    raise Reject(error, requeue=True) from None
                seconds = min(max(seconds, _SHORTEST), limit)
                held += seconds
                pause(seconds)
            except ResultNotKeptError as error:
                if self._begun or awaited(self._request):
                    raise  # a chain or callback must not continue from a made-up None
                _log.warning("%s[%s] returns None: %s", self._job.name, self._job.id, error)
                return None

    def _run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the job. Free its enqueue key at the moments that its tag names."""

        def begin(*args: Any, **kwargs: Any) -> Any:
            self._begun = True
            free_job(self._guard.once, self._request, "started")
            value = function(*args, **kwargs)
            if isinstance(value, Retry) or getattr(self._request, _SENT_AGAIN, False):
                raise SentAgainError(value)
            return value

        try:
            outcome = self._guard.run(self._job, begin, args, kwargs)
        except SentAgainError as told:
            return told.value
        except (Ignore, Reject) as told:  # the job is over, but Celery sends no signal for these
            if not getattr(told, "requeue", False):
                free_job(self._guard.once, self._request, "failed")
            raise
        if not self._begun:
            free_job(self._guard.once, self._request, "started")
        return outcome.value


# The decorator for Celery tasks.


F = TypeVar("F", bound=Callable[..., Any])

_CONTROL: Final = (Retry, SentAgainError, Ignore, Reject)


def once_task(
    once: Once,
    key: KeyFunction = by_task_id,
    *,
    scope: str | None = UNSET,
    fingerprint: KeyFunction | None = None,
    reconcile: Reconciler | None = None,
    policy: Policy | None = None,
    **fields: Unpack[PolicyFields],
) -> Callable[[F], F]:
    """Decorate a task, below `@app.task`: run jobs with the same key once, and share the result.

    `key` is a function of the `Job`. Keys are kept under the task's name, unless `scope` is given.
    """
    said = {"scope": scope, "fingerprint": fingerprint, "reconcile": reconcile, "policy": policy}

    def decorate(function: F) -> F:
        return cast("F", CeleryProtection(once, function, key, {**said, **fields}).wrapper)

    return decorate


class CeleryProtection:
    """The function of a task, and how it is protected."""

    def __init__(
        self,
        once: Once,
        function: Callable[..., Any],
        key: KeyFunction,
        options: dict[str, Any],
    ) -> None:
        """Check everything that can be checked without a job.

        Raise ConfigurationError for a coroutine function, since Celery does not await it.
        """
        if is_async(checked_function(function)):
            msg = f"{name_of(function)} is a coroutine function, which Celery does not await"
            raise ConfigurationError(msg)
        self.once = once
        self._function = function
        self._key = key
        self._options = options
        self._guards: dict[str, JobGuard] = {}
        self._own_name = f"{function.__module__}.{name_of(function)}"
        self.guard(self._own_name)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return self._called(args, kwargs)

        # Celery checks arguments against the signature, and does not look through wrappers for it.
        wrapper.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # functions have it
        wrapper.oncekey = self  # type: ignore[attr-defined]  # how it is found on a task
        self.wrapper: Callable[..., Any] = wrapper

    def guard(self, name: str) -> JobGuard:
        """Return the guard for the jobs of the task with this name."""
        found = self._guards.get(name)
        if found is None:
            found = JobGuard(
                self.once,
                self._function,
                name=name,
                key=_id_if_any if self._key is by_task_id else self._key,
                cut_off=(SoftTimeLimitExceeded,),
                control=_CONTROL,
                **self._options,
            )
            self._guards[name] = found
        return found

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        running = task_now()
        task = running if running is not None and self.wrapper in layers(running) else None
        request = delivery(task)
        guard = self.guard(self._own_name if task is None else task.name)
        job = job_of(guard.name, request, guard.arguments(args, kwargs))
        if request is not None:
            return CeleryDelivery(guard, job, task).run(self._function, args, kwargs)
        if task is None and running is not None:
            if self._inherited_by(running):
                return self._function(*args, **kwargs)
            if self._key is by_task_id:
                msg = (
                    f"{guard.name} runs inside {running.name}, and is not what that task runs: use "
                    f"functools.wraps in the decorators between, or a key made of arguments"
                )
                raise ConfigurationError(msg)
        return guard.run(job, self._function, args, kwargs).value

    def _inherited_by(self, task: Any) -> bool:
        """Return whether the task's own class calls this through super()."""
        return any(vars(kind).get("run") is self.wrapper for kind in type(task).__mro__)


def _id_if_any(job: Job) -> str:
    """Return the id that Celery gave the job. A plain call has none and runs unprotected."""
    return job.id


# The base class for Celery tasks, which can also deduplicate at enqueue.


_ENDS: Final[dict[Until, frozenset[str]]] = {
    "started": states.READY_STATES,
    "finished": states.READY_STATES,
    "succeeded": frozenset({states.SUCCESS}),
}
"""The states of a job in which another one with its key may be enqueued."""

_STATELESS: Final = ("disabled://", "rpc://")
"""Back ends that do not know the state of a job, unless its result was sent to this process."""

_PROMISED: Final = ("retries", "chain", "chord", "group_id")
"""Options of a job that other jobs depend on. Such a job must be sent under its own id."""


class _Enqueue(Struct, frozen=True):
    """The rule for not sending a job because one with the same key was sent."""

    key: Any
    until: Until
    ttl: Duration | None
    per: Duration | None
    bound: bool
    """Whether the task itself is the first argument of its function."""


class OnceTask(Task):  # type: ignore[misc]  # celery has no types
    """A task that runs jobs with the same key once.

    Use it as `@app.task(base=OnceTask, once=once, once_key=...)`. With `once_enqueue`, two jobs
    with the same key are not in the queue at the same time.
    """

    abstract = True

    once: ClassVar[Once | None] = None
    once_key: KeyFunction = staticmethod(by_task_id)
    """The function of the `Job` that makes the key under which the job runs."""
    once_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Further options of `once_task`, such as `{"ttl": "7d", "fail_mode": "closed"}`."""
    once_enqueue: KeyFunction | None = None
    """The function that makes the key under which the job is enqueued. None: always enqueue."""
    once_until: ClassVar[Until] = "finished"
    """The moment from which another job with that key may be enqueued."""
    once_enqueue_ttl: ClassVar[Duration | None] = None
    """The time after which another job may be enqueued, whatever happened to the first."""
    once_per: ClassVar[Duration | None] = None
    """The length of periods in each of which one job with that key is enqueued."""

    _protection: ClassVar[CeleryProtection]
    _enqueue: ClassVar[_Enqueue]

    def __init_subclass__(cls, **said: Any) -> None:
        """Protect the task's function before Celery wraps its retrying around it."""
        super().__init_subclass__(**said)
        run = vars(cls).get("run")
        if run is None:
            return
        alone = isinstance(run, staticmethod)
        cls._enqueue = _Enqueue(
            key=_plain(cls, "once_enqueue"),
            until=checked_until(cls.once_until),
            ttl=Policy(ttl=cls.once_enqueue_ttl).ttl,
            per=None if cls.once_per is None else seconds(cls.once_per, "once_per"),
            bound=not alone,
        )
        if cls._enqueue.key is by_task_id:
            msg = "once_enqueue needs a key made of arguments: a job that is not sent has no id"
            raise ConfigurationError(msg)
        cls._protection = CeleryProtection(
            cls.once,  # type: ignore[arg-type]  # it says so where there is none
            _as_celery_calls_it(cls, run.__func__ if alone else run),
            _plain(cls, "once_key"),
            dict(cls.once_options),
        )
        wrapper = cls._protection.wrapper
        cls.run = staticmethod(wrapper) if alone else wrapper

    def apply_async(  # noqa: PLR0917 - as Celery has it
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        **options: Any,
    ) -> Any:
        """Send the job, or find the one with the same key that was sent before.

        Return its AsyncResult; the attribute `duplicate` tells whether it was sent before. A call
        with an id of its own, or with a link, chain, chord or group, always sends a new job.
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

        made = rule.key(job_of(name, None, arguments))
        once = self._protection.once

        def publish(headers: Headers, handle: str) -> None:
            given = {**(options.get("headers") or {}), **headers}
            more = {**options, "headers": given} if given else options
            sent.append(send(args, kwargs, handle, producer, link, link_error, shadow, **more))

        terms: EnqueueRule = {"until": rule.until, "ttl": rule.ttl, "per": rule.per}
        while True:
            found = enqueue_known(once, made, publish, own_id, name, **terms)
            result = sent[0] if sent else self.AsyncResult(found.handle)
            if sent or rule.per is not None or not self._is_over(result):
                break
            forget_ended(once, made, found.handle, name)
        result.duplicate = found.duplicate
        return result

    def _is_over(self, result: Any) -> bool:
        """Return whether the result back end knows that another job may be enqueued.

        No worker has told so where the first one was revoked, or cut off by a hard time limit.
        """
        ends = _ENDS.get(self._enqueue.until)
        if ends is None or self.ignore_result:
            return False
        try:
            return self.backend.as_uri() not in _STATELESS and result.state in ends
        except Exception as error:  # noqa: BLE001 - the client of a back end may raise anything
            _log.debug("the state of %s is not known: %s", result.id, error)
            return False

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Send the job when Django's transaction commits, as Celery's own tasks do."""
        _django_task().delay_on_commit(self, *args, **kwargs)

    def apply_async_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Send the job with these options when Django's transaction commits."""
        _django_task().apply_async_on_commit(self, *args, **kwargs)

    def enqueue_once(self, *args: Any, **kwargs: Any) -> Enqueued[Any]:
        """Send the job with these arguments, or find the one with the same key.

        Return its AsyncResult, and whether it was sent before.
        """
        result = self.apply_async(args, kwargs)
        return Enqueued(result, duplicate=result.duplicate)


def _django_task() -> Any:
    """Return the class that Celery gives to tasks under Django, where a base replaces it."""
    with needing("django", __name__):
        from celery.contrib.django.task import (  # type: ignore[import-untyped]  # as above
            DjangoTask,
        )
    return DjangoTask


def _as_celery_calls_it(kind: type, function: Any) -> Any:
    """Return the function as Celery calls it.

    With `pydantic=True` Celery has already turned what it returns into plain values.
    """
    if vars(kind).get("_dump_pydantic_arguments") is None:
        return function

    def plain(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # Copy everything but the annotations, since they name models.
    functools.update_wrapper(plain, function, ("__module__", "__name__", "__qualname__"), ())
    plain.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # functions have it
    del plain.__wrapped__  # type: ignore[attr-defined]  # update_wrapper has put it there
    return plain


def _plain(kind: type, name: str) -> Any:
    """Return the attribute of the class as it was given, and not as a bound method."""
    found = inspect.getattr_static(kind, name)
    return found.__func__ if isinstance(found, staticmethod) else found


__all__ = ["OnceTask", "once_task"]
