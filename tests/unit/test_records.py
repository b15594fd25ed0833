"""What may be done to a record by hand."""

from dataclasses import dataclass

import pytest

from oncekey.core.codec import PLAIN, Codec, error_words
from oncekey.core.requests import Resolve
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    InvalidKeyError,
    OutcomeUnknownError,
)
from oncekey.records import MISSING, Resolution, forgettable, place, resolution


def resolved(*, result=MISSING, error=None, retry=False):
    return resolution(result=result, error=error, retry=retry, ttl=7)


def test_a_place_is_checked():
    assert place("s", "k") == ("s", "k")
    assert place(None, "k") == (None, "k")
    with pytest.raises(InvalidKeyError):
        place(None, "")
    with pytest.raises(ConfigurationError):
        place("", "k")


@pytest.mark.parametrize("status", ["completed", "failed", "released"])
def test_what_has_ended_may_be_forgotten(recorded, status):
    forgettable(recorded(status=status), force=False)


@pytest.mark.parametrize("status", ["running", "held", "completed"])
def test_by_force_anything_may_be_forgotten(recorded, status):
    forgettable(recorded(status=status), force=True)


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (
            "running",
            InProgressError,
            "'charge:42' is running; forget it with force=True, and its attempt is lost",
        ),
        (
            "held",
            OutcomeUnknownError,
            "'charge:42' is held; resolve it, or forget it with force=True",
        ),
    ],
)
def test_what_is_alive_is_not_forgotten_by_mistake(recorded, status, error, words):
    with pytest.raises(error) as caught:
        forgettable(recorded(status=status), force=False)
    assert str(caught.value) == words
    assert (caught.value.key, caught.value.scope) == ("charge:42", "billing")


def test_a_held_record_may_run_again():
    assert resolved(retry=True) == Resolution("released", None, None, 7)


@pytest.mark.parametrize("value", [None, 0, "", [], {"id": 7}])
def test_a_held_record_may_end_with_a_result_even_with_none(value):
    assert resolved(result=value) == Resolution("completed", PLAIN.encode(value), None, 7)


def test_a_held_record_may_end_with_an_error():
    made = resolved(error=ValueError("no funds"))
    assert (made.status, made.result, made.ttl) == ("failed", None, 7)
    assert error_words(made.error or b"") == "ValueError: no funds"


@dataclass
class Order:
    number: int


@pytest.mark.parametrize("value", [Order(7), (1, 2), {3}])
def test_a_result_is_kept_as_its_own_type_keeps_it(value):
    assert resolved(result=value).result == Codec(type(value)).encode(value)


def test_a_result_that_cannot_be_kept_is_refused():
    with pytest.raises(ConfigurationError, match=r"^the result cannot be kept: object cannot be"):
        resolved(result=object())


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"result": 1, "retry": True},
        {"result": None, "error": ValueError()},
        {"error": ValueError(), "retry": True},
        {"result": 1, "error": ValueError(), "retry": True},
    ],
)
def test_exactly_one_ending_must_be_said(said):
    with pytest.raises(ConfigurationError) as caught:
        resolved(**said)
    assert str(caught.value) == "resolve needs exactly one of result=..., error=... and retry=True"


@pytest.mark.parametrize("wrong", ["no funds", ValueError, 7])
def test_an_error_must_be_an_exception(wrong):
    with pytest.raises(ConfigurationError) as caught:
        resolved(error=wrong)
    assert str(caught.value) == f"error must be an exception, but it is {wrong!r}"


def test_the_request_names_the_record_as_it_was_read(recorded):
    made = Resolution("completed", b"r", None, 7).request(recorded(token=5))
    assert made == Resolve(
        "billing", "charge:42", token=5, status="completed", result=b"r", error=None, ttl=7
    )
