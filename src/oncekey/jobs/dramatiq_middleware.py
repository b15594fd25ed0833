"""The middleware of a broker: it protects the actors that ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from dramatiq import Actor, Broker, Middleware
from dramatiq.middleware import MiddlewareError

from oncekey.errors import ConfigurationError
from oncekey.jobs.dramatiq_actor import ProtectedActor, arriving, tag_of
from oncekey.jobs.dramatiq_putting import PutBack, always_put_back, retries_of
from oncekey.jobs.guard import KeyFunction
from oncekey.jobs.handler import job_options
from oncekey.jobs.keys import by_task_id
from oncekey.jobs.tag import Moment, free
from oncekey.once import Once, Reconciler
from oncekey.policy import Policy, PolicyFields

if TYPE_CHECKING:
    from dramatiq.broker import MessageProxy


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
        result: Any = None,  # noqa: ANN401, ARG002 - as Dramatiq has it
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

    def _free(self, message: MessageProxy, moment: Moment) -> None:
        free(self.once, tag_of(message), moment)
