"""The checker of histories, on histories that are known to be right or wrong."""

import pytest

from tests.faults.matrix.history import History, Line, Operation, lines, operations
from tests.faults.matrix.ledger import Arrival, Ledger, arrivals, asked, by_key, fenced
from tests.faults.matrix.linear import linearizable


def ok(start, end, value, ran=False):
    return Operation("a", start, end, "ok", value, ran=ran)


def ran(start, end, value):
    return ok(start, end, value, ran=True)


def info(start, value=""):
    return Operation("a", start, None, "info", value)


def fail(start, end):
    return Operation("a", start, end, "fail")


RIGHT = {
    "nothing": [],
    "one that ran": [ran(0, 1, "x")],
    "one that ran, then duplicates": [ran(0, 1, "x"), ok(2, 3, "x"), ok(4, 5, "x")],
    "a duplicate that was asked first": [ok(0, 9, "x"), ran(1, 8, "x")],
    "a refusal before": [fail(0, 1), ran(2, 3, "x")],
    "one that died, and nothing of it is seen": [info(0), ran(1, 2, "x"), ok(3, 4, "x")],
    "one that died, and its value is read": [info(0), ok(5, 6, "x"), ok(7, 8, "x")],
    "one whose value is known, and it is read": [info(0, "x"), ok(5, 6, "x")],
    "two that died": [info(0), info(1), ok(2, 3, "x")],
    "fifty at once": [ran(0, 99, "x"), *(ok(n, 99, "x") for n in range(50))],
}
WRONG = {
    "two ran": [ran(0, 1, "x"), ran(2, 3, "y")],
    "two ran at once": [ran(0, 9, "x"), ran(1, 8, "x")],
    "two ran, fifty listened": [
        ran(0, 99, "x"),
        ran(0, 99, "x"),
        *(ok(n, 99, "x") for n in range(50)),
    ],
    "a duplicate before anything ran": [ok(0, 1, "x"), ran(2, 3, "x")],
    "a duplicate of nothing": [ok(0, 1, "x")],
    "another value": [ran(0, 1, "x"), ok(2, 3, "y")],
    "two values after one that died": [info(0), ok(1, 2, "x"), ok(3, 4, "y")],
    "another value than the one that died had": [info(0, "x"), ok(1, 2, "y")],
    "its value is read before it began": [ok(0, 1, "x"), info(2, "x")],
    "it ran after its value was read from one that died": [
        info(0),
        ok(1, 2, "x"),
        ran(3, 4, "y"),
    ],
    "a duplicate of what failed": [fail(0, 1), ok(2, 3, "x")],
}


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_history_is_linearizable(history):
    assert linearizable(history)
    assert linearizable(history[::-1])


@pytest.mark.parametrize("history", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_history_is_not(history):
    assert not linearizable(history)
    assert not linearizable(history[::-1])


def test_a_history_is_read_as_it_was_written(tmp_path):
    for name in ("a", "b"):
        history = History(tmp_path, name)
        history.write(Line(1, name, "k1", "invoke"))
        if name == "a":
            history.write(Line(2, name, "k1", "fail", why="StoreError"))
            history.write(Line(3, name, "k1", "invoke"))
            history.write(Line(4, name, "k1", "ok", value="x", ran=True))
        history.close()
    with (tmp_path / "history.b.jsonl").open("a") as opened:
        opened.write('{"t": 5, "who"')  # it died while it wrote
    assert operations(lines(tmp_path)) == {
        "k1": [
            Operation("a", 1, 2, "fail", why="StoreError"),
            Operation("b", 1, None, "info"),
            Operation("a", 3, 4, "ok", "x", ran=True),
        ]
    }


def test_the_ledger_prevents_nothing_and_counts_everything(tmp_path):
    ledger = Ledger(tmp_path)
    for token, downstream in ((2, "d1"), (1, "d1"), (3, "d2")):
        ledger.arrive(Arrival("k1", token, downstream, "w", "x"))
    ledger.close()
    found = list(arrivals(tmp_path))
    assert asked(found) == {"k1": 3}
    assert by_key(found) == {"k1": 2}
    assert fenced(found) == ({"k1": 2}, 1)
