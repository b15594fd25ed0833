"""The generic wrapper: any function that is called with a job runs it once.

It wraps the function itself, not the queue's hooks: a duplicate returns the first result as if it
had run, so that chains, groups and result back ends go on from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack, overload

from msgspec.structs import replace

from oncekey.errors import ConfigurationError
from oncekey.functions import (
    UNSET,
    AsyncProtected,
    Options,
    Protected,
    Selection,
    checked_function,
    is_async,
)
from oncekey.once import Once, Reconciler
from oncekey.policy import FUNCTION, Policy, PolicyFields

F = TypeVar("F", bound=Callable[..., Any])

JOB: Final = Policy(wait=0, retry_after="5s", fail_mode="open").over(FUNCTION)
"""What holds for a job where nobody says otherwise."""


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
def handler(  # noqa: PLR0913 - each is an option of its own, and all have defaults
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
    """The function, which runs a job once and returns the first result for every duplicate.

    `key` is a function of what the function is called with; an empty key runs unprotected. A
    function that raises frees its key, so that the queue's retry really runs. While another worker
    is at it, `InProgressError` is raised, which the queue's retry turns into a later try.
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

    def decorate(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - one of the two colours
        kind = AsyncProtected if is_async(function) else Protected
        return kind(once, checked_function(function), key, options)

    return decorate if fn is None else decorate(fn)


def job_options(once: object, key: object, **said: Any) -> Options:
    """What was said, over what the `Once` says, over what holds for jobs."""
    if not isinstance(once, Once):
        msg = f"a job needs a Once to keep its records, as in Once('redis://...'), not {once!r}"
        raise ConfigurationError(msg)
    if isinstance(key, type) or not callable(key):
        msg = f"a job needs a function that makes its key, such as by_task_id, not {key!r}"
        raise ConfigurationError(msg)
    return replace(once.having(**said), surface=JOB, kind="job")
