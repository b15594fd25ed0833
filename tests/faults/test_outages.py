"""Servers go away and come back while three processes make calls, 2,000 in the long run."""

import pytest

from tests.faults.outages import COLOURS, Crowd
from tests.heavy import HEAVY

KEYS = 667 if HEAVY else 100
CALLS = KEYS * len(COLOURS)


@pytest.fixture
def crowd(server, spawn_of, until, tmp_path):
    return Crowd(spawn_of, until, tmp_path, server)


def test_closed_nothing_happens_twice_and_no_key_is_stuck(server, crowd):
    crowd.start("closed", KEYS, server.outages)
    for number in range(server.outages):
        crowd.until_effects(KEYS * (number + 1) // (server.outages + 1))
        crowd.until_inside(number)
        before = crowd.troubles()
        server.take_away(number)
        crowd.sign(f"down.{number}")  # what is inside ends now, and cannot be recorded
        awaited = [f"{name} NotRecordedError" for name in crowd.names]
        awaited += [f"{name} StoreError" for name in crowd.names]
        crowd.until(lambda seen=before, some=awaited: _all_more(some, seen, crowd.troubles()))
        server.bring_back()
    answers = [said["answers"] for said in crowd.said]
    assert sum(map(len, answers)) == CALLS + server.outages * len(COLOURS)
    keys = set().union(*answers)
    assert crowd.effects() == dict.fromkeys(keys, 1)
    assert crowd.ran_unprotected() == []
    for key, record in crowd.records(keys).items():
        # Had a key been stuck until its lease was over, this would be the second attempt.
        assert (key, record.status, record.attempt) == (key, "completed", 1)
        assert {heard[key] for heard in answers if key in heard} == {record.value}
    crowd.end()


def test_open_every_unprotected_run_is_counted_marked_and_recorded(server, crowd):
    crowd.start("open", KEYS, server.outages)
    for number in range(server.outages):
        crowd.until_effects(CALLS * (number + 1) // (server.outages + 2))
        server.take_away(number)
        crowd.sign(f"down.{number}")
        crowd.until_inside(number)  # of a run that began without the store
        server.bring_back()
        running = [f"outage:{number}:{name}" for name in crowd.names]
        crowd.until(lambda some=running: crowd.statuses(some) == {"running"})  # claimed late
        crowd.sign(f"go.{number}")
    told = [key for said in crowd.said for key in said["unprotected"]]
    assert sorted(told) == crowd.ran_unprotected()
    assert sum(said["counted"] for said in crowd.said) == len(told)
    late = {f"outage:{n}:{name}" for n in range(server.outages) for name in crowd.names}
    assert late <= set(told)
    answers = {key: value for said in crowd.said for key, value in said["answers"].items()}
    assert len(answers) == CALLS + len(late)
    assert crowd.effects() == dict.fromkeys(answers, 1)
    assert not crowd.troubles()
    crowd.until(lambda: crowd.statuses(answers) == {"completed"})
    assert {key: record.value for key, record in crowd.records(answers).items()} == answers
    crowd.end()


def _all_more(names, before, now):
    return all(now[name] > before[name] for name in names)
