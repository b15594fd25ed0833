"""The store does what it is told, and its reply is lost: asking again ends at one effect."""

from urllib.parse import urlsplit

import pytest

from oncekey import Once, StoreError
from oncekey.engine import engine, engine_async
from oncekey.engine.keeper import keeper
from tests.faults.colours import COLOURS
from tests.faults.line import LossyLine, is_postgres_verb, is_redis_verb
from tests.leases import unhurried
from tests.patience import PATIENCE
from tests.still import patiently

EVERY_TRY = 4  # how often a claim is asked for


@pytest.fixture(params=["redis", "postgres"])
def line(request):
    if request.param == "redis":
        server = request.getfixturevalue("empty_redis")
        line = LossyLine(server.port, is_redis_verb)
        line.url = f"redis://127.0.0.1:{line.port}/0?socket_timeout={PATIENCE}"
    else:
        url = request.getfixturevalue("empty_postgres_url")
        port = urlsplit(url).port
        line = LossyLine(port, is_postgres_verb)
        line.url = url.replace(f":{port}/", f":{line.port}/")
    yield line
    line.close()


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch):
    unhurried(monkeypatch)


@pytest.fixture(params=COLOURS)
def caller(request, line, events):
    caller = request.param(Once(line.url, cache=False, observers=[events.append]))
    caller.run("warm up", lambda: None)  # connected, with scripts loaded and statements prepared
    events.clear()
    yield caller
    caller.close()


@pytest.fixture
def events():
    return []


def named(events, name):
    return [event.name for event in events].count(name)


@pytest.fixture
def effects():
    return []


def test_a_claim_is_asked_for_again(line, caller, effects):
    line.lose(EVERY_TRY - 1)
    assert caller.run("order", lambda: effects.append(1)) is None
    assert (effects, line.lost) == ([1], EVERY_TRY - 1)
    record = caller.once.get("order")
    assert (record.status, record.attempt) == ("completed", 1)


def test_a_settle_is_repeated(line, caller, effects):
    def work():
        effects.append(1)
        line.lose(3)
        return "receipt"

    assert caller.run("order", work) == "receipt"
    assert (effects, line.lost) == ([1], 3)
    record = caller.once.get("order")
    assert (record.status, record.attempt, record.value) == ("completed", 1, "receipt")
    assert caller.run("order", work) == "receipt"
    assert effects == [1]


@pytest.mark.parametrize("plan", [[True], [False, True]])
def test_a_check_is_new_once(line, caller, plan):
    line.plan = list(plan)
    assert caller.check("order") is True
    assert line.lost == 1
    assert caller.check("order") is False


def test_a_claim_that_nobody_heard_of_is_given_back(line, caller, effects, until):
    line.lose(EVERY_TRY)
    with pytest.raises(StoreError) as told:
        caller.run("order", lambda: effects.append(1))
    assert told.value.happened is None
    assert effects == []
    until(lambda: caller.once.get("order").status == "released")
    caller.run("order", lambda: effects.append(1))
    assert effects == [1]
    assert caller.once.get("order").attempt == 1  # nobody ran before


def test_an_open_run_is_recorded_by_the_claim_that_nobody_heard_of(
    line, caller, effects, events, until
):
    def work():
        effects.append(1)
        return "receipt"

    line.lose(EVERY_TRY)
    assert caller.run("order", work, fail_mode="open") == "receipt"
    assert named(events, "unprotected") == 1
    until(lambda: caller.once.get("order").status == "completed")
    assert caller.run("order", work) == "receipt"
    assert effects == [1]
    assert caller.once.get("order").attempt == 1


def test_the_keeper_settles_what_nobody_heard_of(line, caller, effects, monkeypatch, until):
    def work():
        effects.append(1)
        line.lose(2)
        return "receipt"

    for module in (engine, engine_async):
        monkeypatch.setattr(module, "SETTLE_PATIENCE", 0.0)
    assert caller.run("order", work, fail_mode="open") == "receipt"
    until(lambda: line.lost == 2)  # the second one was the keeper's
    assert patiently(caller.run, "order", work) == "receipt"  # refused until the store records
    assert effects == [1]
    assert caller.once.get("order").attempt == 1


def test_a_late_record_whose_reply_was_lost_is_not_taken_for_anothers(
    line, caller, effects, events, until
):
    before = line.verbs
    line.plan = [True] * EVERY_TRY + [False, True]  # the claim, and then the keeper's settle
    caller.run("order", lambda: effects.append(1), fail_mode="open")
    until(lambda: line.verbs == before + EVERY_TRY + 3)  # it asked again
    _until_the_keeper_is_done()
    assert named(events, "lost") == 0
    assert caller.once.get("order").status == "completed"


def _until_the_keeper_is_done():
    with keeper._changed:
        assert keeper._changed.wait_for(lambda: not keeper._lanes, PATIENCE)
