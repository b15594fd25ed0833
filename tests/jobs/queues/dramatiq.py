"""Dramatiq 2 on Redis: a worker is taken for dead when a test says so."""

import os
import sys
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import ResultFailure, Results
from dramatiq.results.backends import RedisBackend

from oncekey import Once
from oncekey.jobs import Enqueued
from oncekey.jobs.dramatiq import OnceMiddleware, enqueue_once
from tests.jobs import queues
from tests.jobs.dramatiq_work import register
from tests.jobs.work import JOBS, opened
from tests.patience import PATIENCE

HEARTBEATS = "dramatiq:__heartbeats__"


def make(url: str, once: Once) -> RedisBroker:
    """A broker with every job as an actor."""
    broker = RedisBroker(url=url, heartbeat_timeout=3_600_000, maintenance_chance=1_000_000)
    # A result is waited for as long as the test says, and not as long as redis-py would.
    patient = redis.Redis.from_url(url, socket_timeout=None)
    broker.add_middleware(Results(backend=RedisBackend(client=patient), store_results=True))
    broker.add_middleware(OnceMiddleware(once))
    for name, kind in JOBS.items():
        dramatiq.actor(
            actor_name=name,
            broker=broker,
            once_key=kind.key,
            once_options=kind.options,
            max_retries=5,
            min_backoff=50,
        )(kind.function)
    register(broker)
    return broker


class Queue(queues.Queue):
    def __init__(self, url: str, once: Once) -> None:
        super().__init__(url, once)
        self.broker = make(url, once)
        self.results: Any = self.broker.get_results_backend()
        self.sent: dict[str, dramatiq.Message[Any]] = {}

    def words(self) -> list[str]:
        settings = ("dramatiq_queue_prefetch=1", "dramatiq_worker_timeout=50")
        options = ("--processes", "1", "--threads", "1")
        module = "tests.jobs.queues.dramatiq:broker"
        return ["env", *settings, sys.executable, "-m", "dramatiq", module, *options]

    def put(self, job: str, *args: Any) -> str:
        return self.send(self.broker.get_actor(job).message(*args))

    def put_twice(self, job: str, *args: Any) -> str:
        message = self.broker.get_actor(job).message(*args)
        self.send(message)
        return self.send(message)

    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        kind = JOBS.get(job)
        found = enqueue_once(
            self.broker.get_actor(job),
            args,
            key=JOBS["charge"].key,
            until=kind.until if kind else self.broker.get_actor(job).options["until"],  # type: ignore[arg-type]  # a plain string
        )
        self.sent[found.handle.message_id] = found.handle
        return Enqueued(found.handle.message_id, found.duplicate)

    def send(self, message: dramatiq.Message[Any]) -> str:
        self.broker.enqueue(message)
        self.sent[message.message_id] = message
        return message.message_id

    def result(self, job_id: str) -> Any:
        backend = self.results
        try:
            return self.sent[job_id].get_result(
                backend=backend, block=True, timeout=int(PATIENCE * 1000)
            )
        except ResultFailure as error:
            raise queues.FailedError(str(error)) from error

    def revive(self, job_id: str) -> None:
        """Nobody has been heard of since 1970; who lives is heard of again."""
        beats = self.broker.client.zrange(HEARTBEATS, 0, -1)
        self.broker.client.zadd(HEARTBEATS, dict.fromkeys(beats, 0), xx=True)

    def close(self) -> None:
        self.results.client.close()
        self.broker.client.close()


if "JOBS_BROKER" in os.environ:
    broker = make(os.environ["JOBS_BROKER"], opened())
