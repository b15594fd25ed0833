"""What the suite asks of a queue. Each queue is a module here with a class `Queue`.

The module is also what a worker process imports: it makes every job of `work.JOBS` a task of that
name, with `work.opened()` as its `Once`, when `JOBS_BROKER` is in its environment.
"""

from abc import ABC, abstractmethod
from typing import Any

from oncekey import Once
from oncekey.jobs import Enqueued


class FailedError(Exception):
    """The queue says that the job failed, with an error of this type and text."""


class Queue(ABC):
    """One queue on one broker, from the side of those who put jobs into it."""

    puts_back = True
    """Whether a job that cannot begin goes back into the queue, as often as need be."""

    def __init__(self, url: str, once: Once) -> None:
        """`once` has the store of the workers, to enqueue with."""
        self.url = url
        self.once = once

    @abstractmethod
    def words(self) -> list[str]:
        """The command line of a worker: one job at a time, SIGTERM ends it."""

    @abstractmethod
    def put(self, job: str, *args: Any) -> str:
        """A job is in the queue; its id."""

    @abstractmethod
    def put_twice(self, job: str, *args: Any) -> str:
        """One job is in the queue twice, with one id, as after a redelivery."""

    @abstractmethod
    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        """A job is in the queue unless there is one like it already; keyed by the order."""

    @abstractmethod
    def result(self, job_id: str) -> Any:
        """What the job returned, as soon as it did; FailedError where it failed."""

    def revive(self, job_id: str) -> None:  # noqa: B027 - most queues need nothing
        """The worker of this job was killed: do what the queue needs to deliver it again."""

    @abstractmethod
    def close(self) -> None:
        """Nothing is open any more."""
