"""Deduplicate messages when they are enqueued. Retries never come this way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dramatiq import Actor, Broker, Message, get_broker

from oncekey.errors import ConfigurationError
from oncekey.jobs import enqueue
from oncekey.jobs.dramatiq_actor import job_of
from oncekey.jobs.dramatiq_middleware import OnceMiddleware
from oncekey.jobs.enqueue import Enqueued, Headers
from oncekey.jobs.enqueue_key import enqueue_key
from oncekey.jobs.guard import Guard, KeyFunction
from oncekey.jobs.tag import Until
from oncekey.once import Once
from oncekey.policy import Duration

_PROMISED: Final = ("pipe_target", "group_completion_uuid")
"""Options of a message that something else counts on: it must be sent under its own id."""


def enqueue_once(  # noqa: PLR0913 - each is an option of its own, and most have defaults
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


def _protection(broker: Broker, name: str) -> tuple[Once, Guard]:
    for middleware in broker.middleware:
        if isinstance(middleware, OnceMiddleware) and name in middleware.protected:
            return middleware.once, middleware.protected[name].guard
    msg = (
        f"the actor {name} is not protected, and nobody would tell when its message has ended: "
        f"add OnceMiddleware to the broker first, and declare the actor with once=True"
    )
    raise ConfigurationError(msg)
