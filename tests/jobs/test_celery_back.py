"""Jobs of Celery that go back into their queue, and those that must not."""

import logging
from datetime import UTC, datetime, timedelta
from secrets import token_hex

import pytest
from celery.app.trace import (  # type: ignore[import-untyped]  # celery has no types
    build_tracer,
)

from oncekey import (
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    Once,
)
from oncekey.jobs import by_fields
from oncekey.jobs.celery import OnceTask, once_task
from oncekey.jobs.enqueue import HEADER, read_tag
from tests.jobs.celery_fixtures import BY_ORDER, app, in_another_thread, once, ran

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


def test_where_it_cannot_be_put_back_the_broker_keeps_it(queued, once, caplog):
    @queued.task(name="work")
    @once_task(once, BY_ORDER)
    def work(order: str) -> None:
        """It is never run."""

    hasty = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
    queued.conf.update(broker_url="redis://127.0.0.1:1/0", broker_transport_options=hasty)
    queued.conf.task_publish_retry = False
    with once.options(scope="work").attempt("a"), caplog.at_level(logging.WARNING, "oncekey"):
        state, told = in_another_thread(deliver, queued, work, "a")
    assert (state, told.exception.exc.requeue) == ("REJECTED", True)
    assert "work[job-1] could not be put back" in caplog.text


# Jobs that somebody counts on are sent, whatever is in the queue


def test_one_of_two_equal_jobs_is_sent(queued, once):
    task = report(queued, once)
    first, second = (task.delay("2026-11") for _ in range(2))
    assert (first.duplicate, second.duplicate, second.id) == (False, True, first.id)
    assert task.enqueue_once("2026-12").duplicate is False
    assert task.enqueue_once("2026-12").duplicate is True
    tag = read_tag(put_back(queued)[HEADER])
    assert (tag.scope, tag.key, tag.until) == ("enqueue:report", "2026-11", "finished")


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


def report(app, once):
    @app.task(name="report", base=OnceTask, once=once, once_enqueue=by_fields("month"))
    def task(month: str) -> None:
        """It is never run."""

    return task
