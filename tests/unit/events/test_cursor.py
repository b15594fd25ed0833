"""Cursors: written, read, and judged against a model that knows which event is where."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncekey.events.cursor import Cursor, View, beginning, judge, parse

HEX = st.text("0123456789abcdef", min_size=1, max_size=16)


@given(HEX, st.integers(0, 10**13 - 1), HEX | st.just("-"))
def test_a_cursor_is_read_as_it_was_written(epoch, offset, mark):
    cursor = Cursor(epoch, offset, mark)
    assert parse(str(cursor)) == cursor


@given(st.text(max_size=30))
def test_whatever_is_read_was_written_by_us(text):
    found = parse(text)
    assert found is None or str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.1",
        "a.1.b.c",
        "a.01.b",
        "a.-1.b",
        "a.1.b\n",
        " a.1.b",
        "A.1.b",
        "a.1.",
        "a.\u0661.b",
        "a.1\u0661.b",
        None,
        7,
    ],
)
def test_what_is_none_of_ours_is_not_read(text):
    assert parse(text) is None


@st.composite
def histories(draw):
    """A log that lost a suffix and went on, and a reader that saw an event before or after it."""
    before = draw(st.lists(HEX, min_size=1, max_size=6, unique=True))
    kept = draw(st.integers(0, len(before)))
    after = before[:kept] + [f"{mark}f" * 2 for mark in draw(st.lists(HEX, max_size=4))]
    first = draw(st.integers(1, len(after) + 1))
    offset = draw(st.integers(1, len(before)))
    return before, after, first, offset


@given(histories())
@example((["ab", "cd"], ["ab", "effeff"], 1, 2))
def test_a_reader_goes_on_only_where_its_event_still_stands(history):
    before, after, first, offset = history
    cursor = Cursor("e", offset, before[offset - 1])
    there = first <= offset <= len(after)
    view = View("e", first, len(after), after[offset - 1] if there else None)
    same = there and after[offset - 1] == before[offset - 1]
    assert (judge(cursor, view) is None) == same
    assert judge(cursor._replace(epoch="d"), view) == "epoch"


@pytest.mark.parametrize(
    ("cursor", "view", "reason"),
    [
        (None, View(None, 1, 0, None), None),
        (None, View("e", 1, 5, None), None),
        (None, View("e", 2, 5, None), "trimmed"),
        (Cursor("e", 0), View("e", 1, 5, None), None),
        (Cursor("e", 0), View("e", 2, 5, None), "trimmed"),
        (Cursor("e", 3), View("e", 4, 5, None), None),
        (Cursor("e", 3, "ab"), View("e", 4, 5, None), "trimmed"),
        (Cursor("e", 5, "ab"), View("e", 4, 5, "ab"), None),
        (Cursor("e", 6, "ab"), View("e", 4, 5, None), "mark"),
        (Cursor("e", 5, "ab"), View(None, 1, 0, None), "epoch"),
    ],
)
def test_the_table_of_decisions(cursor, view, reason):
    assert judge(cursor, view) == reason


def test_after_a_resync_a_reader_starts_before_what_is_left():
    assert beginning(View(None, 1, 0, None)) is None
    view = View("e", 4, 5, None)
    assert beginning(view) == Cursor("e", 3)
    assert judge(beginning(view), view) is None
