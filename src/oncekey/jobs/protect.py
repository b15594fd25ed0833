"""Protection of a task's jobs: the generic `handler`, and `JobGuard` for the queue adapters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from oncekey.attempt import current, current_async
from oncekey.core.call import Call
from oncekey.core.codec import Codec, codec_of
from oncekey.core.decide import is_uncertain
from oncekey.core.fingerprint import of_value
from oncekey.core.key import function_key, readable
from oncekey.engine import run, run_async
from oncekey.engine.run_base import Outcome
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    StoreError,
)
from oncekey.functions import (
    UNSET,
    Arguments,
    Options,
    Selection,
    checked_function,
    made_key,
    name_of,
    protect,
)
from oncekey.jobs.job import CallReader, Job, by_task_id, takes_job
from oncekey.once import Once, Reconciler
from oncekey.policy import FUNCTION, Errors, Policy, PolicyFields

# The generic wrapper for any function that is called with a job.
#
# It wraps the function itself, not the queue's hooks. A duplicate returns the first result as if it
# had run, so that chains, groups and result back ends continue from it.


F = TypeVar("F", bound=Callable[..., Any])

JOB: Final = Policy(wait=0, retry_after="5s", fail_mode="open").over(FUNCTION)
"""The default policy of a job."""


@overload
def handler(
    once: Once,
    key: Callable[..., str],
    fn: F,
    *,
    scope: str | None = ...,
    name: str | None = ...,
    fingerprint: Selection = ...,
    reconcile: Reconciler | None = ...,
    policy: Policy | None = ...,
    **fields: Unpack[PolicyFields],
) -> F: ...
@overload
def handler(
    once: Once,
    key: Callable[..., str],
    fn: None = None,
    *,
    scope: str | None = ...,
    name: str | None = ...,
    fingerprint: Selection = ...,
    reconcile: Reconciler | None = ...,
    policy: Policy | None = ...,
    **fields: Unpack[PolicyFields],
) -> Callable[[F], F]: ...
def handler(
    once: Once,
    key: Callable[..., str],
    fn: Any = None,
    *,
    scope: str | None = UNSET,
    name: str | None = None,
    fingerprint: Selection = None,
    reconcile: Reconciler | None = None,
    policy: Policy | None = None,
    **fields: Unpack[PolicyFields],
) -> Any:
    """Wrap the function, so that it runs a job once and returns the first result to duplicates.

    `key` is `by_task_id`, `by_fields` or another strategy, or a function of the same arguments; an
    empty key runs the job unprotected. Keys are kept under `name`, by default the module and name
    of the function, unless `scope` is given. If the function raises, its key is freed, so that the
    queue's retry runs it again. While another worker runs the job, raise `InProgressError`, so that
    the queue's retry tries it later.
    """
    options = job_options(
        once,
        key,
        scope=scope,
        label=name,
        fingerprint=fingerprint,
        reconcile=reconcile,
        policy=policy,
        fields=fields,
    )
    if name is not None and options.scope is UNSET:
        options = options.having(scope=name)

    def decorate(function: Callable[..., Any]) -> Any:
        return protect(once, function, _key_of_call(key, function, name), options)

    return decorate if fn is None else decorate(fn)


def _key_of_call(
    key: Callable[..., str], function: Callable[..., Any], name: str | None
) -> Callable[..., str]:
    """Return the key function of a call. A strategy gets the job that the arguments make."""
    if not takes_job(key):
        return key
    plain = getattr(function, "__func__", function)  # of a class method or a static one
    reader = CallReader(checked_function(plain), name or name_of(plain))

    def key_of_call(*args: Any, **kwargs: Any) -> str:
        return key(reader.job(args, kwargs))

    return key_of_call


def job_options(once: object, key: object, **said: Any) -> Options:
    """Return the options given here, over those of the `Once`, over the defaults for jobs."""
    if not isinstance(once, Once):
        msg = f"a job needs a Once to keep its records, as in Once('redis://...'), not {once!r}"
        raise ConfigurationError(msg)
    if isinstance(key, type) or not callable(key):
        msg = f"a job needs a function that makes its key, such as by_task_id, not {key!r}"
        raise ConfigurationError(msg)
    return replace(once.having(**said), surface=JOB, kind="job")


T = TypeVar("T")
KeyFunction = Callable[[Job], str]


class JobGuard:
    """One task and the terms on which its jobs run."""

    def __init__(
        self,
        once: Once,
        function: Callable[..., Any],
        *,
        name: str,
        key: KeyFunction = by_task_id,
        scope: str | None = UNSET,
        fingerprint: KeyFunction | None = None,
        reconcile: Reconciler | None = None,
        cut_off: Errors = (),
        control: Errors = (),
        policy: Policy | None = None,
        **fields: Unpack[PolicyFields],
    ) -> None:
        """Check everything that can be checked without a job.

        `name` is the task's name, and the scope of its keys unless `scope` is given. `cut_off` are
        errors of the queue that interrupt a task at any point, such as its time limits. `control`
        are exceptions by which a task tells the queue what to do; they are not failures.
        """
        checked_function(function)
        if fingerprint is not None and not callable(fingerprint):
            msg = f"fingerprint must be a function of the job, or None, but it is {fingerprint!r}"
            raise ConfigurationError(msg)
        self.once = once
        self.name = name
        self._options = job_options(
            once, key, scope=scope, label=name, reconcile=reconcile, policy=policy, fields=fields
        )
        self._terms = _with_uncertain(self._options, cut_off).terms()
        self._key = key
        self._scope: str | None = name if self._options.scope is UNSET else self._options.scope
        self._fingerprint = fingerprint
        self._function = function
        self._arguments = Arguments(function)
        self._control = control
        self._codec: Codec | None = None

    @property
    def retry_after(self) -> float:
        """The number of seconds after which a job that could not begin may be tried again."""
        return self._terms.retry_after

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the task by name, without the task itself."""
        return self._arguments.without_receiver(self._arguments.bind(*args, **kwargs))

    def takes(self, name: str) -> bool:
        """Return whether the task can be given a keyword argument of this name."""
        return name in self._arguments.names or any(
            one.kind is inspect.Parameter.VAR_KEYWORD
            for one in inspect.signature(self._function).parameters.values()
        )

    def call(self, job: Job) -> Call | None:
        """Return the protected call for the job, or None if its key is empty."""
        made = made_key(self._key(job))
        if not made:
            return None
        if self._codec is None:  # annotations may name things that are defined after the function
            self._codec = codec_of(self._function)
        said = None if self._fingerprint is None else self._fingerprint(job)
        return Call(
            scope=self._scope,
            key=function_key(made),
            terms=self._terms,
            fingerprint=None if said is None else of_value(said),
            label=self.name,
            reference=readable(job.id),
            surface="job",
            codec=self._codec,
            reconcile=self._options.reconcile,
        )

    def run(
        self, job: Job, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Outcome[Any]:
        """Run the job, or look up its first run. Return the outcome."""
        core, active, call = self.once.use(self.call(job), self._terms)
        try:
            return run.perform(
                core.engine(), call, self._watched(function), args, kwargs, active=active
            )
        except NotRecordedError as error:
            return _done(error, call)

    async def run_async(
        self, job: Job, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Outcome[Any]:
        """Run the job, or look up its first run. Return the outcome."""
        core, active, call = self.once.use(self.call(job), self._terms)
        try:
            return await run_async.perform(
                core.engine_async(),
                call,
                self._watched_async(function),
                args,
                kwargs,
                active=active,
            )
        except NotRecordedError as error:
            return _done(error, call)

    def owns(self, error: LeaseLostError, job: Job) -> bool:
        """Return whether the error is about this job, and not about a call inside it."""
        call = self.call(job)
        return call is not None and call.identity == (error.scope, error.key)

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function, so that its key is freed when it raises a `control` exception."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except self._control as told:
                running = _still_running(current)
                if running is not None:
                    running.release(type(told).__name__, uncertain=self._cut_off(told))
                raise

        return watched if self._control else function

    def _watched_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                made = function(*args, **kwargs)
                return await made if inspect.isawaitable(made) else made
            except self._control as told:
                running = _still_running(current_async)
                if running is not None:
                    await running.release(type(told).__name__, uncertain=self._cut_off(told))
                raise

        return watched if self._control else function

    def _cut_off(self, told: BaseException) -> bool:
        """Return whether an error that leaves the effect open caused the `control` exception."""
        cause = getattr(told, "exc", None) or told.__cause__ or told.__context__
        if not isinstance(cause, BaseException):
            return False
        return is_uncertain(cause, self._terms)


def _still_running(current: Callable[[], T]) -> T | None:
    """Return the running attempt, or None if the task has completed it already."""
    try:
        return current()
    except ConfigurationError:
        return None


def _done(error: NotRecordedError, call: Call) -> Outcome[Any]:
    """Return the outcome of a job that is done, but whose record is not written yet.

    Raising the error would make the queue deliver the job again, and it might run twice.
    """
    if call.identity != (error.scope, error.key):  # the error is about a call inside the job
        raise error
    return Outcome(error.result, duplicate=False, key=call.key, attempt=1)


def _with_uncertain(options: Options, more: Errors) -> Options:
    said = options.policy.over(options.surface).uncertain
    return options.having(policy=Policy(uncertain=(*cast("Errors", said), *more)))


# Errors that send a job back into its queue, without counting as one of its retries.


NOT_BEGUN: Final = (InProgressError, StoreError)
"""Errors of a job that could not be claimed. From a call inside the job, the job has failed."""


def comes_again(error: BaseException, guard: JobGuard, job: Job, *, begun: bool) -> bool:
    """Return whether to put the job back into its queue until another attempt has ended."""
    if isinstance(error, NOT_BEGUN):
        return not begun
    if isinstance(error, LeaseLostError) and guard.owns(error, job):
        # Another attempt has taken over. If the record is gone there is no other attempt, and this
        # one has had its effect.
        return guard.once.get(error.key, scope=error.scope) is not None
    return False


def seconds_until(error: BaseException, guard: JobGuard) -> float:
    """Return the number of seconds after which the job should be tried again."""
    return float(getattr(error, "retry_after", guard.retry_after))
