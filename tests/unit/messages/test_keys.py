"""The key of a message: its id, chosen fields of its body, or an attribute."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey import ConfigurationError, InvalidKeyError
from oncekey.messages import Message, by_attribute, by_fields, by_message_id
from oncekey.messages.keys import key_of

CREATED = Message(
    id="m-1",
    type="user.created",
    attributes={"request_id": "r-1"},
    body=b'{"user_id": "u-7", "email": "ann@example.org", "address": {"city": "Oslo"}, "no": null}',
)


def key(message, strategy=by_message_id, on_missing="error"):
    return key_of(message, strategy, on_missing)


@pytest.mark.row("M4")
def test_the_message_id_unless_something_else_is_asked_for():
    assert key(CREATED) == "m-1"
    assert key(CREATED, lambda _: "") == "m-1"
    assert key(CREATED, lambda _: "mine") == "mine"


@pytest.mark.row("M4")
def test_a_business_key_is_a_sha256_over_type_and_fields():
    made = key(CREATED, by_fields("user_id", "email"))
    assert made == sha256(b"user.created:u-7:ann@example.org").hexdigest()
    assert key(CREATED, by_fields("address.city")) != made
    untyped = Message(body={"user_id": "u-7"})
    assert key(untyped, by_fields("user_id")) == sha256(b"u-7").hexdigest()


@pytest.mark.row("M4")
def test_an_attribute_steps_in_and_the_message_id_for_it():
    assert key(CREATED, by_attribute("request_id")) == "r-1"
    assert key(CREATED, by_attribute()) == "r-1"
    assert key(CREATED, by_attribute("trace")) == "m-1"
    assert key(Message(id="m-2", attributes={"request_id": ""}), by_attribute()) == "m-2"
    assert key(Message(id="m-2", attributes={"request_id": b"r-2"}), by_attribute()) == "r-2"


def test_fields_of_decoded_bodies_and_of_objects():
    class Body:
        user_id = 7

    assert key(Message(body=Body()), by_fields("user_id")) == sha256(b"7").hexdigest()
    assert key(Message(body='{"user_id": 7}'), by_fields("user_id")) == sha256(b"7").hexdigest()


def test_an_object_without_a_text_of_its_own_is_no_key():
    """Its address would be, which is another one in the next delivery."""
    message = Message(id="m-1", body={"order": object()}, attributes={"request_id": object()})
    for strategy in (by_fields("order"), by_attribute()):
        with pytest.raises(InvalidKeyError, match="object has no text of its own"):
            key(message, strategy)


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2))
def test_neighbouring_fields_do_not_run_together(values):
    one = Message(type="t", body={"a": values[0], "b": values[1]})
    other = Message(type="t", body={"a": values[0] + ":", "b": values[1]})
    strategy = by_fields("a", "b")
    assert key(one, strategy) != key(other, strategy)


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_ids_never_have_one_key(one, other):
    assert (key(Message(id=one)) == key(Message(id=other))) == (one == other)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no json", "no JSON"),
        (b"\xff", "no JSON"),
        ({"user_id": None}, "is empty"),
        ({"user_id": ""}, "is empty"),
        ({}, "has no field 'user_id'"),
        (object(), "has no field 'user_id'"),
    ],
)
def test_fields_that_are_not_there(body, words):
    with pytest.raises(InvalidKeyError, match=words):
        key(Message(id="m-1", body=body), by_fields("user_id"))


def test_what_to_do_without_an_id():
    message = Message(type="t", body=b"x", lacks="the header Nats-Msg-Id")
    with pytest.raises(InvalidKeyError, match="lacks the header Nats-Msg-Id; set it where"):
        key(message)
    assert key(message, on_missing="run") is None
    hashed = key(message, on_missing="hash")
    assert hashed == key(Message(type="t", body=bytearray(b"x")), on_missing="hash")
    assert hashed != key(Message(type="t", body=b"y"), on_missing="hash")


def test_half_a_character_is_no_key():
    with pytest.raises(InvalidKeyError, match="half a character"):
        key(Message(id="\ud800"))
    with pytest.raises(InvalidKeyError, match="half a character"):
        key(Message(body={"a": "\ud800"}), by_fields("a"))


def test_what_is_no_strategy():
    for wrong in ((), ("",), (7,)):
        with pytest.raises(ConfigurationError):
            by_fields(*wrong)
    with pytest.raises(ConfigurationError):
        by_attribute("")
    with pytest.raises(InvalidKeyError):
        key(CREATED, lambda _: 7)
