"""RQ: a message becomes a job, which is sent when Redis has it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from threading import Lock
from typing import Any

from oncekey.compat import call_blocking_async
from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.outbox.errors import UndeliverableError
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import in_turn, is_out_of_reach, job_arguments


class RQJobs:
    """Enqueues jobs for the functions that are named by the destination, as `shop.mail.send`.

    The body is a JSON array with the arguments, or an object with named ones. The job has the id of
    the message. RQ itself refuses a second one while it keeps the first, and `once_job` knows a
    later one by its default key.
    """

    def __init__(self, url: str, *, queue: str = "default", **options: Any) -> None:
        """Remember the URL, the queue, and further options of `Redis.from_url`."""
        with needing("rq", "jobs of RQ"):
            from redis import Redis
            from rq import Queue
        if "unique" not in inspect.signature(Queue.enqueue_job).parameters:
            raise ConfigurationError("this RQ enqueues a job with an id twice; install a newer one")
        self._client = Redis.from_url(url, **options)
        self._queue = Queue(queue, connection=self._client)
        self._turn = Lock()

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Enqueue the jobs. Return None for each that Redis has, or an error."""
        return await in_turn(self._send, messages, deadline, self._turn)

    async def aclose(self) -> None:
        """Close the connections. The next job opens new ones."""
        await call_blocking_async(self._client.close)

    def _send(self, message: OutboxMessage) -> None:
        from rq.exceptions import DuplicateJobError

        args, kwargs = job_arguments(message)
        try:
            job = self._queue.create_job(message.to, args, kwargs, job_id=message.id)
        except ValueError as error:
            raise UndeliverableError(f"RQ does not take it: {error}") from error
        try:
            self._queue.enqueue_job(job, unique=True)
        except DuplicateJobError:
            return  # it was sent before
        except Exception as error:
            if is_out_of_reach(error):
                raise ConnectionError(f"Redis cannot take it now: {error}") from error
            raise
