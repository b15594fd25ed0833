"""What a task of Celery may be keyed by, and mistakes that show at decoration."""

import pytest

from oncekey import (
    ConfigurationError,
    InvalidKeyError,
    KeyReusedError,
    current,
)
from oncekey.jobs import by_entity, by_fields, by_payload, by_task_id
from oncekey.jobs.celery import OnceTask, once_task
from tests.jobs.celery_fixtures import BY_ORDER, app, once, ran

__all__ = ["app", "once", "ran"]


@pytest.mark.row("J5")
def test_keys_see_the_arguments_by_name_and_not_the_task(app, once, ran):
    seen = []

    def key(job):
        seen.append(job)
        return by_payload(job)

    @app.task(name="pay", bind=True)
    @once_task(once, key)
    def pay(self, order: str, amount: int = 40) -> None:
        ran.append(order)

    pay.delay("a")
    pay.delay(order="a", amount=40)
    assert [job.arguments for job in seen] == [{"order": "a", "amount": 40}] * 2
    assert (seen[0].name, seen[0].attempt, seen[0].native.is_eager) == ("pay", 1, True)
    assert ran == ["a"]


@pytest.mark.row("J5")
def test_each_key_function_of_the_library_makes_one_job_of_two(app, once, ran):
    for number, key in enumerate([BY_ORDER, by_payload, by_entity("order")]):

        @app.task(name=f"task-{number}")
        @once_task(once, key)
        def work(order: str) -> None:
            ran.append(order)

        work.delay("a")
        work.delay("a")
        work.delay("b")
    assert ran == ["a", "b"] * 3


@pytest.mark.row("J5")
def test_an_empty_key_runs_unprotected(app, once, ran):
    @app.task
    @once_task(once, lambda _: "")
    def work() -> None:
        ran.append(current().protected)

    work.delay()
    work.delay()
    assert ran == [False, False]


@pytest.mark.parametrize(
    ("key", "error"),
    [(lambda _: 7, InvalidKeyError), (by_fields("nothing"), InvalidKeyError)],
)
def test_a_key_that_cannot_be_made_fails_the_job(app, once, ran, key, error):
    @app.task
    @once_task(once, key)
    def work(order: str) -> None:
        ran.append(order)

    with pytest.raises(error):
        work.delay("a")
    assert ran == []


def test_another_fingerprint_fails_the_job(app, once):
    @app.task
    @once_task(once, BY_ORDER, fingerprint=lambda job: job.arguments["amount"])
    def pay(order: str, amount: int) -> int:
        return amount

    assert pay.delay("a", 1).get() == pay.delay("a", 1).get() == 1
    with pytest.raises(KeyReusedError):
        pay.delay("a", 2)


# Mistakes


@pytest.mark.row("J8")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"once": None}, "needs a Once"),
        ({"key": "order"}, "function that makes its key"),
        ({"ttl": "soon"}, "ttl"),
        ({"fingerprint": "order"}, "fingerprint"),
    ],
)
def test_a_mistake_shows_at_decoration(once, given, says):
    with pytest.raises(ConfigurationError, match=says):
        once_task(**{"once": once, **given})(lambda: None)


@pytest.mark.row("J8")
def test_what_cannot_be_a_task_shows_at_decoration(once):
    async def later() -> None:
        """Nothing."""

    for wrong, says in ((later, "does not await"), (7, "cannot be called"), (dict, "is a class")):
        with pytest.raises(ConfigurationError, match=says):
            once_task(once)(wrong)


@pytest.mark.row("J8")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"once": None}, "needs a Once"),
        ({"once_key": None}, "function that makes its key"),
        ({"once_until": "done"}, "until must be one of"),
        ({"once_enqueue": by_task_id}, "has no id"),
    ],
)
def test_a_mistake_shows_where_the_class_is_made(once, given, says):
    with pytest.raises(ConfigurationError, match=says):
        type("Work", (OnceTask,), {"run": lambda self: None, "once": once, **given})
