"""Tasks of Celery that run in place: eager jobs, plain calls, and what a duplicate returns."""

import functools
import logging

import httpx
import pytest
from celery import (  # type: ignore[import-untyped]  # celery has no types
    chain,
    chord,
    group,
)
from celery.exceptions import Ignore  # type: ignore[import-untyped]  # as above
from kombu.exceptions import OperationalError
from pydantic import BaseModel

from oncekey import (
    ConfigurationError,
    InProgressError,
    ResultNotKeptError,
    current,
)
from oncekey.jobs import by_fields
from oncekey.jobs.celery import OnceTask, once_task
from oncekey.testing import disabled
from tests.jobs.celery_fixtures import BY_ORDER, app, in_another_thread, once, ran

__all__ = ["app", "once", "ran"]


@pytest.fixture(params=["decorator", "bound", "base", "bound base", "class"])
def charge(request, app, once, ran):
    """A task with a key, in every way that Celery knows to make one."""

    def plain(order: str, amount: int = 40) -> str:
        ran.append(order)
        return f"{order}:{amount}:{len(ran)}"

    def bound(self: object, order: str, amount: int = 40) -> str:
        return plain(order, amount)

    given = {"once": once, "once_key": BY_ORDER}
    if request.param == "decorator":
        return app.task(once_task(once, BY_ORDER)(plain), name="charge")
    if request.param == "bound":
        return app.task(once_task(once, BY_ORDER)(bound), name="charge", bind=True)
    if request.param == "base":
        return app.task(plain, name="charge", base=OnceTask, **given)
    if request.param == "bound base":
        return app.task(bound, name="charge", base=OnceTask, bind=True, **given)
    again = {"autoretry_for": (ZeroDivisionError,)}
    return app.register_task(
        type("Charge", (OnceTask,), {"name": "charge", "run": bound, **given, **again})()
    )


def test_jobs_with_one_key_run_once(charge, ran, once):
    assert charge.delay("a").get() == "a:40:1"
    assert charge.delay("a", amount=41).get() == "a:40:1"
    assert charge.apply_async(("b",)).get() == "b:40:2"
    assert ran == ["a", "b"]
    record = once.get("a", scope="charge")
    assert record.label == "charge"
    assert len(record.reference) == 36  # the id of the job that ran


def test_a_plain_call_with_the_key_is_answered_too(charge, ran):
    assert charge("a") == "a:40:1"
    assert charge.delay("a").get() == charge("a") == "a:40:1"


@pytest.mark.parametrize("charge", ["decorator", "bound", "base", "bound base"], indirect=True)
def test_arguments_are_checked_where_the_job_is_sent(charge, app):
    app.conf.task_always_eager = False
    with pytest.raises(TypeError, match="argument"):
        charge.delay()
    with pytest.raises(TypeError, match="argument"):
        charge.delay("a", 1, 2)


def test_switched_off_every_job_runs(charge, ran):
    with disabled():
        for _ in range(2):
            charge.delay("a").get()
    assert ran == ["a", "a"]


def test_groups_chains_and_chords_run_in_place(app, once, ran):
    @app.task
    @once_task(once, BY_ORDER)
    def charge(order: str) -> int:
        ran.append(order)
        return len(ran)

    @app.task
    def total(found: list[int]) -> int:
        return sum(found)

    @app.task
    def add(one: int, other: int) -> int:
        return one + other

    assert chain(charge.s("a"), add.s(10)).apply_async().get() == 11
    assert chain(charge.s("a"), add.s(10)).apply_async().get() == 11
    assert group(charge.s(one) for one in "aba").apply_async().get() == [1, 2, 1]
    assert chord([charge.s("a"), charge.s("b")], total.s()).apply_async().get() == 3


@pytest.mark.row("J1")
@pytest.mark.parametrize("made", ["frozen", "with an id", "inside another"])
def test_each_step_of_a_chain_in_place_runs_under_the_id_of_the_chain(app, once, ran, made):
    app.conf.task_eager_propagates = False

    @app.task(bind=True)
    @once_task(once)
    def step(self, *_) -> int:
        ran.append(current().number)
        if len(ran) == 2:
            raise self.retry(countdown=0)
        return len(ran)

    steps, options = chain(*(step.si() for _ in range(3))), {"task_id": "one"}
    if made == "frozen":
        steps.freeze("one")
        options = {}
    elif made == "inside another":
        steps = chain(step.si(), chain(step.si(), step.si(), app=app), app=app)
    for _ in range(2):  # again they are duplicates, as all that has the same id
        assert steps.apply(**options).get() == 4
        assert ran == [1, 1, 2, 1]
    assert {one.key for one in once.scan()} >= {"one", "one:2"}
    assert len(list(once.scan())) == 3


@pytest.mark.row("J1")
def test_a_job_in_place_with_an_id_of_its_own_runs_once(app, once, ran):
    @app.task
    @once_task(once)
    def work() -> None:
        ran.append("work")

    for _ in range(2):
        work.apply_async(task_id="one")
        chain(work.si().set(task_id="two")).apply()
    assert ran == ["work", "work"]


@pytest.mark.parametrize("headers", [7, "text", ["one"]])
def test_headers_that_are_none_are_ignored(app, once, ran, headers):
    @app.task
    @once_task(once)
    def work() -> None:
        ran.append("work")

    work.apply(headers=headers).get()
    assert ran == ["work"]


@pytest.mark.row("J12")
def test_retries_run_again_in_place(app, once, ran):
    @app.task(bind=True)
    @once_task(once)
    def asks(self) -> int:
        ran.append(current().number)
        if len(ran) < 3:
            raise self.retry(countdown=0)
        return len(ran)

    @app.task(autoretry_for=(ValueError,), retry_kwargs={"countdown": 0})
    @once_task(once, BY_ORDER)
    def fails(order: str) -> int:
        ran.append(current().number)
        if current().number < 3:
            raise ValueError
        return len(ran)

    app.conf.task_eager_propagates = False
    assert asks.delay().get() == 3
    assert fails.delay("a").get() == 6
    assert ran == [1, 2, 3] * 2


@pytest.mark.parametrize(
    ("why", "options", "uncertain"),
    [
        (ConnectionError(), {}, True),
        (httpx.ReadTimeout("slow"), {}, True),
        (ValueError(), {}, False),
        (None, {}, False),
        (ConnectionError(), {"uncertain": ()}, False),
    ],
)
def test_a_retry_after_an_uncertain_error_says_so(app, once, why, options, uncertain):
    seen = []

    @app.task(bind=True)
    @once_task(once, **options)
    def work(self) -> None:
        seen.append(current().uncertain)
        if len(seen) == 1:
            raise self.retry(exc=why, countdown=0)

    app.conf.task_eager_propagates = False
    work.delay().get()
    assert seen == [False, uncertain]


def test_what_tells_celery_something_after_completion_changes_nothing(app, once, ran):
    @app.task
    @once_task(once, BY_ORDER)
    def done(order: str) -> str:
        ran.append(order)
        current().complete("done")
        raise Ignore

    app.conf.task_eager_propagates = False
    assert done.delay("a").state == "IGNORED"
    assert done.delay("a").get() == "done"
    assert ran == ["a"]


# Calls that are no deliveries


def test_a_plain_call_without_an_id_runs_unprotected(app, once, ran):
    @app.task
    @once_task(once)
    def work(order: str) -> int:
        current().note(order=order)  # it need not know how it was called
        ran.append(order)
        return len(ran)

    assert (work("a"), work("a"), work.run("a")) == (1, 2, 3)
    assert list(once.scan()) == []


def test_a_job_that_calls_its_own_task_calls_a_function(app, once, ran):
    @app.task
    @once_task(once)
    def count(down: int) -> int:
        ran.append(down)
        return count(down - 1) + 1 if down else 0

    assert count.delay(3).get() == 3
    assert ran == [3, 2, 1, 0]


def test_a_plain_call_that_is_in_progress_is_refused(app, once):
    @app.task
    @once_task(once, BY_ORDER)
    def work(order: str) -> None:
        """Nothing."""

    with once.options(scope=work.name).attempt("a"):
        with pytest.raises(InProgressError):
            in_another_thread(work, "a")
        with pytest.raises(InProgressError):
            in_another_thread(work.delay, "a")


def test_the_function_of_another_task_has_no_id(app, once, ran):
    @app.task
    @once_task(once)
    def inner() -> None:
        ran.append("inner")

    @app.task
    def outer() -> None:
        inner.run()

    with pytest.raises(ConfigurationError, match=r"inner runs inside .*outer"):
        outer.delay()
    assert ran == []


def test_decorators_between_are_seen_through_or_refused(app, once, ran):
    def honest(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    def silent(function):
        def wrapper(*args):
            return function(*args)

        return wrapper

    @once_task(once)
    def work() -> None:
        ran.append("work")

    app.task(honest(work), name="honest").delay()
    assert ran == ["work"]
    with pytest.raises(ConfigurationError, match=r"functools\.wraps"):
        app.task(silent(work), name="silent").delay()


def test_a_class_may_call_the_run_of_its_base(app, once, ran):
    class Kept(OnceTask):
        abstract = True

    Kept.once = once
    Kept.once_key = staticmethod(lambda _: "one")

    class Work(Kept):
        def run(self) -> str:
            ran.append("base")
            return "base"

    class More(Work):
        name = "more"

        def run(self) -> str:
            return f"more than {super().run()}"

    assert app.register_task(More()).delay().get() == "more than base"
    assert [record.scope for record in once.scan()] == ["more"]


# Results that are not kept


def test_a_duplicate_whose_result_was_not_kept_is_done(app, once, caplog):
    @app.task
    @once_task(once, BY_ORDER)
    def work(order: str):
        return {1, 2}

    app.conf.task_serializer = "pickle"
    assert work.delay("a").get() == {1, 2}
    with caplog.at_level(logging.WARNING, "oncekey"):
        assert work.delay("a").get() is None
    assert "returns None" in caplog.text
    with pytest.raises(ResultNotKeptError):  # nothing must go on from a made-up None
        work.apply_async(("a",), link=work.si("b"))


def test_in_place_nothing_is_deduplicated_at_enqueue(app, once, ran):
    @app.task(base=OnceTask, once=once, once_enqueue=BY_ORDER)
    def work(order: str) -> int:
        ran.append(order)
        return len(ran)

    found = [work.enqueue_once("a") for _ in range(2)]
    assert [one.duplicate for one in found] == [False, False]
    assert [one.handle.get() for one in found] == [1, 2]


def test_a_job_that_could_not_be_sent_is_not_enqueued(app, once):
    hasty = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
    app.conf.update(task_always_eager=False, broker_transport_options=hasty)
    app.conf.broker_url = "redis://127.0.0.1:1/0"

    @app.task(name="lost", base=OnceTask, once=once, once_enqueue=BY_ORDER)
    def lost(order: str) -> None:
        """It is never run."""

    for _ in range(2):  # the second is no duplicate of the first
        with pytest.raises(OperationalError):
            lost.apply_async(("a",), retry=False)
    assert once.get("a", scope="enqueue:lost").status == "released"


class Order(BaseModel):
    id: str
    total: int


class Receipt(BaseModel):
    number: int


@pytest.mark.parametrize("way", ["decorator", "base"])
def test_models_of_pydantic_come_and_go(app, once, ran, way):
    key = by_fields("order.id")

    def pay(order: Order) -> Receipt:
        ran.append(order.id)
        return Receipt(number=len(ran))

    if way == "base":
        task = app.task(pay, pydantic=True, base=OnceTask, once=once, once_key=key)
    else:
        task = app.task(once_task(once, key)(pay), pydantic=True)
    order = Order(id="a", total=40)
    assert task.delay(order).get() == task.delay(order).get() == {"number": 1}
    assert ran == ["a"]
