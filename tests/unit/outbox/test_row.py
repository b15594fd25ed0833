"""Which messages can be sent."""

import json

import pytest

from oncekey import ConfigurationError, InvalidKeyError
from oncekey.outbox import Message
from oncekey.outbox.routes import checked_patterns, have_in_common, matches
from oncekey.outbox.row import new_row


def made(message=None, **options):
    given = {"to": "orders", "key": None, "after": None, "largest": 1000} | options
    return new_row(Message() if message is None else message, **given)


def test_a_message_without_an_id_gets_one():
    one, two = made(), made()
    assert one.id
    assert one.id != two.id
    assert made(Message(id="order-7")).id == "order-7"


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "a\nb"},
        {"id": " a"},
        {"id": "\ud800"},
        {"id": "a" * 257},
        {"id": 7},
        {"type": "a\x00"},
        {"type": "a" * 101},
        {"attributes": {"a\r\nX": "b"}},
        {"attributes": {"a": "b\r\nX: c"}},
        {"attributes": {"a:b": "c"}},
        {"attributes": {"a b": "c"}},
        {"attributes": {"ä": "c"}},
        {"attributes": {"": "c"}},
        {"attributes": {"a": None}},
        {"attributes": {"a": float("nan")}},
        {"attributes": {"a": ["b"]}},
        {"attributes": {7: "b"}},
        {"attributes": [("a", "b")]},
        {"body": object()},
        {"body": {"a": object()}},
        {"body": {"a": [1.5, float("nan"), None]}},
        {"body": float("inf")},
        {"body": "\ud800"},
        {"body": b"a" * 1000},
    ],
)
def test_what_no_broker_could_carry_is_refused(fields):
    with pytest.raises(ConfigurationError):
        made(Message(**fields))


def test_what_is_no_message_is_refused():
    with pytest.raises(ConfigurationError, match="takes a Message"):
        made("order")


@pytest.mark.parametrize("to", ["", " ", "a b", "a\r\nb", "orders.*", "a" * 256, 7, None])
def test_what_is_no_destination_is_refused(to):
    with pytest.raises(ConfigurationError):
        made(to=to)


@pytest.mark.parametrize("key", ["", 7, b"7", "a\x00", "a" * 257, "\ud800"])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(InvalidKeyError):
        made(key=key)


def test_text_of_all_languages_is_carried():
    message = Message(id="größe-7", type="注文", attributes={"name": "Zoë"}, body="ä")
    found = made(message, key="ключ", to="bestellungen.größe")
    assert (found.id, found.type, found.key) == ("größe-7", "注文", "ключ")
    assert json.loads(found.attributes) == {"name": "Zoë"}
    assert found.body == "ä".encode()


@pytest.mark.parametrize(
    ("pattern", "destination", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders.paid", False),
        ("orders.*", "orders.paid", True),
        ("orders.*", "orders.paid.late", True),
        ("orders.*", "orders", False),
        ("*", "anything", True),
    ],
)
def test_patterns(pattern, destination, fits):
    assert checked_patterns([pattern]) == (pattern,)
    assert matches(pattern, destination) is fits


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("orders", "orders", True),
        ("orders", "mail", False),
        ("orders", "orders.paid", False),
        ("orders.*", "*", True),
        ("orders.*", "orders.paid", True),
        ("orders.*", "orders.paid.*", True),
        ("orders.*", "orders", False),
        ("orders.*", "mail.*", False),
    ],
)
def test_destinations_that_two_patterns_have_in_common(one, other, both):
    assert have_in_common(one, other) is both
    assert have_in_common(other, one) is both
