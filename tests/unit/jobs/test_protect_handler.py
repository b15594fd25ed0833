"""The generic wrapper around any function that takes a job."""

import json
import logging
import threading
from types import SimpleNamespace

import pytest

from oncekey import ConfigurationError, InProgressError, InvalidKeyError, Once, StoreError, current
from oncekey.engine import single_flight
from oncekey.jobs import by_entity, by_fields, by_payload, by_task_id, handler
from oncekey.stores import MemoryStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore
from tests.functions.calls import start
from tests.patience import PATIENCE

BY_ORDER = by_fields("order")
MESSAGE = SimpleNamespace(id="7")


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


def of_arq(ctx, order, line=1): ...
def of_huey(order, line=1, task=None): ...
def of_mapping(job): ...
def of_bytes(body): ...
def of_keywords(**given): ...
def of_anything(*args, **kwargs): ...


class Shop:
    def ship(self, order, line=1): ...


CALLS = [
    (of_arq, ({"job_id": "7", "job_try": 1}, "a/1"), {}),
    (of_arq, ({"job_id": "7", "job_try": 2},), {"order": "a/1", "line": 1}),
    (of_arq, (SimpleNamespace(job=MESSAGE), "a/1"), {}),
    (of_huey, ("a/1",), {"task": MESSAGE}),
    (of_mapping, ({"id": 7, "payload": {"order": "a/1", "line": 1}},), {}),
    (of_mapping, (), {"job": {"id": 7, "payload": b'{"line": 1, "order": "a/1"}'}}),
    (of_keywords, (), {"order": "a/1", "line": 1, "ctx": {"job_id": "7"}}),
    (of_anything, (), {"order": "a/1", "line": 1, "task": MESSAGE}),
]


@pytest.mark.row("J5")
@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS)
def test_strategies_read_every_signature(once, function, args, kwargs):
    def key(strategy):
        return handler(once, strategy, function, name="ship").key(*args, **kwargs)

    assert key(by_fields("order", "line")) == "a%2F1:1"
    assert key(by_entity("order")) == "ship:a%2F1"
    assert key(by_task_id) == "7"
    assert key(by_payload) == by_payload({"order": "a/1", "line": 1})


@pytest.mark.row("J5")
def test_strategies_read_jobs_without_an_envelope(once):
    body = b'{"line": 1, "order": "a/1"}'
    for function, given in ((of_bytes, body), (of_mapping, json.loads(body)), (of_anything, body)):
        assert handler(once, by_fields("order"), function).key(given) == "a%2F1"
        assert handler(once, by_payload, function).key(given) == by_payload(json.loads(body))
    assert handler(once, by_fields("order"), Shop.ship).key(Shop(), "a/1") == "a%2F1"
    assert handler(once, by_fields("order"), Shop.ship).key(Shop(), order="a/1", line=2) == "a%2F1"
    assert handler(once, by_payload, of_bytes).key(b"\xff") == by_payload(b"\xff")
    assert handler(once, by_fields("body"), of_bytes).key("plain") == "plain"
    with pytest.raises(InvalidKeyError, match="no field 'order'"):
        handler(once, by_fields("order"), of_bytes).key(b"\xff")


def test_the_name_is_the_scope_unless_one_is_given(once, runs):
    first = handler(once, BY_ORDER, runs.append, name="ship")
    handler(once, BY_ORDER, lambda job: runs.insert(0, job), name="ship")({"order": 1})
    first({"order": 1})
    assert len(runs) == 1
    assert once.get("1", scope="ship").label == "ship"
    handler(once, BY_ORDER, runs.append, name="ship", scope="other")({"order": 1})
    handler(once.options(scope="mine"), BY_ORDER, runs.append, name="ship")({"order": 1})
    assert [once.get("1", scope=one).label for one in ("other", "mine")] == ["ship", "ship"]


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


@pytest.mark.row("W9")
def test_a_handler_that_hangs_loses_its_key_in_its_own_process(store, clock, runs, monkeypatch):
    monkeypatch.setattr(single_flight, "FRESH_FOR", 0.0)
    once = Once(store, heartbeat=False, lease="5min")
    inside, go_on = threading.Event(), threading.Event()

    @handler(once, BY_ORDER)
    def ship(job):
        runs.append(job)
        if len(runs) == 1:
            inside.set()
            assert go_on.wait(PATIENCE)
        return len(runs)

    hung = start(lambda: ship({"order": 1}))
    assert inside.wait(PATIENCE)
    with pytest.raises(InProgressError):
        ship({"order": 1})
    clock.advance("6min")
    assert ship({"order": 1}) == 2
    go_on.set()
    assert hung.outcome() == 2


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
