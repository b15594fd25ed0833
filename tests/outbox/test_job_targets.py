"""Messages that become jobs and events: a job has the id of its message, and runs once."""

import asyncio
import signal
from contextlib import asynccontextmanager
from time import monotonic

import dramatiq
import pytest
from celery import Celery  # type: ignore[import-untyped]  # celery has no types
from celery.contrib.testing.worker import start_worker  # type: ignore[import-untyped]  # as above
from celery.signals import setup_logging  # type: ignore[import-untyped]  # as above
from dramatiq.brokers.redis import RedisBroker
from redis import Redis
from rq import Queue, SimpleWorker
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker

from oncekey import ConfigurationError, Once
from oncekey.events import AsyncBus, Memory
from oncekey.jobs.celery import once_task as celery_task
from oncekey.jobs.dramatiq import OnceMiddleware
from oncekey.jobs.taskiq import once_task as taskiq_task
from oncekey.outbox import OutboxMessage
from oncekey.outbox.targets import (
    CeleryTasks,
    DramatiqActors,
    EventBus,
    MessageRefusedError,
    RQJobs,
    TaskiqTasks,
    UndeliverableError,
)
from tests.outbox import charges
from tests.patience import until_async
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server

__all__ = ["another_redis", "empty_redis", "redis_server"]


def _leave_logging_alone(**_):
    """Celery sets nothing up while somebody does it."""


class CeleryWay:
    task = "charge"

    def __init__(self, url):
        self.app = Celery("shop", broker=url, set_as_current=False)
        self.app.task(name="charge", shared=False)(celery_task(Once("memory://"))(charges.charge))
        self.target = CeleryTasks(self.app)

    @asynccontextmanager
    async def worker(self):
        setup_logging.connect(_leave_logging_alone)
        try:
            with start_worker(self.app, perform_ping_check=False):
                yield
        finally:
            setup_logging.disconnect(_leave_logging_alone)


class DramatiqWay:
    task = "charge"

    def __init__(self, url):
        self.broker = RedisBroker(url=url)
        self.broker.add_middleware(OnceMiddleware(Once("memory://")))
        dramatiq.actor(charges.charge, broker=self.broker, queue_name="money", once=True)
        self.target = DramatiqActors(self.broker)

    @asynccontextmanager
    async def worker(self):
        worker = dramatiq.Worker(self.broker, worker_timeout=10)
        worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(worker.stop)


class RQWay:
    task = "tests.outbox.charges.charge_with_rq"

    def __init__(self, url):
        self.url = url
        self.target = RQJobs(url, queue="money")

    @asynccontextmanager
    async def worker(self):
        with Redis.from_url(self.url) as client:
            worker = SimpleWorker([Queue("money", connection=client)], connection=client)
            kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            worker.work(burst=True, logging_level="ERROR")  # signals want the main thread
            for number, handler in kept.items():  # a worker leaves its own
                signal.signal(number, handler)
            yield


class TaskiqWay:
    task = "charge"

    def __init__(self, url):
        self.url = url
        self.broker = ListQueueBroker(url)
        self.broker.task("charge")(taskiq_task(Once("memory://"))(charges.charge))
        self.target = TaskiqTasks(self.broker)

    @asynccontextmanager
    async def worker(self):
        receiver = asyncio.create_task(run_receiver_task(self.broker))
        try:
            yield
        finally:
            receiver.cancel()
            await asyncio.wait([receiver])
            with Redis.from_url(self.url) as client:  # else it might still be given a job
                await until_async(lambda: client.info("clients")["blocked_clients"] == 0)


WAYS = {"celery": CeleryWay, "dramatiq": DramatiqWay, "rq": RQWay, "taskiq": TaskiqWay}


@pytest.fixture(params=WAYS)
def kind(request):
    return WAYS[request.param]


@pytest.fixture
async def way(kind, empty_redis):
    charges.charged.clear()
    way = kind(empty_redis.url)
    yield way
    await way.target.aclose()


def message(to, name, body):
    return OutboxMessage(id=name, to=to, type="charge", attributes={"tenant": "a"}, body=body)


async def published(target, *messages):
    """What became of the messages."""
    return [*await target.publish(messages, monotonic() + 30)]


async def test_a_message_becomes_one_job_however_often_it_is_sent(way):
    first = message(way.task, "m-1", b'["A-17", 40]')
    second = message(way.task, "m-2", b'{"order": "A-18"}')
    assert await published(way.target, first, first, second) == [None] * 3
    async with way.worker():
        await until_async(lambda: len(charges.charged) >= 2)
    last = message(way.task, "m-3", b'["last"]')
    assert await published(way.target, first, last) == [None, None]  # long after it has run
    async with way.worker():
        await until_async(lambda: ("last", 1) in charges.charged)
    assert sorted(charges.charged) == [("A-17", 40), ("A-18", 1), ("last", 1)]


async def test_an_id_is_in_the_queue_of_rq_once(empty_redis):
    way = RQWay(empty_redis.url)
    one = message(way.task, "m-1", b'["A-17"]')
    assert await published(way.target, one) == await published(way.target, one) == [None]
    await way.target.aclose()
    with Redis.from_url(empty_redis.url) as client:
        assert Queue("money", connection=client).job_ids == ["m-1"]


async def test_what_are_no_arguments_is_dead_at_once(way):
    for body in (b"7", b'"A-17"', b"{"):
        (error,) = await published(way.target, message(way.task, "m-1", body))
        assert type(error) is UndeliverableError


async def test_a_broker_out_of_reach_does_not_count(kind, another_redis):
    server = another_redis()
    server.stop()
    way = kind(server.url)
    found = await published(way.target, *[message(way.task, "m-1", b'["A-17"]')] * 2)
    assert [type(error) for error in found] == [ConnectionError] * 2
    await way.target.aclose()


async def test_what_the_queue_cannot_take_is_refused(empty_redis):
    dramatiq_way, rq_way = DramatiqWay(empty_redis.url), RQWay(empty_redis.url)
    (error,) = await published(dramatiq_way.target, message("nobody", "m-1", b"[]"))
    assert type(error) is MessageRefusedError
    assert "import its module" in str(error)
    (error,) = await published(rq_way.target, message(rq_way.task, "an id", b"[]"))
    assert type(error) is UndeliverableError
    await rq_way.target.aclose()


def test_a_broker_that_confirms_nothing_is_refused():
    class Unconfirmed:
        confirm_delivery = False

    with pytest.raises(ConfigurationError, match="confirm_delivery=True"):
        DramatiqActors(Unconfirmed())


# The event bus


async def test_a_message_becomes_one_event():
    bus = AsyncBus(Memory(), domain="orders")
    target = EventBus(bus)
    one = OutboxMessage(
        id="m-1", to="order-7", type="rule", attributes={"seq": 23}, body=b'{"by": "card"}'
    )
    assert await published(target, one) == [None]
    assert await published(target, one) == [None]
    page = await bus.read("order-7")
    assert [(event.stage, event.seq, event.data) for event in page.events] == [
        ("rule", 23, {"by": "card"})
    ]
    (error,) = await published(
        target, OutboxMessage(id="m-2", to="order-7", type="rule", attributes={}, body=b"{")
    )
    assert type(error) is UndeliverableError
    await bus.aclose()


async def test_a_log_out_of_reach_does_not_count(another_redis):
    server = another_redis()
    bus = AsyncBus(server.url, domain="orders")
    server.stop()
    one = OutboxMessage(id="m-1", to="order-7", type="rule", attributes={"seq": 23}, body=b"7")
    assert [type(error) for error in await published(EventBus(bus), one)] == [ConnectionError]
    await bus.aclose()
