"""Keys and scopes: what they may be, how templates make them, how a store writes them down."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from oncekey.core.key import (
    ArgumentPath,
    Template,
    checked_key,
    checked_scope,
    escape,
    function_key,
    readable,
    stored_key,
)
from oncekey.errors import ConfigurationError, InvalidKeyError

PRINTABLE = re.compile(r"[ -~]{1,255}")
printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=255)
scopes = st.none() | printable
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(printable)
def test_every_printable_key_is_taken_as_it_is(key):
    assert checked_key(key) is key
    assert checked_scope(key) is key


def test_the_longest_key_and_scope_have_255_characters():
    assert checked_key("k" * 255) == "k" * 255
    assert checked_scope("s" * 255) == "s" * 255


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "a key must not be empty; name the operation, for example 'charge:42'"),
        (42, "a key must be a string, but it is int; convert it first"),
        (None, "a key must be a string, but it is NoneType; convert it first"),
        (b"charge", "a key must be a string, but it is bytes; convert it first"),
        ("k" * 256, "a key has at most 255 characters, this one has 256; hash the long part"),
        ("a\nb", "a key must be printable ASCII, but it is 'a\\nb'; percent-encode or hash it"),
        ("a\x00", "a key must be printable ASCII, but it is 'a\\x00'; percent-encode or hash it"),
        ("\x7f", "a key must be printable ASCII, but it is '\\x7f'; percent-encode or hash it"),
        ("übung", "a key must be printable ASCII, but it is 'übung'; percent-encode or hash it"),
        ("a\n", "a key must be printable ASCII, but it is 'a\\n'; percent-encode or hash it"),
    ],
)
def test_a_key_that_cannot_be_one_says_why_and_what_to_do(key, words):
    with pytest.raises(InvalidKeyError) as caught:
        checked_key(key)
    assert str(caught.value) == words


def test_no_scope_is_none():
    assert checked_scope(None) is None


@pytest.mark.parametrize("scope", ["", "s" * 256, 7, b"s"])
def test_a_scope_has_the_length_of_a_key(scope):
    with pytest.raises(ConfigurationError) as caught:
        checked_scope(scope)
    words = f"a scope must be None or a string of 1 to 255 characters, not {scope!r}"
    assert str(caught.value) == words


@pytest.mark.parametrize("scope", ["a\tb", "ä", "a\n"])
def test_a_scope_is_printable_too(scope):
    with pytest.raises(ConfigurationError) as caught:
        checked_scope(scope)
    words = f"a scope must be printable ASCII, but it is {scope!r}; percent-encode it"
    assert str(caught.value) == words


# One string for scope and key


@given(scopes, printable, scopes, printable)
@example("a", "b", None, "a/b")
@example("a/b", "c", "a", "b/c")
@example("a%2F", "c", "a/", "c")
@example(None, "%2F", None, "/")
@example("%", "c", "%25", "c")
def test_two_pairs_of_scope_and_key_are_never_stored_under_one_name(scope, key, scope2, key2):
    assert (stored_key(scope, key) == stored_key(scope2, key2)) == ((scope, key) == (scope2, key2))


def test_a_plain_key_without_a_scope_is_stored_as_it_is():
    assert stored_key(None, "test-123") == "test-123"
    assert stored_key("billing", "charge:42") == "billing/charge:42"
    assert stored_key("a/b", "50%/c") == "a%2Fb/50%25%2Fc"


# Long keys


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=600))
def test_a_made_key_always_fits(text):
    made = function_key(text)
    assert PRINTABLE.fullmatch(made)
    assert made == text if len(text) < 255 else len(made) == 255


def test_long_keys_that_differ_at_their_end_stay_apart():
    long = "k" * 400
    assert function_key(long + "a") != function_key(long + "b")
    assert function_key(long) == function_key(long)
    assert function_key(long).startswith("k" * 190 + "~")


def test_a_digested_key_is_never_the_key_of_something_short():
    digested = function_key("k" * 255)
    assert len(digested) == 255
    assert digested != "k" * 255
    assert function_key("k" * 254) == "k" * 254


@pytest.mark.parametrize(
    "bad", ["", "a\nb", "a" * 300 + "\n", "\ud800" * 300, "a" * 300 + "\ud800"]
)
def test_a_made_key_is_checked_whatever_its_length(bad):
    with pytest.raises(InvalidKeyError):
        function_key(bad)


# Escaping


@given(texts, texts)
def test_two_values_are_never_escaped_alike(one, other):
    assert (escape(one) == escape(other)) == (one == other)


@given(texts)
def test_nothing_in_an_escaped_value_means_anything_in_a_key(value):
    assert not set(escape(value)) & set("/:{} ")
    assert re.fullmatch(r"([!-$&-.;-z|~0-9]|%[0-9A-F]{2})+", escape(value))


def test_what_needs_no_escape_is_left_as_it_is():
    assert escape("user-7_a.b@example.org") == "user-7_a.b@example.org"
    assert escape("a/b:c d{}%\n") == "a%2Fb%3Ac%20d%7B%7D%25%0A"


# Paths


class Order:
    def __init__(self, number):
        self.number = number


def test_a_path_leads_through_attributes_and_mappings():
    arguments = {"order": Order({"de": 7}), "n": 3}
    assert ArgumentPath("order.number.de", ("order", "n"), "the key").of(arguments) == 7
    assert ArgumentPath("n", ("order", "n"), "the key").of(arguments) == 3


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("order.name", "'order.name' leads nowhere: Order has no 'name'"),
        ("order.number.fr", "'order.number.fr' leads nowhere: dict has no 'fr'"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_stops(path, words):
    with pytest.raises(InvalidKeyError) as caught:
        ArgumentPath(path, ("order",), "the key").of({"order": Order({"de": 7})})
    assert str(caught.value) == words


@pytest.mark.parametrize("path", ["", "a.", ".a", "a..b", "0", "a b", "a[0]", "a.0"])
def test_a_path_is_made_of_names(path):
    with pytest.raises(ConfigurationError) as caught:
        ArgumentPath(path, ("a",), "the fingerprint")
    words = f"the fingerprint has the placeholder {{{path}}}; write an argument's name, or a.b.c"
    assert str(caught.value) == words


def test_a_path_starts_at_an_argument():
    with pytest.raises(ConfigurationError) as caught:
        ArgumentPath("user.id", ("order", "n"), "the fingerprint")
    words = "the fingerprint uses the argument 'user', but the function has: order, n"
    assert str(caught.value) == words
    with pytest.raises(ConfigurationError, match=r"but the function has: none$"):
        ArgumentPath("user.id", (), "the fingerprint")


# Templates


class Colour(Enum):
    RED = "red"
    NONE = None


class Money:
    def __str__(self):
        return "5 EUR"


class Bare:
    pass


@dataclass
class Plain:
    x: int


class Pairs(dict):  # type: ignore[type-arg]  # any will do
    def __str__(self):
        return "pairs"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b/c", "a%20b%2Fc"),
        (0, "0"),
        (7, "7"),
        (True, "True"),
        (1.5, "1.5"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (b"\x00\xff", "00ff"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03%3A04%3A00"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03%3A04%3A00+00%3A00"),
        (Colour.RED, "red"),
        (Money(), "5%20EUR"),
        ("übung", "%C3%BCbung"),
    ],
)
def test_a_placeholder_is_filled_with_the_text_of_its_value(value, text):
    assert Template("charge:{v}", ("v",)).fill({"v": value}) == f"charge:{text}"


@pytest.mark.parametrize("value", [None, "", b"", Colour.NONE])
def test_a_placeholder_needs_a_value(value):
    with pytest.raises(InvalidKeyError) as caught:
        Template("charge:{order.id}", ("order",)).fill({"order": {"id": value}})
    plain = value.value if isinstance(value, Enum) else value
    words = f"the placeholder {{order.id}} is {plain!r}; a key needs a value there"
    assert str(caught.value) == words


@pytest.mark.parametrize(
    "value", [[1], (1,), {"a": 1}, {1}, frozenset({1}), Bare(), Plain(1), Pairs()]
)
def test_a_value_without_a_text_of_its_own_is_refused(value):
    with pytest.raises(InvalidKeyError) as caught:
        Template("charge:{v}", ("v",)).fill({"v": value})
    assert str(caught.value) == (
        f"the placeholder {{v}} is a {type(value).__name__}, whose text is not the same "
        "for equal values; use one of its fields, as in {v.id}"
    )


NAME = "write an argument's name, or a.b.c"


def test_a_template_without_placeholders_is_a_key():
    assert Template("nightly", ()).fill({}) == "nightly"


def test_literal_braces_are_doubled():
    assert Template("a{{{x}}}b", ("x",)).fill({"x": "1"}) == "a{1}b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a key template must not be empty; name the operation, for example 'charge:{id}'"),
        ("a:{y}", "the key template 'a:{y}' uses the argument 'y', but the function has: x"),
        ("a:{}", "the key template 'a:{}' has the placeholder {}; " + NAME),
        ("a:{0}", "the key template 'a:{0}' has the placeholder {0}; " + NAME),
        ("a:{x!r}", "the key template 'a:{x!r}' formats {x}; pass a key function for that"),
        ("a:{x:>5}", "the key template 'a:{x:>5}' formats {x}; pass a key function for that"),
        ("a\n{x}", "the key template 'a\\n{x}' must be printable ASCII"),
        ("ä{x}", "the key template 'ä{x}' must be printable ASCII"),
    ],
)  # fmt: skip
def test_a_wrong_template_fails_when_it_is_made(text, words):
    with pytest.raises(ConfigurationError) as caught:
        Template(text, ("x",))
    assert str(caught.value) == words


@pytest.mark.parametrize("text", ["a{x", "a}x", "{x}}"])
def test_a_template_with_a_loose_brace_says_how_to_write_one(text):
    with pytest.raises(ConfigurationError) as caught:
        Template(text, ("x",))
    assert str(caught.value).startswith(f"the key template {text!r} cannot be read: ")
    assert str(caught.value).endswith("; write literal braces as {{ and }}")


def test_a_value_that_no_store_can_write_down_is_named():
    with pytest.raises(InvalidKeyError, match=r"\{x\}"):
        Template("a:{x}", ("x",)).fill({"x": "\ud800"})


separators = st.sampled_from([":", "/", " ", "{{", "}}", ":x:", "a/b"])
pairs = st.tuples(texts, texts)


@given(separators, pairs, pairs)
@example(":", ("a:b", "c"), ("a", "b:c"))
@example("/", ("a%2F", "c"), ("a/", "c"))
def test_different_values_make_different_keys(between, ones, others):
    template = Template("op:{a}" + between + "{b}", ("a", "b"))
    one = template.fill({"a": ones[0], "b": ones[1]})
    other = template.fill({"a": others[0], "b": others[1]})
    assert PRINTABLE.fullmatch(one)
    assert (one == other) == (ones == others)


few = st.text("xy-%2F0 /", min_size=1, max_size=4)


@given(st.sampled_from(["-", "", "x", "%", "%2F", "_x_"]), st.tuples(few, few), st.tuples(few, few))
@example("-", ("x-y", "z"), ("x", "y-z"))
@example("", ("x", "yz"), ("xy", "z"))
@example("%", ("x/", "20"), ("x", "2F "))
def test_no_other_separator_lets_values_run_into_each_other(between, ones, others):
    assume(ones != others)
    try:
        template = Template("op:{a}" + between + "{b}", ("a", "b"))
    except ConfigurationError:
        return  # a template that cannot keep them apart may be refused, but never made
    one = template.fill({"a": ones[0], "b": ones[1]})
    assert one != template.fill({"a": others[0], "b": others[1]})


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("POST /orders", "POST /orders"),
        ("Größe", "Größe"),
        ("a\x00b", "a%00b"),
        ("one\ntwo", "one%0Atwo"),
        ("half \ud800", "half%20?"),
        ("x" * 300, "x" * 255),
        ("\n" * 300, "%0A" * 85),
    ],
)
def test_a_text_for_people_is_one_that_every_store_can_keep(text, kept):
    assert readable(text) == kept
