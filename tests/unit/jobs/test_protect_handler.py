"""The generic wrapper around any function that takes a job."""

import logging

import pytest

from oncekey import ConfigurationError, InProgressError, InvalidKeyError, Once, StoreError, current
from oncekey.jobs import by_fields, handler
from oncekey.stores import MemoryStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore

BY_ORDER = by_fields("order")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return FaultyStore(MemoryStore(clock=clock))


@pytest.fixture
def once(store):
    return Once(store)


@pytest.fixture
def runs():
    return []


@pytest.mark.row("J1", "J6")
def test_a_duplicate_is_a_success_with_the_first_result(once, runs, caplog):
    @handler(once, BY_ORDER, name="ship")
    def ship(job):
        runs.append(job)
        return {"parcel": len(runs)}

    with caplog.at_level(logging.DEBUG, "oncekey"):
        assert ship({"order": 1}) == ship({"order": 1, "again": True}) == {"parcel": 1}
    assert len(runs) == 1
    skipped = [record for record in caplog.records if "duplicate task skipped" in record.message]
    assert [(one.idempotency_key, one.task_type) for one in skipped] == [("1", "ship")]


async def test_coroutines_are_wrapped_the_same_way(once, runs):
    async def ship(job):
        runs.append(job)
        return len(runs)

    wrapped = handler(once, BY_ORDER, ship)
    assert [await wrapped({"order": 1}) for _ in range(2)] == [1, 1]


@pytest.mark.row("J12")
def test_a_handler_that_fails_runs_again_with_its_notes(once, runs):
    @handler(once, BY_ORDER)
    def ship(job):
        runs.append(current().notes)
        current().note(label="printed")
        if len(runs) == 1:
            raise ValueError
        return "shipped"

    with pytest.raises(ValueError):
        ship({"order": 1})
    assert ship({"order": 1}) == "shipped"
    assert runs == [{}, {"label": "printed"}]


@pytest.mark.row("J2")
def test_the_ttl_of_a_job_can_be_short(once, clock, runs):
    ship = handler(once, BY_ORDER, runs.append, scope="ship", ttl="100ms")
    for _ in range(2):
        ship({"order": 1})
    assert len(runs) == 1
    clock.advance("101ms")
    ship({"order": 1})
    assert len(runs) == 2


@pytest.mark.row("J5")
def test_an_empty_key_runs_normally(once, runs, store):
    ship = handler(once, lambda _job: "", runs.append, scope="ship")
    for _ in range(2):
        ship({})
    assert len(runs) == 2
    assert not store.calls


@pytest.mark.row("J7")
def test_a_store_that_is_down_lets_jobs_run_unless_it_is_forbidden(once, store, runs, caplog):
    def ship(job):
        runs.append(job)

    store.refuse("claim", 1000)
    handler(once, BY_ORDER, ship)({"order": 1})
    assert len(runs) == 1
    line = next(one for one in caplog.records if one.levelno == logging.WARNING)
    assert "idempotency check failed, processing anyway" in line.message
    with pytest.raises(StoreError):
        handler(once, BY_ORDER, ship, fail_mode="closed")({"order": 2})
    assert len(runs) == 1
    assert any("not processing" in one.message for one in caplog.records if one.levelno == 40)


@pytest.mark.row("J7")
def test_the_handlers_word_wins_over_the_stores(store, runs):
    closed = Once(store, policy=None).options(fail_mode="closed")
    store.refuse("claim", 1000)
    with pytest.raises(StoreError):
        handler(closed, BY_ORDER, runs.append, scope="s")({"order": 1})
    handler(closed, BY_ORDER, runs.append, scope="s", fail_mode="open")({"order": 1})
    assert len(runs) == 1


def test_a_job_that_runs_elsewhere_is_not_waited_for(once, store):
    other = Once(store, observers=())

    def inside(job):
        with pytest.raises(InProgressError) as caught:
            handler(other, BY_ORDER, inside, scope="ship")(job)
        assert caught.value.retry_after == 5
        return "once"

    assert handler(once, BY_ORDER, inside, scope="ship")({"order": 1}) == "once"


def test_a_key_function_that_fails_fails_the_job(once, runs, store):
    def broken(_job):
        raise LookupError

    with pytest.raises(LookupError):
        handler(once, broken, runs.append, scope="s")({})
    with pytest.raises(InvalidKeyError, match="must return a string"):
        handler(once, lambda _job: 7, runs.append, scope="s")({})
    assert runs == []
    assert not store.calls


@pytest.mark.row("J8")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, BY_ORDER, print), "needs a Once"),
        (("redis://localhost", BY_ORDER, print), "needs a Once"),
        (("once", None, print), "makes its key"),
        (("once", "order", print), "makes its key"),
        (("once", str, print), "makes its key"),
        (("once", BY_ORDER, "ship"), "cannot be called"),
        (("once", BY_ORDER, object), "is a class"),
    ],
)
def test_wrong_arguments_fail_at_once(once, arguments, words):
    given = [once if one == "once" else one for one in arguments]
    with pytest.raises(ConfigurationError, match=words):
        handler(*given)
