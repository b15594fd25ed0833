"""Celery: a message becomes a job, which is sent when the broker has it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

from oncekey.compat import call_blocking_async
from oncekey.extras import needing
from oncekey.outbox.errors import MessageRefusedError
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import in_turn, is_out_of_reach, job_arguments

_PATIENCE: Final = 5.0
_USUAL: Final[dict[str, dict[str, Any]]] = {
    "amqp": {"read_timeout": _PATIENCE, "write_timeout": _PATIENCE},
    "redis": {"socket_timeout": _PATIENCE, "socket_connect_timeout": _PATIENCE},
}
"""The broker is given up after a while, unless the settings of the app say otherwise."""


class CeleryTasks:
    """Sends jobs to the tasks that are named by the destination.

    The body is a JSON array with the arguments, or an object with named ones. The job has the id of
    the message, so that `once_task` knows a second one by its default key. RabbitMQ confirms each
    job, and returns one that no queue takes, whatever the settings of the app say.
    """

    def __init__(self, app: Any) -> None:
        """Take the Celery app, which says where its broker is and how tasks are routed."""
        with needing("celery", "jobs of Celery"):
            import celery  # type: ignore[import-untyped] # noqa: F401 # it has no types, and fails here
        self._app = app
        self._turn = Lock()
        self._connection: Any = None
        self._options: dict[str, Any] = {}

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Send the jobs. Return None for each that the broker has, or an error."""
        return await in_turn(self._send, messages, deadline, self._turn)

    async def aclose(self) -> None:
        """Close the connection. The next job opens a new one."""
        await call_blocking_async(self._close)

    def _send(self, message: OutboxMessage) -> None:
        from amqp.exceptions import MessageNacked  # type: ignore[import-untyped] # it has no types
        from kombu.exceptions import OperationalError

        args, kwargs = job_arguments(message)
        connection = self._connected()
        try:
            self._app.send_task(
                message.to,
                args,
                kwargs,
                task_id=message.id,
                headers=dict(message.attributes),
                connection=connection,
                retry=False,
                **self._options,
            )
        except Exception as error:
            self._close()
            if isinstance(error.__cause__, MessageNacked):
                raise MessageRefusedError("RabbitMQ did not take it: a queue is full") from error
            known = (OperationalError, *connection.connection_errors)
            if isinstance(error, known) or is_out_of_reach(error):
                raise ConnectionError(f"the broker of Celery cannot be used: {error!r}") from error
            if isinstance(error, connection.channel_errors):
                raise MessageRefusedError(f"the broker refused it: {error!r}") from error
            raise

    def _connected(self) -> Any:
        if self._connection is None:
            kind = self._app.connection_for_write().transport.driver_type
            options = {**_USUAL.get(kind, {}), **self._app.conf.broker_transport_options}
            if kind == "amqp":
                options["confirm_publish"] = True
                # RabbitMQ confirms what no queue takes as well, unless it must be returned.
                self._options = {"mandatory": True, "confirm_timeout": _PATIENCE}
            self._connection = self._app.connection_for_write(
                connect_timeout=_PATIENCE, transport_options=options
            )
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release()
