"""The record, as people read it."""

from datetime import UTC, datetime

import pytest

from oncekey.core.codec import PLAIN, encode_error
from oncekey.core.record import FORMAT, Notes
from oncekey.errors import UnreadableError


def test_a_new_record_holds_nothing_yet(recorded):
    record = recorded()
    assert record.value is None
    assert record.failure == ""
    assert record.notes == {}
    assert record.steps == ()
    assert record.version == FORMAT == 1


def test_a_record_does_not_change(recorded):
    with pytest.raises(AttributeError):
        recorded().status = "held"


@pytest.mark.parametrize("value", [None, 0, {"id": 7}, [1, 2]])
def test_the_kept_result_is_shown_as_plain_values(recorded, value):
    assert recorded(result=PLAIN.encode(value)).value == value


def test_the_last_failure_is_told_in_words(recorded):
    assert recorded(error=encode_error(ValueError("no"))).failure == "ValueError: no"
    assert recorded(error=b"\xc1").failure == ""


def test_facts_and_steps_are_shown(recorded):
    noted = Notes({"a": 1}, {"load": b"", "send": None}).encode()
    assert recorded(noted=noted).notes == {"a": 1}
    assert recorded(noted=noted).steps == ("load", "send")


def test_times_are_shown_in_utc(recorded):
    record = recorded(created=1_767_225_600_000_001, finished=0, expires=0)
    assert record.at("created") == datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert record.at("finished") is None
    assert record.at("expires") is None


def test_a_result_that_cannot_be_read_says_so(recorded):
    with pytest.raises(
        UnreadableError, match=r"^the result of 'charge:42' cannot be read: "
    ) as caught:
        _ = recorded(result=b"\xc1").value
    assert (caught.value.key, caught.value.scope) == ("charge:42", "billing")


@pytest.mark.parametrize("shown", ["notes", "steps"])
def test_notes_that_cannot_be_read_say_so(recorded, shown):
    with pytest.raises(
        UnreadableError, match=r"^the notes of 'charge:42' cannot be read: "
    ) as caught:
        getattr(recorded(noted=b"\xc1"), shown)
    assert (caught.value.key, caught.value.scope) == ("charge:42", "billing")
