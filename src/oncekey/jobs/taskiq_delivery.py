"""What Taskiq tells about the job that runs, and how a job is put back into its queue."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from taskiq import AsyncBroker, Context, NoResultError, TaskiqDepends, TaskiqMessage
from taskiq.kicker import AsyncKicker

from oncekey.errors import ResultNotKeptError
from oncekey.jobs.job import Job
from oncekey.jobs.tag import HEADER, Tag, read_tag
from oncekey.jobs.taskiq_free import free_in

_log = logging.getLogger("oncekey")

_PUT_BACK: Final = "X-Taskiq-requeue"
_RETRIES: Final = "_retries"
_PIPELINE: Final = "_pipe_current_step"
"""A step of taskiq-pipelines: it takes a step without a result for the failure of the whole."""


class Delivery:
    """A message that a worker runs now. In a pool of processes it is the message alone."""

    _broker: AsyncBroker | None
    _loop: asyncio.AbstractEventLoop | None

    def __init__(self, message: TaskiqMessage, broker: AsyncBroker) -> None:
        """To be made on the event loop of the worker."""
        self.message = message
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._put_back_before = message.labels.get(_PUT_BACK)

    def __getstate__(self) -> dict[str, Any]:
        """What another process can do something with."""
        return {**self.__dict__, "_broker": None, "_loop": None}

    def job(self, arguments: dict[str, Any]) -> Job:
        """The delivery as key functions see it."""
        told = self.message.labels
        return Job(
            id=self.message.task_id,
            name=self.message.task_name,
            arguments=arguments,
            attempt=int(told.get(_RETRIES, 0)) + 1,
            queue=str(told.get("queue_name", "")),
            native=self.message,
        )

    @property
    def tag(self) -> Tag | None:
        """What the job was tagged with when it was enqueued."""
        return read_tag(self.message.labels.get(HEADER))

    @property
    def put_back_by_task(self) -> bool:
        """Whether the task itself has put the job back, through Taskiq's context."""
        return self.message.labels.get(_PUT_BACK) != self._put_back_before

    def pause(self, seconds: float) -> float:
        """How long the job may wait here before it is tried again.

        Far less than its own time limit, and than the time after which the broker would deliver it
        once more.
        """
        limits = [float(self.message.labels.get("timeout", "inf"))]
        idle = getattr(self._broker, "idle_timeout", None)  # of streams of Redis, in milliseconds
        if idle:
            limits.append(float(idle) / 1000)
        return min(seconds, min(limits) / 3)

    # On the event loop, and from a thread

    async def put_back_async(self, why: Exception) -> None:
        """The job is in its queue again, with the same id and retries: NoResultError says so.

        Where that cannot be done faithfully nothing is done, and the job has to wait here.
        """
        message, broker = self.message, self._broker
        if broker is None or _PIPELINE in message.labels or not _is_plain(_carried(message)):
            return
        times = int(message.labels.get(_PUT_BACK, 0)) + 1
        kicker: AsyncKicker[Any, Any] = AsyncKicker(
            message.task_name, broker, {**message.labels, _PUT_BACK: str(times)}
        )
        try:
            await kicker.with_task_id(message.task_id).kiq(*message.args, **message.kwargs)
        except Exception as error:  # noqa: BLE001 - the client of a broker may raise anything
            _log.warning("%s[%s] was not put back: %s", message.task_name, message.task_id, error)
            return
        _log.debug("%s[%s] was put back: %s", message.task_name, message.task_id, why)
        raise NoResultError

    def put_back(self, why: Exception) -> None:
        """The same from the thread of a task that blocks."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self.put_back_async(why), self._loop).result()

    async def answer_async(self, why: ResultNotKeptError) -> Any:  # noqa: ANN401 - the task's own
        """What the job returned when it ran, as far as Taskiq has kept it; else None, and a log."""
        broker, task_id = self._broker, self.message.task_id
        if broker is not None and await broker.result_backend.is_result_ready(task_id):
            found = await broker.result_backend.get_result(task_id)
            if not found.is_err:
                return found.return_value
        return self._nothing(why)

    def answer(self, why: ResultNotKeptError) -> Any:  # noqa: ANN401 - as above
        """The same from the thread of a task that blocks."""
        if self._loop is None:
            return self._nothing(why)
        return asyncio.run_coroutine_threadsafe(self.answer_async(why), self._loop).result()

    def _nothing(self, why: ResultNotKeptError) -> None:
        if _PIPELINE in self.message.labels:  # the next step must not go on from a made-up None
            raise why
        _log.warning("%s[%s] returns None: %s", self.message.task_name, self.message.task_id, why)


def delivery_of(context: Context = TaskiqDepends()) -> Delivery:  # noqa: B008 - how Taskiq wants it
    """What a protected task depends on."""
    if HEADER in context.message.labels:
        free_in(context.broker)
    return Delivery(context.message, context.broker)


def _carried(message: TaskiqMessage) -> list[Any]:
    return [*message.args, message.kwargs]


def _is_plain(value: object) -> bool:
    """Whether it is the same when it is sent again.

    Taskiq has made of the arguments what the annotations say, and what it would send of a model
    need not be what it had received.
    """
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)
