"""Dramatiq: run a message that is delivered twice once, and return its first result.

    broker.add_middleware(OnceMiddleware(once))

    @dramatiq.actor(once_key=by_fields("order_id"), store_results=True)
    def charge(order_id: str) -> str: ...

An actor asks for protection: `once=True` uses the key of the middleware, `once_key` another one.
`enqueue_once` does not enqueue two messages with the same key.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Unpack

from oncekey.errors import ConfigurationError, ResultNotKeptError
from oncekey.extras import needing
from oncekey.jobs.enqueue import (
    HEADER,
    Enqueued,
    EnqueueRule,
    Headers,
    JobMoment,
    Tag,
    Until,
    enqueue_key,
    enqueue_known,
    free_tagged,
    free_tagged_async,
    read_tag,
)
from oncekey.jobs.job import Job, by_task_id
from oncekey.jobs.protect import JobGuard, KeyFunction, comes_again, job_options, seconds_until
from oncekey.once import Once, Reconciler
from oncekey.policy import Duration, Policy, PolicyFields

with needing("dramatiq", __name__):
    import dramatiq.asyncio
    from dramatiq import Actor, Broker, Message, Middleware, RateLimitExceeded, Retry, get_broker
    from dramatiq.middleware import MiddlewareError, Retries


if TYPE_CHECKING:
    from dramatiq.broker import MessageProxy


_log = logging.getLogger("oncekey")
_RETRIES: Final = "retries"


class PutBack(Retry):
    """Raised to put a message back that could not begin here. It is no failure of the actor."""


def put_back(broker: Broker, message: MessageProxy, seconds: float, why: BaseException) -> PutBack:
    """Return the exception that makes the message come again, with the same id and retries."""
    delay = max(1, math.ceil(seconds * 1000))
    if retries_of(broker) is None:  # Dramatiq would take the error for a success
        _send(broker, message, delay)
    else:  # Retries adds 1 before it sends the message again
        message.options[_RETRIES] = message.options.get(_RETRIES, 0) - 1
    _log.debug(
        "%s[%s] comes back in %.3g s: %s", message.actor_name, message.message_id, seconds, why
    )
    return PutBack(str(why), delay=delay)


def _send(broker: Broker, message: MessageProxy, delay: int) -> None:
    try:
        broker.enqueue(message, delay=delay)  # type: ignore[arg-type]  # a proxy stands for a message
    except Exception:
        message.fail()  # the dead letter queue keeps it
        raise


def retries_of(broker: Broker) -> Retries | None:
    """Return the broker's Retries middleware, or None."""
    return next((one for one in broker.middleware if isinstance(one, Retries)), None)


def always_put_back(broker: Broker, actor: Actor[Any, Any]) -> None:
    """Make the actor's `retry_when` always accept a message that is put back."""
    retries = retries_of(broker)
    rule = actor.options.get("retry_when", retries and retries.retry_when)
    if rule is not None:
        actor.options["retry_when"] = _but_put_back(rule)


def _but_put_back(
    rule: Callable[[int, BaseException], bool],
) -> Callable[[int, BaseException], bool]:
    def retry_when(retries: int, error: BaseException) -> bool:
        return isinstance(error, PutBack) or rule(retries, error)

    return retry_when


# The function of an actor, wrapped so that a message runs once.


_CONTROL: Final = (Retry, RateLimitExceeded)
_AWAITED: Final = ("pipe_target", "on_success")

arriving: Final[ContextVar[MessageProxy | None]] = ContextVar("oncekey_message", default=None)
"""The message that the worker is about to process. The first call of its actor takes it."""


def job_of(name: str, message: Any, arguments: dict[str, Any]) -> Job:
    """Return the job for a message, as key functions see it.

    `message` is None for a plain call; its job has no id.
    """
    if message is None:
        return Job(name=name, arguments=arguments)
    return Job(
        id=message.message_id,
        name=name,
        arguments=arguments,
        attempt=message.options.get("retries", 0) + 1,
        redelivered=getattr(message, "redelivered", None),  # only RabbitMQ sets it
        queue=message.queue_name,
        native=message,
    )


def tag_of(message: MessageProxy | None) -> Tag | None:
    """Return the tag of a message that was deduplicated at enqueue, or None."""
    return None if message is None else read_tag(message.options.get(HEADER))


class ProtectedActor:
    """An actor, and how its messages are protected."""

    def __init__(
        self, once: Once, actor: Actor[Any, Any], key: KeyFunction, options: dict[str, Any]
    ) -> None:
        """Check everything that can be checked without a message."""
        self.once = once
        self._actor = actor
        self._key = key
        self._plain = actor.fn
        coroutine = _coroutine_function(actor.fn)
        self._function: Callable[..., Any] = coroutine or actor.fn
        self._run = self._deliver if coroutine is None else _blocking(self._deliver_async)
        self.guard = JobGuard(
            once, self._function, name=actor.actor_name, key=key, control=_CONTROL, **options
        )

        @functools.wraps(actor.fn)
        def fn(*args: Any, **kwargs: Any) -> Any:
            return self._called(args, kwargs)

        self.fn: Callable[..., Any] = fn

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        message = arriving.get()
        if message is not None and message.actor_name == self.guard.name:
            arriving.set(None)
        else:
            message = None
        if message is None and self._key is by_task_id:
            return self._plain(*args, **kwargs)  # a plain call is no delivery and has no id
        job = job_of(self.guard.name, message, self.guard.arguments(args, kwargs))
        return self._run(_Delivery(message, job), args, kwargs)

    def _deliver(self, delivery: _Delivery, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the actor, or return its first result. Raise to put the message back or fail it."""

        def begin(*args: Any, **kwargs: Any) -> Any:
            delivery.begun = True
            free_tagged(self.once, delivery.tag, "started")
            return self._function(*args, **kwargs)

        try:
            outcome = self.guard.run(delivery.job, begin, args, kwargs)
        except Exception as error:  # noqa: BLE001 - it is raised again, as itself or as what it means
            return self._instead(delivery, error)
        if not delivery.begun:
            free_tagged(self.once, delivery.tag, "started")
        return outcome.value

    async def _deliver_async(
        self, delivery: _Delivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Do the same on Dramatiq's event loop. A cancelled actor holds its key until it ends."""

        async def begin(*args: Any, **kwargs: Any) -> Any:
            delivery.begun = True
            await free_tagged_async(self.once, delivery.tag, "started")
            return await self._function(*args, **kwargs)

        try:
            outcome = await self.guard.run_async(delivery.job, begin, args, kwargs)
        except Exception as error:  # noqa: BLE001 - it is raised again, as itself or as what it means
            return self._instead(delivery, error)
        if not delivery.begun:
            await free_tagged_async(self.once, delivery.tag, "started")
        return outcome.value

    def _instead(self, delivery: _Delivery, error: Exception) -> None:
        """Raise the error, or PutBack to deliver the message again.

        Return None for a duplicate with a result that was not kept.
        """
        message, job, begun = delivery.message, delivery.job, delivery.begun
        if message is None:  # a plain call cannot be put back
            raise error
        if comes_again(error, self.guard, job, begun=begun):
            seconds = seconds_until(error, self.guard)
            raise put_back(self._actor.broker, message, seconds, error) from None
        # A pipeline or callback must not continue from a made-up None.
        if begun or not isinstance(error, ResultNotKeptError) or self._awaited(message):
            raise error
        _log.warning("%s[%s] returns None: %s", job.name, job.id, error)

    def _awaited(self, message: MessageProxy) -> bool:
        return any(message.options.get(one) or self._actor.options.get(one) for one in _AWAITED)


class _Delivery:
    """One call of an actor: its message, if any, and whether the actor has begun."""

    def __init__(self, message: MessageProxy | None, job: Job) -> None:
        self.message = message
        self.job = job
        self.tag = tag_of(message)
        self.begun = False


def _coroutine_function(fn: Any) -> Callable[..., Any] | None:
    """Return the coroutine function that Dramatiq wrapped as a blocking one, or None."""
    if getattr(fn, "__globals__", None) is vars(dramatiq.asyncio):
        found: Callable[..., Any] = fn.__wrapped__
        return found
    return None


_blocking = dramatiq.asyncio.async_to_sync


# The broker middleware, which protects the actors that ask for it.


class ActorMistakeError(ConfigurationError, MiddlewareError):
    """An actor cannot be protected as it asks.

    It is a MiddlewareError, since Dramatiq lets no other error of a hook through.
    """


class OnceMiddleware(Middleware):
    """Middleware that runs messages once and returns the first result to every duplicate.

    An actor asks for it with `once=True`, with its own `once_key`, or with `once_options`, such as
    `{"ttl": "7d"}`. The middleware's options apply where the actor gives none.
    """

    def __init__(
        self,
        once: Once,
        key: KeyFunction = by_task_id,
        *,
        fingerprint: KeyFunction | None = None,
        reconcile: Reconciler | None = None,
        policy: Policy | None = None,
        **fields: Unpack[PolicyFields],
    ) -> None:
        """Set the defaults of all actors.

        `key` is a function of the `Job`. Keys are kept under the actor's name.
        """
        job_options(once, key, reconcile=reconcile, policy=policy, fields=fields)
        self.once = once
        self._key = key
        self._said = {"fingerprint": fingerprint, "reconcile": reconcile, "policy": policy}
        self._fields: dict[str, Any] = {**fields}
        self.protected: dict[str, ProtectedActor] = {}

    @property
    def actor_options(self) -> set[str]:
        """The options by which an actor sets its protection."""
        return {"once", "once_key", "once_options"}

    # This is not the `after` hook: Dramatiq swallows what that raises, and the actor would run
    # unprotected.
    def before_declare_actor(self, broker: Broker, actor: Actor[Any, Any]) -> None:
        """Protect an actor that asks for it. Raise ConfigurationError if that is impossible."""
        said = actor.options
        if not said.get("once", "once_key" in said or "once_options" in said):
            return
        options = {**self._said, **self._fields, **said.get("once_options", {})}
        try:
            found = ProtectedActor(self.once, actor, said.get("once_key", self._key), options)
        except Exception as error:
            msg = f"the actor {actor.actor_name} cannot be protected: {error}"
            raise ActorMistakeError(msg) from error
        self.protected[actor.actor_name] = found
        actor.fn = found.fn
        always_put_back(broker, actor)

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002 - as Dramatiq has it
        """Remember the message for the call of the actor that follows."""
        arriving.set(message if message.actor_name in self.protected else None)

    # Freeing of enqueue keys

    def after_process_message(
        self,
        broker: Broker,
        message: MessageProxy,
        *,
        result: Any = None,  # noqa: ARG002 - as Dramatiq has it
        exception: BaseException | None = None,
    ) -> None:
        """Free the enqueue key of a message that succeeded, or that failed and has no retries."""
        if exception is None and not message.failed:
            self._free(message, "succeeded")
        elif retries_of(broker) is None and not isinstance(exception, PutBack):
            self._free(message, "failed")  # without retries it will not be delivered again

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002 - as Dramatiq has it
        """Free the enqueue key of a message that another middleware has skipped."""
        self._free(message, "failed")

    def after_nack(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002 - as Dramatiq has it
        """Free the enqueue key of a message that has used up its retries."""
        self._free(message, "failed")

    def _free(self, message: MessageProxy, moment: JobMoment) -> None:
        free_tagged(self.once, tag_of(message), moment)


# Deduplication of messages at enqueue. Retries do not pass through here.


_PROMISED: Final = ("pipe_target", "group_completion_uuid")
"""Options of a message that others depend on. Such a message must be sent under its own id."""


def enqueue_once(
    work: Actor[Any, Any] | Message[Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: KeyFunction | str,
    until: Until = "finished",
    ttl: Duration | None = None,
    per: Duration | None = None,
    delay: int | None = None,
    broker: Broker | None = None,
) -> Enqueued[Message[Any]]:
    """Enqueue the message, or return a handle with the id of the one with the same key.

    `work` is an actor, with its arguments, or a message that is not sent yet. Its actor must be
    protected. `key` is a function of the `Job`, or the key itself. `delay` is in milliseconds. With
    `per`, one message is enqueued in each period of that length, whatever `until` and `ttl` say.
    """
    if isinstance(work, Actor):
        broker = broker or work.broker
        work = work.message_with_options(args=args, kwargs=dict(kwargs or {}))
    broker = broker or get_broker()
    message = _checked(work)
    once, guard = _protection(broker, message.actor_name)
    job = job_of(guard.name, message, guard.arguments(message.args, message.kwargs))
    sent: list[Message[Any]] = []

    def publish(headers: Headers, handle: str) -> None:
        again = message.copy(message_id=handle, options=dict(headers))
        sent.append(broker.enqueue(again, delay=delay))

    made = enqueue_key(key, job)
    rule: EnqueueRule = {"until": until, "ttl": ttl, "per": per}
    found = enqueue_known(once, made, publish, message.message_id, guard.name, **rule)
    handle = sent[0] if sent else message.copy(message_id=found.handle)
    return Enqueued(handle, duplicate=found.duplicate)


def _checked(message: Message[Any]) -> Message[Any]:
    if not isinstance(message, Message):
        msg = f"enqueue_once needs an actor or a message, not {message!r}"
        raise ConfigurationError(msg)
    if any(message.options.get(one) for one in _PROMISED):
        msg = f"{message} is part of a pipeline or group, which waits for its own id: just send it"
        raise ConfigurationError(msg)
    return message


def _protection(broker: Broker, name: str) -> tuple[Once, JobGuard]:
    for middleware in broker.middleware:
        if isinstance(middleware, OnceMiddleware) and name in middleware.protected:
            return middleware.once, middleware.protected[name].guard
    msg = (
        f"the actor {name} is not protected, and nobody would tell when its message has ended: "
        f"add OnceMiddleware to the broker first, and declare the actor with once=True"
    )
    raise ConfigurationError(msg)


__all__ = ["OnceMiddleware", "PutBack", "enqueue_once"]
