"""Notes: facts and steps that the next attempt inherits."""

import pytest

from oncekey.core.codec import PLAIN, UnreadableBytesError
from oncekey.core.record import LARGEST, Notes, read_notes
from oncekey.errors import ConfigurationError


def test_there_are_none_at_first():
    assert read_notes(b"") == Notes({}, {})
    assert read_notes(b"").facts is not read_notes(b"").facts


def test_facts_are_added_and_replaced_and_steps_stay():
    notes = Notes().with_step("load", b"5").with_facts({"a": 1, "b": 2}).with_facts({"b": [3]})
    assert notes == Notes({"a": 1, "b": [3]}, {"load": b"5"})


def test_notes_are_not_changed_by_what_is_added():
    first = Notes().with_facts({"a": 1})
    first.with_facts({"b": 2})
    first.with_step("load", b"")
    assert first == Notes({"a": 1}, {})


def test_steps_are_added_and_facts_stay():
    notes = Notes({"a": 1}).with_step("load", b"1").with_step("send", None)
    assert notes == Notes({"a": 1}, {"load": b"1", "send": None})


def test_notes_come_back_from_their_bytes():
    notes = Notes().with_facts({"a": {"b": [1, None]}}).with_step("s", b"\x00").with_step("n", None)
    assert read_notes(notes.encode()) == notes


@pytest.mark.parametrize("wrong", [(1,), object(), {1}, 2**70])
def test_a_fact_must_be_plain(wrong):
    with pytest.raises(
        ConfigurationError, match=r"^a note must be plain values \(str, int, list, dict"
    ):
        Notes().with_facts({"a": wrong})


def test_all_notes_together_must_fit():
    with pytest.raises(ConfigurationError) as caught:
        Notes().with_facts({"a": "x" * LARGEST})
    assert str(caught.value) == "all notes of one record must fit in 64 KiB; note a reference"
    half = Notes().with_facts({"a": "x" * (LARGEST // 2)})
    with pytest.raises(ConfigurationError):
        half.with_facts({"b": "x" * (LARGEST // 2)})
    assert half.with_facts({"a": "y" * (LARGEST // 2)}).facts["a"][0] == "y"


def test_notes_may_fill_their_space_to_the_last_byte():
    longest = Notes({"a": "x" * 60_000}).encode()
    room = LARGEST - len(longest) + 60_000
    full = Notes().with_facts({"a": "x" * room})
    assert len(full.encode()) == LARGEST
    with pytest.raises(ConfigurationError):
        Notes().with_facts({"a": "x" * (room + 1)})


def test_a_step_may_fill_the_space_to_the_last_byte():
    room = LARGEST - len(Notes({}, {"s": b"x" * 60_000}).encode()) + 60_000
    assert Notes().with_step("s", b"x" * room).steps["s"] is not None
    assert Notes().with_step("s", b"x" * (room + 1)).steps["s"] is None


def test_a_step_whose_result_does_not_fit_is_still_done():
    assert Notes().with_step("load", b"x" * LARGEST) == Notes({}, {"load": None})
    full = Notes().with_facts({"a": "x" * (LARGEST - 100)})
    assert full.with_step("load", b"y" * 100).steps == {"load": None}
    assert full.with_step("load", b"y").steps == {"load": b"y"}


@pytest.mark.parametrize("data", [b"\xc1", PLAIN.encode([1]), PLAIN.encode({"facts": 1})])
def test_bytes_that_are_no_notes_are_an_error_of_their_own(data):
    with pytest.raises(UnreadableBytesError):
        read_notes(data)
