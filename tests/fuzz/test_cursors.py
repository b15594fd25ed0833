"""Whatever a client sends as its last id: a place in a log, or none of ours."""

from hypothesis import example, given
from hypothesis import strategies as st

from oncekey.events.cursor import Cursor, View, judge, parse

ids = st.from_regex(r"[0-9a-f]{1,4}\.[0-9]{1,3}\.([0-9a-f]{1,4}|-)", fullmatch=True)
odd = st.text("0123456789abcdefg.-+ \n\u0663\u00b2", max_size=12)
views = st.builds(
    View,
    st.none() | st.sampled_from(["a", "b"]),
    st.integers(1, 4),
    st.integers(0, 4),
    st.none() | st.sampled_from(["1", "2"]),
)


@given(st.text(max_size=40) | odd | ids)
@example("a.1.b\n")
@example("a.01.b")
@example("a.\u0663.b")
@example("a." + "9" * 5000 + ".b")
@example("a" * 100_000)
def test_any_text_is_a_cursor_or_none_and_no_two_texts_are_the_same_one(text):
    cursor = parse(text)
    if cursor is not None:
        assert str(cursor) == text
        assert parse(str(cursor)) == cursor


@given(st.none() | st.integers() | st.binary())
def test_what_is_no_text_is_no_cursor(value):
    assert parse(value) is None


@given(
    st.builds(
        Cursor, st.sampled_from(["a", "b"]), st.integers(0, 5), st.sampled_from(["1", "2", "-"])
    ),
    views,
)
def test_a_reader_goes_on_only_if_nothing_is_missing(cursor, view):
    if judge(cursor, view) is None:
        assert cursor.epoch == view.epoch
        assert cursor.offset <= view.last
        assert cursor.offset + 1 >= view.first
        assert cursor.mark in ("-", view.mark)
