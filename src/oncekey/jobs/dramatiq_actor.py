"""The function of an actor: what a worker calls runs once."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import dramatiq.asyncio
from dramatiq import Actor, RateLimitExceeded, Retry

from oncekey.errors import ResultNotKeptError
from oncekey.jobs.again import comes_again, seconds_until
from oncekey.jobs.dramatiq_putting import put_back
from oncekey.jobs.guard import Guard, KeyFunction
from oncekey.jobs.job import Job
from oncekey.jobs.keys import by_task_id
from oncekey.jobs.tag import HEADER, Tag, free, free_async, read_tag
from oncekey.once import Once

if TYPE_CHECKING:
    from dramatiq.broker import MessageProxy

_log = logging.getLogger("oncekey")

_CONTROL: Final = (Retry, RateLimitExceeded)
_AWAITED: Final = ("pipe_target", "on_success")

arriving: Final[ContextVar[MessageProxy | None]] = ContextVar("oncekey_message", default=None)
"""The message whose actor the worker is about to call. The call takes it: there is only one."""


def job_of(name: str, message: Any, arguments: dict[str, Any]) -> Job:  # noqa: ANN401 - a message or its proxy
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
        self.guard = Guard(
            once, self._function, name=actor.actor_name, key=key, control=_CONTROL, **options
        )

        @functools.wraps(actor.fn)
        def fn(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the actor's own
            return self._called(args, kwargs)

        self.fn: Callable[..., Any] = fn

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the actor's own
        message = arriving.get()
        if message is not None and message.actor_name == self.guard.name:
            arriving.set(None)
        else:
            message = None
        if message is None and self._key is by_task_id:
            return self._plain(*args, **kwargs)  # a plain call has no id, and is no delivery
        job = job_of(self.guard.name, message, self.guard.arguments(args, kwargs))
        return self._run(_Delivery(message, job), args, kwargs)

    def _deliver(self, delivery: _Delivery, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the actor's own
        """What the actor returns, now or before; else the message is put back, or fails."""

        def begin(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the actor's own
            delivery.begun = True
            free(self.once, delivery.tag, "started")
            return self._function(*args, **kwargs)

        try:
            outcome = self.guard.run(delivery.job, begin, args, kwargs)
        except Exception as error:  # noqa: BLE001 - it is raised again, as itself or as what it means
            return self._instead(delivery, error)
        if not delivery.begun:
            free(self.once, delivery.tag, "started")
        return outcome.value

    async def _deliver_async(
        self, delivery: _Delivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - the actor's own
        """The same on Dramatiq's event loop. An actor that is cut off keeps its key to its end."""

        async def begin(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the actor's own
            delivery.begun = True
            await free_async(self.once, delivery.tag, "started")
            return await self._function(*args, **kwargs)

        try:
            outcome = await self.guard.run_async(delivery.job, begin, args, kwargs)
        except Exception as error:  # noqa: BLE001 - it is raised again, as itself or as what it means
            return self._instead(delivery, error)
        if not delivery.begun:
            await free_async(self.once, delivery.tag, "started")
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


def _coroutine_function(fn: Any) -> Callable[..., Any] | None:  # noqa: ANN401 - any function
    """The coroutine function that Dramatiq has made blocking; None for one that blocks itself."""
    if getattr(fn, "__globals__", None) is vars(dramatiq.asyncio):
        found: Callable[..., Any] = fn.__wrapped__
        return found
    return None


_blocking = dramatiq.asyncio.async_to_sync
