"""Jobs of Celery that go back into their queue, and those that must not."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from secrets import token_hex

import pytest
from celery import Celery  # type: ignore[import-untyped]  # celery has no types
from celery.app.trace import (  # type: ignore[import-untyped]  # celery has no types
    build_tracer,
)
from celery.signals import worker_ready  # type: ignore[import-untyped]  # as above
from kombu.entity import Exchange, Queue

from oncekey import (
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    Once,
)
from oncekey.jobs import by_fields
from oncekey.jobs.celery import OnceTask, _queue_of, once_task
from oncekey.jobs.enqueue import HEADER, enqueue_known, read_tag
from tests.faulty import FaultyStore
from tests.jobs.celery_fixtures import BY_ORDER, app, in_another_thread, once, ran
from tests.patience import PATIENCE

__all__ = ["app", "once", "ran"]


def deliver(app, task, *args, **request):
    """What a worker does with a message; how it ended."""
    place = {"exchange": "", "routing_key": app.conf.task_default_queue}
    given = {"id": "job-1", "delivery_info": place, **request}
    done = build_tracer(task.name, task, app=app)("job-1", args, {}, given)
    return "SUCCESS" if done.info is None else done.info.state, done.retval


def put_back(app):
    """The headers of what is first in the queue."""
    with app.connection_for_read() as connection:
        found = connection.default_channel.basic_get(app.conf.task_default_queue, no_ack=True)
    return found and found.headers


@pytest.fixture
def queued(app):
    """An app whose jobs go into a queue in memory."""
    app.conf.update(task_always_eager=False, broker_url="memory://")
    app.conf.task_default_queue = token_hex(4)  # memory is shared by all apps
    return app


def test_what_is_in_progress_goes_back_as_it_came(queued, once, ran):
    @queued.task(name="work", max_retries=0)
    @once_task(once, BY_ORDER)
    def work(order: str) -> None:
        ran.append(order)

    with once.options(scope="work").attempt("a"):
        headers = {"x": "y"}
        state, _ = in_another_thread(deliver, queued, work, "a", retries=3, headers=headers)
    assert (state, ran) == ("IGNORED", [])
    back = put_back(queued)
    assert {name: back[name] for name in ("id", "retries", "x")} == {
        "id": "job-1",
        "retries": 3,
        "x": "y",
    }
    assert deliver(queued, work, "a") == ("SUCCESS", None)
    assert put_back(queued) is None


@pytest.mark.parametrize(("limit", "told"), [(0, 1), (1, 0), (None, 0)])
def test_a_worker_tells_of_a_queue_that_gives_up_at_once(queued, once, limit, told, caplog):
    name = queued.conf.task_default_queue
    arguments = {} if limit is None else {"x-delivery-limit": limit}
    queued.conf.task_queues = [Queue(name, queue_arguments=arguments)]

    def said():
        worker_ready.send(sender=Ready(queued))
        return [one for one in caplog.messages if f"{name} has x-delivery-limit 0" in one]

    assert said() == []  # no task is protected
    queued.task(once_task(once)(nothing), name="work")
    assert len(said()) == told


class Ready:
    """What tells Celery that a worker is ready, as far as others look at it."""

    def __init__(self, app):
        self.app = app


def nothing() -> None:
    """It is never run."""


def test_it_comes_back_within_a_third_of_the_visibility_timeout(queued, once):
    """A longer delay would make the broker deliver it once more meanwhile."""
    queued.conf.broker_transport_options = {"visibility_timeout": 60}

    @queued.task(name="work")
    @once_task(once, BY_ORDER, retry_after="1h")
    def work(order: str) -> None:
        """It is never run."""

    before = datetime.now(UTC)
    with once.options(scope="work").attempt("a"):
        in_another_thread(deliver, queued, work, "a")
    pause = timedelta(seconds=20)
    assert before <= datetime.fromisoformat(put_back(queued)["eta"]) - pause <= datetime.now(UTC)


def test_a_job_that_was_taken_over_waits_for_the_winner(queued, once):
    @queued.task(name="work")
    @once_task(once)
    def work() -> None:
        elsewhere = Once(once.store, scope="work")
        elsewhere.forget("job-1", force=True)
        in_another_thread(elsewhere.attempt("job-1").__enter__)

    assert deliver(queued, work)[0] == "IGNORED"
    assert put_back(queued)["id"] == "job-1"


def test_a_job_whose_record_is_gone_does_not_run_again_by_itself(queued, once):
    @queued.task(name="work")
    @once_task(once)
    def work() -> None:
        once.forget("job-1", scope="work", force=True)

    assert deliver(queued, work)[0] == "FAILURE"
    assert put_back(queued) is None


def test_trouble_with_another_key_is_the_tasks_own(queued, once):
    @queued.task(name="work")
    @once_task(once)
    def work() -> None:
        error = InProgressError("busy", key="other", retry_after=1)
        raise error

    @queued.task(name="lost")
    @once_task(once)
    def lost() -> None:
        error = LeaseLostError("lost", key="other")
        raise error

    @queued.task(name="done")
    @once_task(once)
    def done() -> None:
        error = NotRecordedError("done", key="other", result=1)
        raise error

    for task in (work, lost, done):
        assert deliver(queued, task)[0] == "FAILURE"
    assert put_back(queued) is None


@pytest.fixture
def without_broker(queued):
    """An app that cannot send."""
    hasty = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
    queued.conf.update(broker_url="redis://127.0.0.1:1/0", broker_transport_options=hasty)
    queued.conf.task_publish_retry = False
    return queued


def test_where_it_cannot_be_put_back_it_waits_in_place(without_broker, once, ran, caplog):
    """A broker that counts deliveries would drop a job that is rejected again and again."""

    @without_broker.task(name="work")
    @once_task(once, BY_ORDER, retry_after="10ms")
    def work(order: str) -> str:
        ran.append(order)
        return "here"

    refused = threading.Event()
    elsewhere = Once(once.store, scope="work")

    def told(record):
        if "work[job-1] could not be put back" in record.getMessage():
            refused.set()
        return True

    caplog.handler.addFilter(told)
    with caplog.at_level(logging.WARNING, "oncekey"), ThreadPoolExecutor(1) as pool:
        with elsewhere.attempt("a") as attempt:
            delivered = pool.submit(deliver, without_broker, work, "a")
            assert refused.wait(PATIENCE)
            attempt.complete("elsewhere")
        assert delivered.result(PATIENCE) == ("SUCCESS", "elsewhere")
    assert ran == []


@pytest.mark.parametrize("limit", ["visibility", "time"])
def test_it_waits_a_third_of_its_limits_before_it_is_rejected(without_broker, once, limit):
    options = {"time_limit": 0.3} if limit == "time" else {}
    if limit == "visibility":
        without_broker.conf.broker_transport_options["visibility_timeout"] = 0.3

    @without_broker.task(name="work", **options)
    @once_task(once, BY_ORDER)
    def work(order: str) -> None:
        """It is never run."""

    began = time.monotonic()
    with once.options(scope="work").attempt("a"):
        state, told = in_another_thread(deliver, without_broker, work, "a")
    assert (state, told.exception.exc.requeue) == ("REJECTED", True)
    assert time.monotonic() - began >= 0.1


def test_the_queue_that_delivered_a_job_is_found():
    """Celery sends a job that RabbitMQ is to delay to the default queue, unless one is named."""
    app = Celery("queues", broker="memory://", set_as_current=False)
    app.conf.task_queues = [Queue(one, Exchange(f"to-{one}"), one) for one in ("first", "second")]
    delayed = "0." * 27 + "1.second"
    for exchange, key, found in (
        ("to-second", "second", "second"),
        ("celery_delayed_delivery", delayed, "second"),
        ("", "anywhere", "anywhere"),
        ("to-first", "second", None),
        (None, None, None),
    ):
        assert _queue_of(app, {"exchange": exchange, "routing_key": key}) == found
    app.close()


# Jobs that somebody counts on are sent, whatever is in the queue


def test_one_of_two_equal_jobs_is_sent(queued, once):
    task = report(queued, once)
    first, second = (task.delay("2026-11") for _ in range(2))
    assert (first.duplicate, second.duplicate, second.id) == (False, True, first.id)
    assert task.enqueue_once("2026-12").duplicate is False
    assert task.enqueue_once("2026-12").duplicate is True
    tag = read_tag(put_back(queued)[HEADER])
    assert (tag.scope, tag.key, tag.until) == ("enqueue:report", "2026-11", "finished")


@pytest.mark.row("J9")
@pytest.mark.parametrize(
    ("until", "state", "over"),
    [
        ("finished", "FAILURE", True),
        ("finished", "REVOKED", True),
        ("finished", "RETRY", False),
        ("started", "SUCCESS", True),
        ("succeeded", "REVOKED", False),
        ("succeeded", "SUCCESS", True),
        ("ttl", "SUCCESS", False),
    ],
)
def test_what_the_result_back_end_knows_counts(queued, once, until, state, over):
    """A worker that was killed has told of its job's end to nobody."""
    queued.conf.result_backend = "cache+memory://"
    task = report(queued, once, once_until=until)
    first = task.delay("2026-11")
    queued.backend.store_result(first.id, None, state)
    second = task.delay("2026-11")
    assert second.duplicate is not over
    assert (second.id == first.id) is not over


def test_a_result_back_end_that_is_down_is_not_asked(queued, once):
    queued.conf.result_backend = "redis://127.0.0.1:1/0"
    queued.conf.result_backend_always_retry = False
    task = report(queued, once, ignore_result=True)
    assert [task.delay("2026-11").duplicate for _ in range(2)] == [False, True]
    task = report(queued, once, name="other")
    task.backend.as_uri = lambda: 1 / 0
    queued.backend.on_task_call = lambda *_: None
    assert [task.delay("2026-11").duplicate for _ in range(2)] == [False, True]


def test_a_job_whose_producer_died_is_sent_again_under_its_id(queued, once):
    task = report(queued, once)
    broken = FaultyStore(once.store)
    broken.refuse("release", 1000)  # whoever is dead releases nothing

    def die(headers, handle):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        enqueue_known(Once(broken, observers=()), "2026-11", die, "first", "report")
    second = task.delay("2026-11")
    assert (second.duplicate, second.id) == (True, "first")
    back = put_back(queued)
    assert back["id"] == "first"
    token = once.get("2026-11", scope="enqueue:report").token
    assert read_tag(back[HEADER]).token == token


# Django


def test_a_task_keeps_what_celery_has_for_transactions_of_django(queued, once):
    task = report(queued, once)
    with sqlite_of_django() as transaction:
        with transaction.atomic():
            task.delay_on_commit("2026-11")
            task.apply_async_on_commit(("2026-12",))
            assert put_back(queued) is None
        sent = [put_back(queued)["argsrepr"] for _ in range(2)]
        assert sent == ["('2026-11',)", "('2026-12',)"]
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            task.delay_on_commit("2027-01")
            1 / 0  # noqa: B018 - it rolls back
        assert put_back(queued) is None


@contextmanager
def sqlite_of_django():
    """Transactions of Django, on the database of the tests' project."""
    from django.db import (  # type: ignore[import-untyped]  # django has no types
        connection,
        transaction,
    )

    import tests.http.django_project  # noqa: F401 - its settings

    yield transaction
    connection.close()


@pytest.mark.parametrize("given", ["task_id", "link", "link_error", "chain", "chord", "group_id"])
def test_a_job_that_is_counted_on_is_sent(queued, once, given):
    task = report(queued, once)
    task.delay("2026-11")
    chosen = {"task_id": "own", "group_id": "group", "chain": [task.si("2026-12")]}
    assert not task.apply_async(
        ("2026-11",), **{given: chosen.get(given, task.si("2026-12"))}
    ).duplicate
    assert task.delay("2026-11").duplicate


def test_a_retry_is_sent(queued, once):
    task = report(queued, once)
    assert not task.delay("2026-11").duplicate
    assert not task.apply_async(("2026-11",), retries=1).duplicate


def report(app, once, name="report", **options):
    @app.task(name=name, base=OnceTask, once=once, once_enqueue=by_fields("month"), **options)
    def task(month: str) -> None:
        """It is never run."""

    return task
