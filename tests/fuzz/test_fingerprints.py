"""Two things have one fingerprint only if they are the same."""

import json
from urllib.parse import unquote_to_bytes

from hypothesis import example, given
from hypothesis import strategies as st

from oncekey.core.fingerprint import differ, of_arguments, of_json, of_value
from oncekey.errors import ConfigurationError
from oncekey.http.body import Body
from tests.fuzz.bytes_of import DEEP
from tests.fuzz.values import nested, small, told_apart

values = nested(small)


@given(values, values)
@example(["int", "18446744073709551616"], 18446744073709551616)
@example({"a": 1}, [["a", 1]])
@example("1", 1)
@example(True, 1)
@example(0.0, -0.0)
@example([b"a"], ["a"])
def test_values_have_one_fingerprint_only_if_they_are_the_same(one, other):
    first, second = of_value(one), of_value(other)
    assert (first == second) == (told_apart(one) == told_apart(other))
    assert differ(first, second) == (first != second)


@given(
    st.dictionaries(st.sampled_from("abc"), values), st.dictionaries(st.sampled_from("abc"), values)
)
@example({"a": "b"}, {"a": "b", "b": None})
def test_calls_have_one_fingerprint_only_if_their_arguments_are_the_same(one, other):
    same = list(map(told_apart, one.items())) == list(map(told_apart, other.items()))
    assert (of_arguments(one) == of_arguments(other)) == same


@given(st.text(alphabet=st.characters(), max_size=5))
@example("\ud800")
def test_any_text_is_fingerprinted_or_refused(text):
    try:
        made = of_value(text)
    except ConfigurationError:
        made = "1:"
    assert made.startswith("1:")


# JSON

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=4)
    | st.decimals(
        allow_nan=False, allow_infinity=False, places=3, min_value=-(10**6), max_value=10**6
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)


def spelled(value, spaces: str) -> str:
    if isinstance(value, dict):
        members = [
            f"{json.dumps(name)}:{spaces}{spelled(one, spaces)}" for name, one in value.items()
        ]
        return "{" + f",{spaces}".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(spelled(one, spaces) for one in value) + spaces + "]"
    return str(value) if type(value).__name__ == "Decimal" else json.dumps(value)


def meaning(value):
    if isinstance(value, dict):
        return frozenset((name, meaning(one)) for name, one in value.items())
    if isinstance(value, list):
        return tuple(map(meaning, value))
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return (type(value).__name__, value)
    return ("number", value)


@given(plain, plain)
@example(100, 100.0)
def test_json_has_one_fingerprint_only_if_it_means_the_same(one, other):
    first = of_json(spelled(one, "").encode())
    assert first == of_json(spelled(one, " \n").encode())
    assert (first == of_json(spelled(other, "").encode())) == (meaning(one) == meaning(other))


@given(
    st.binary(max_size=40)
    | st.text('[]{}",:0123456789eE+-.truefalsn\\u ', max_size=30).map(str.encode)
)
@example(b"1" * 100_000)
@example(b"0." + b"1" * 100_000)
@example(b"1e999999999")
@example(b"1e99999999999999999999")
@example(b"[" * DEEP)
@example(b'"\\ud800"')
def test_any_bytes_are_json_or_refused_and_at_once(body):
    try:
        assert of_json(body).startswith("1:")
    except ValueError:
        return


# Bodies


def body(data: bytes, kind: str) -> str:
    read = Body(1 << 20, kind)
    read.feed(data)
    return read.fingerprint


FORM = "application/x-www-form-urlencoded"
form = st.text(alphabet="ab=&+%0123fFeE", max_size=12).map(str.encode)


@given(form, form)
@example(b"a=%FE", b"a=%FF")
@example(b"a=%C3%28", b"a=%C3%29")
def test_forms_are_the_same_only_if_their_fields_are(one, other):
    same = fields(one) == fields(other)
    assert (body(one, FORM) == body(other, FORM)) == same


def fields(data: bytes) -> dict[bytes, list[bytes]]:
    """The fields of a form by name, worked out plainly; an empty piece is none."""
    found: dict[bytes, list[bytes]] = {}
    for piece in filter(None, data.split(b"&")):
        name, _, value = piece.replace(b"+", b" ").partition(b"=")
        found.setdefault(unquote_to_bytes(name), []).append(unquote_to_bytes(value))
    return found


@given(
    st.binary(max_size=60),
    st.sampled_from(
        ["application/json", FORM, "multipart/form-data; boundary=a", "text/plain", ""]
    ),
)
def test_any_body_has_a_fingerprint(data, kind):
    assert ":" in body(data, kind)
