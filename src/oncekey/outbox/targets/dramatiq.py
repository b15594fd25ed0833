"""Dramatiq: a message becomes a job, which is sent when the broker has it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.outbox.errors import MessageRefusedError
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import in_turn, is_out_of_reach, job_arguments


class DramatiqActors:
    """Sends jobs to the actors that are named by the destination.

    The body is a JSON array with the arguments, or an object with named ones. The job has the id of
    the message, so that `OnceMiddleware` knows a second one by its default key. The actors must be
    declared where the relay runs, since they say in which queue their jobs are.
    """

    def __init__(self, broker: Any) -> None:
        """Take the broker. One of RabbitMQ must have `confirm_delivery=True`."""
        with needing("dramatiq", "jobs of Dramatiq"):
            import dramatiq  # noqa: F401 - fails here rather than in the relay
        if getattr(broker, "confirm_delivery", True) is not True:
            msg = (
                "a job counts as sent when RabbitMQ has confirmed it: make the broker with "
                "RabbitmqBroker(..., confirm_delivery=True)"
            )
            raise ConfigurationError(msg)
        self._broker = broker
        self._turn = Lock()

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Send the jobs. Return None for each that the broker has, or an error."""
        return await in_turn(self._send, messages, deadline, self._turn)

    async def aclose(self) -> None:
        """Do nothing: the broker belongs to whoever made it."""

    def _send(self, message: OutboxMessage) -> None:
        from dramatiq import Message
        from dramatiq.errors import ActorNotFound, BrokerConnectionError

        args, kwargs = job_arguments(message)
        try:
            actor = self._broker.get_actor(message.to)
        except ActorNotFound:
            msg = f"the broker has no actor {message.to!r}; import its module where the relay runs"
            raise MessageRefusedError(msg) from None
        job: Message[Any] = Message(
            queue_name=actor.queue_name,
            actor_name=actor.actor_name,
            args=tuple(args),
            kwargs=kwargs,
            options={},
            message_id=message.id,
        )
        try:
            self._broker.enqueue(job)
        except Exception as error:
            if isinstance(error, BrokerConnectionError) or is_out_of_reach(error):
                raise ConnectionError(f"the broker of Dramatiq cannot be used: {error}") from error
            raise
