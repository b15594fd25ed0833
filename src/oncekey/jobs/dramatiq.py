"""Dramatiq: a message that is delivered twice runs once and hands back its first result.

    broker.add_middleware(OnceMiddleware(once))

    @dramatiq.actor(once_key=by_fields("order_id"), store_results=True)
    def charge(order_id: str) -> str: ...

Actors ask for it: `once=True` takes the key of the middleware, `once_key` another one. Messages
with one key are not even enqueued twice with `enqueue_once`.
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
from oncekey.jobs import enqueue
from oncekey.jobs.enqueue import (
    HEADER,
    Enqueued,
    Headers,
    JobMoment,
    Tag,
    Until,
    enqueue_key,
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
    """The message could not begin here and comes again later. This is no failure of its actor."""


def put_back(broker: Broker, message: MessageProxy, seconds: float, why: BaseException) -> PutBack:
    """What to raise, so that the message comes again with the same id and retries."""
    delay = max(1, math.ceil(seconds * 1000))
    if retries_of(broker) is None:  # nobody would send it again, and an error is a success
        _send(broker, message, delay)
    else:  # who sends it again counts up first
        message.options[_RETRIES] = message.options.get(_RETRIES, 0) - 1
    _log.debug(
        "%s[%s] comes back in %.3g s: %s", message.actor_name, message.message_id, seconds, why
    )
    return PutBack(str(why), delay=delay)


def _send(broker: Broker, message: MessageProxy, delay: int) -> None:
    try:
        broker.enqueue(message, delay=delay)  # type: ignore[arg-type]  # a proxy stands for a message
    except Exception:
        message.fail()  # among the dead letters it is not lost
        raise


def retries_of(broker: Broker) -> Retries | None:
    """The broker's retrying, if it has any."""
    return next((one for one in broker.middleware if isinstance(one, Retries)), None)


def always_put_back(broker: Broker, actor: Actor[Any, Any]) -> None:
    """A rule of the user's about what is retried is not asked about what is put back."""
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


# The function of an actor: what a worker calls runs once.


_CONTROL: Final = (Retry, RateLimitExceeded)
_AWAITED: Final = ("pipe_target", "on_success")

arriving: Final[ContextVar[MessageProxy | None]] = ContextVar("oncekey_message", default=None)
"""The message whose actor the worker is about to call. The call takes it: there is only one."""


def job_of(name: str, message: Any, arguments: dict[str, Any]) -> Job:
    """The message as key functions see it. A plain call has none, and no id."""
    if message is None:
        return Job(name=name, arguments=arguments)
    return Job(
        id=message.message_id,
        name=name,
        arguments=arguments,
        attempt=message.options.get("retries", 0) + 1,
        redelivered=getattr(message, "redelivered", None),  # only RabbitMQ tells
        queue=message.queue_name,
        native=message,
    )


def tag_of(message: MessageProxy | None) -> Tag | None:
    """The tag of a message that was deduplicated when it was enqueued."""
    return None if message is None else read_tag(message.options.get(HEADER))


class ProtectedActor:
    """An actor, and how its messages are protected."""

    def __init__(
        self, once: Once, actor: Actor[Any, Any], key: KeyFunction, options: dict[str, Any]
    ) -> None:
        """Every mistake that can be seen without a message shows now."""
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
            return self._plain(*args, **kwargs)  # a plain call has no id, and is no delivery
        job = job_of(self.guard.name, message, self.guard.arguments(args, kwargs))
        return self._run(_Delivery(message, job), args, kwargs)

    def _deliver(self, delivery: _Delivery, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the actor returns, now or before; else the message is put back, or fails."""

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
        """The same on Dramatiq's event loop. An actor that is cut off keeps its key to its end."""

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
        """What the error comes to: the message is put back, has no result any more, or fails."""
        message, job, begun = delivery.message, delivery.job, delivery.begun
        if message is None:  # nobody could put a plain call back
            raise error
        if comes_again(error, self.guard, job, begun=begun):
            seconds = seconds_until(error, self.guard)
            raise put_back(self._actor.broker, message, seconds, error) from None
        # What goes on from the message must not go on from a made-up None.
        if begun or not isinstance(error, ResultNotKeptError) or self._awaited(message):
            raise error
        _log.warning("%s[%s] returns None: %s", job.name, job.id, error)

    def _awaited(self, message: MessageProxy) -> bool:
        return any(message.options.get(one) or self._actor.options.get(one) for one in _AWAITED)


class _Delivery:
    """A call of an actor: the message it is for, if any, and whether the actor has begun."""

    def __init__(self, message: MessageProxy | None, job: Job) -> None:
        self.message = message
        self.job = job
        self.tag = tag_of(message)
        self.begun = False


def _coroutine_function(fn: Any) -> Callable[..., Any] | None:
    """The coroutine function that Dramatiq has made blocking; None for one that blocks itself."""
    if getattr(fn, "__globals__", None) is vars(dramatiq.asyncio):
        found: Callable[..., Any] = fn.__wrapped__
        return found
    return None


_blocking = dramatiq.asyncio.async_to_sync


# The middleware of a broker: it protects the actors that ask for it.


class ActorMistakeError(ConfigurationError, MiddlewareError):
    """An actor cannot be protected as it asks. Dramatiq lets through what is of its own kind."""


class OnceMiddleware(Middleware):
    """Messages of actors that ask for it run once, and every duplicate returns the first result.

    An actor asks with `once=True`, with a `once_key` of its own, or with `once_options`, such as
    `{"ttl": "7d"}`; what it does not say, the middleware does.
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
        """`key` is a function of the `Job`. Keys are kept under the actor's name."""
        job_options(once, key, reconcile=reconcile, policy=policy, fields=fields)
        self.once = once
        self._key = key
        self._said = {"fingerprint": fingerprint, "reconcile": reconcile, "policy": policy}
        self._fields: dict[str, Any] = {**fields}
        self.protected: dict[str, ProtectedActor] = {}

    @property
    def actor_options(self) -> set[str]:
        """What an actor may say about its protection."""
        return {"once", "once_key", "once_options"}

    # Dramatiq swallows what hooks raise after the fact, and the actor would run unprotected.
    def before_declare_actor(self, broker: Broker, actor: Actor[Any, Any]) -> None:
        """An actor that asks for it is protected from now on; ConfigurationError if it cannot."""
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
        """The call of the actor that comes now is for this message."""
        arriving.set(message if message.actor_name in self.protected else None)

    # When another message like it may be enqueued

    def after_process_message(
        self,
        broker: Broker,
        message: MessageProxy,
        *,
        result: Any = None,  # noqa: ARG002 - as Dramatiq has it
        exception: BaseException | None = None,
    ) -> None:
        """A message that succeeded no longer stands in the way of another one."""
        if exception is None and not message.failed:
            self._free(message, "succeeded")
        elif retries_of(broker) is None and not isinstance(exception, PutBack):
            self._free(message, "failed")  # without retries there is no more to come

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002 - as Dramatiq has it
        """Neither does one that another middleware has skipped."""
        self._free(message, "failed")

    def after_nack(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002 - as Dramatiq has it
        """Nor one that was retried as often as it may be."""
        self._free(message, "failed")

    def _free(self, message: MessageProxy, moment: JobMoment) -> None:
        free_tagged(self.once, tag_of(message), moment)


# Deduplicate messages when they are enqueued. Retries never come this way.


_PROMISED: Final = ("pipe_target", "group_completion_uuid")
"""Options of a message that something else counts on: it must be sent under its own id."""


def enqueue_once(
    work: Actor[Any, Any] | Message[Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: KeyFunction | str,
    until: Until = "finished",
    ttl: Duration | None = None,
    delay: int | None = None,
    broker: Broker | None = None,
) -> Enqueued[Message[Any]]:
    """The message is in the queue, or one like it was: then the handle has the first one's id.

    `work` is an actor, with its arguments, or a message that is not sent yet. Its actor must be
    protected. `key` is a function of the `Job`, or the key itself. `delay` is in milliseconds.
    """
    if isinstance(work, Actor):
        broker = broker or work.broker
        work = work.message_with_options(args=args, kwargs=dict(kwargs or {}))
    broker = broker or get_broker()
    message = _checked(work)
    once, guard = _protection(broker, message.actor_name)
    job = job_of(guard.name, message, guard.arguments(message.args, message.kwargs))
    sent: list[Message[Any]] = []

    def publish(headers: Headers) -> str:
        sent.append(broker.enqueue(message.copy(options=dict(headers)), delay=delay))
        return message.message_id

    found = enqueue.enqueue_once(
        once, enqueue_key(key, job), publish, name=guard.name, ttl=ttl, until=until
    )
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
