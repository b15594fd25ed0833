"""The table says what the machine does, row by row, and nothing else."""

from collections import Counter
from typing import get_args

import pytest

from oncekey.core.machine import TABLE
from oncekey.core.record import Status
from oncekey.core.requests import Answer, Verdict
from oncekey.testing import FakeClock
from oncekey.testing.conformance.base import Desk
from oncekey.testing.conformance.table import SCENES, prove, reach
from oncekey.testing.reference import RULES, Reference

STATUSES = ("none", *get_args(Status))
VERBS = [request.__name__.lower() for request in RULES]
WRITES = {
    "settle": lambda desk, who: desk.settle(who),
    "renew": lambda desk, who: desk.renew(who),
    "note": lambda desk, who: desk.note(who, b"noted", 1),
    "release": lambda desk, who: desk.release(who),
    "resolve": lambda desk, who: desk.resolve(who),
    "forget": lambda desk, who: desk.forget(who),
}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def desk(clock):
    return Desk(Reference(clock), lease=1_000, ttl=2_000)


@pytest.mark.parametrize("row", TABLE, ids=" - ".join)
def test_a_row_is_what_the_machine_does(row, desk, clock):
    prove(row, desk, clock.tick)


def test_every_row_has_its_scene_and_every_scene_its_row():
    rows = Counter((row.status, row.verb, row.when) for row in TABLE)
    assert set(rows) == set(SCENES)
    assert set(rows.values()) == {1}


def test_the_table_uses_the_words_of_the_code():
    answers = {answer.__name__ for answer in Answer.__subclasses__()}
    verdicts = {verdict.value for verdict in Verdict}
    for row in TABLE:
        assert row.status in STATUSES
        assert row.becomes in STATUSES
        assert row.verb in VERBS
        assert row.answer in (answers if row.verb == "claim" else verdicts)


def test_every_answer_stands_in_the_table():
    words = {answer.__name__ for answer in Answer.__subclasses__()} | {"done", "ended"}
    assert {row.answer for row in TABLE} == words


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("verb", WRITES)
def test_a_status_and_a_verb_without_a_row_are_lost(status, verb, desk):
    owner = reach(desk, status)
    before = desk.get()
    rows = [row for row in TABLE if (row.status, row.verb) == (status, verb)]
    forced_only = all(row.when.startswith("forced") for row in rows)
    verdict = WRITES[verb](desk, owner)
    assert (verdict is Verdict.LOST) == forced_only
    if forced_only:
        assert desk.get() == before


def test_every_status_answers_a_claim():
    assert {row.status for row in TABLE if row.verb == "claim"} == set(STATUSES)
