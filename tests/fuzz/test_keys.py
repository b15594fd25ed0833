"""Whatever stands in a header, a template or a stored name: a key, or the error that says no."""

import string

from hypothesis import example, given
from hypothesis import strategies as st

from oncekey.core.key import Template, checked_key, checked_scope, stored_key
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.http.errors import MissingMemberError
from oncekey.http.keys import of_header, of_member
from oncekey.stores.redis.commands import name_of, place_of
from tests.fuzz.values import nested, small

PREFIX = b"idempotency:"
printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=255)
tricky = st.text(alphabet='/%:{}"\\,; ab\x00\x7fé', max_size=12)
in_header = st.binary(max_size=40) | tricky.map(lambda text: text.encode("latin-1", "replace"))


@given(st.lists(in_header, max_size=2))
@example([b'"' + b"\\" * 5000])
@example([b'"' + b'\\"' * 5000 + b'"'])
@example([b'"a"' + b" ;" * 5000])
def test_a_header_is_a_key_or_refused(values):
    try:
        key = of_header("Idempotency-Key", values)
    except InvalidKeyError:
        return
    assert checked_key(key) == key


def quoted(key: str) -> bytes:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.encode()


@given(printable, printable)
def test_two_quoted_keys_are_the_same_only_if_they_are(one, other):
    read = [of_header("K", [quoted(key)]) for key in (one, other)]
    assert read == [one, other]
    bare = (
        of_header("K", [one.encode()]) if one == one.strip() and not set(one) & set('",') else one
    )
    assert bare == one


@given(nested(small))
def test_a_member_of_a_body_is_a_key_or_refused(value):
    try:
        assert of_member("/key", value) == value
    except MissingMemberError:
        assert not isinstance(value, str) or checked(value) is None


def checked(value: str) -> str | None:
    try:
        return checked_key(value)
    except InvalidKeyError:
        return None


@given(st.none() | tricky | printable, tricky | printable, st.none() | tricky, tricky)
def test_stored_names_come_back_and_never_meet(scope, key, other_scope, other_key):
    places = [(scope, key), (other_scope, other_key)]
    good = [place for place in places if usable(*place)]
    names = [name_of(PREFIX, *place) for place in good]
    for (of_scope, of_key), name in zip(good, names, strict=True):
        assert place_of(PREFIX, name) == (of_scope or "", of_key)
    assert len(set(names)) == len(set(good))


def usable(scope: str | None, key: str) -> bool:
    try:
        return (checked_scope(scope), checked_key(key)) is not None
    except (ConfigurationError, InvalidKeyError):
        return False


@given(st.binary(max_size=40) | tricky.map(str.encode))
def test_any_name_in_the_store_is_a_place_or_none(name):
    place = place_of(PREFIX, PREFIX + name)
    if place is not None:
        assert stored_key(place[0] or None, place[1]).encode() == name


@given(st.text(string.printable + "{}ab.é", max_size=20))
def test_any_template_is_one_or_refused(text):
    try:
        template = Template(text, ("a", "b"))
    except ConfigurationError:
        return
    assert checked_key(template.fill({"a": "x", "b": 1}))


TEMPLATES = ["{a}:{b}", "{a}/{b}", "x-{a}-{b}", "{a} {b}", "{a}~{b}~", "{a}.{b}"]
pieces = st.text(alphabet="/%:{}-~. ab25", max_size=3)


@given(st.sampled_from(TEMPLATES), st.sampled_from(":/-~. "), pieces, pieces, pieces)
@example("x-{a}-{b}", "-", "a", "b", "c")
def test_a_template_gives_one_key_to_one_pair_of_values(text, between, one, two, three):
    """The same characters, cut into two values at one place or at another."""
    template = Template(text, ("a", "b"))
    pairs = {(f"{one}{between}{two}", three), (one, f"{two}{between}{three}")}
    filled = {template.fill({"a": a, "b": b}) for a, b in pairs if a and b}
    assert len(filled) == len([pair for pair in pairs if all(pair)])
