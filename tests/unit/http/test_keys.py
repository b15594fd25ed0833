"""Keys in headers and bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey import ConfigurationError, InvalidKeyError
from oncekey.http.errors import MissingMemberError
from oncekey.http.keys import checked_pointer, echoed, of_any_text, of_header, of_member, pointed

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255)


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        (b"8e03978e-40d5", "8e03978e-40d5"),
        (b"order:42/x", "order:42/x"),
        (b"0123456", "0123456"),
        (b"?1", "?1"),
        (b":aGk=:", ":aGk=:"),
        (b'"8e03978e-40d5"', "8e03978e-40d5"),
        (b' "padded"\t', "padded"),
        (b'"a, b"', "a, b"),
        (b'"a";x=1', "a"),
        (rb'"say \"hi\" \\ bye"', r'say "hi" \ bye'),
    ],
)
def test_bare_and_quoted_keys_are_read(sent, key):
    assert of_header("Idempotency-Key", [sent]) == key


@pytest.mark.parametrize(
    "sent",
    [
        [b""],
        [b"   "],
        [b'""'],
        [b'"open'],
        [rb'"bad \n escape"'],
        [b'"a", "b"'],
        [b"a,b"],
        [b"a", b"b"],
        [b"x" * 256],
        ["clé".encode()],
        [b"tab\tinside"],
        [b'"a"b'],
    ],
)
def test_what_cannot_be_a_key_is_refused(sent):
    with pytest.raises(InvalidKeyError, match=r"^Idempotency-Key "):
        of_header("Idempotency-Key", sent)


@given(PRINTABLE)
def test_every_key_comes_back_from_its_quoted_form(key):
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    assert of_header("K", [f'"{quoted}"'.encode()]) == key


@given(st.binary(max_size=300))
def test_whatever_is_sent_is_a_key_or_refused(sent):
    try:
        key = of_header("K", [sent])
    except InvalidKeyError:
        return
    assert 1 <= len(key) <= 255


@pytest.mark.parametrize("value", [None, 7, "", "x" * 256, "né", ["a"]])
def test_a_member_that_cannot_be_a_key_is_named(value):
    with pytest.raises(MissingMemberError, match=r"^idempotencyKey must") as caught:
        of_member("/idempotencyKey", value)
    assert caught.value.field == "idempotencyKey"


def test_a_member_is_a_key():
    assert of_member("/idempotencyKey", "key-12345") == "key-12345"


@pytest.mark.parametrize(
    ("pointer", "value"),
    [("/a", 1), ("/b/0", 2), ("/c/d~1e", 3), ("/c/f~0", 4), ("/b", [2])],
)
def test_pointers_lead_into_json(pointer, value):
    assert pointed({"a": 1, "b": [2], "c": {"d/e": 3, "f~": 4}}, pointer) == value


@pytest.mark.parametrize("pointer", ["/x", "/b/1", "/b/x", "/a/x"])
def test_pointers_that_lead_nowhere_say_so(pointer):
    with pytest.raises(KeyError):
        pointed({"a": 1, "b": [2]}, pointer)


@pytest.mark.parametrize("pointer", ["", "/", "userId", None])
def test_what_is_no_pointer_is_refused(pointer):
    with pytest.raises(ConfigurationError, match="JSON pointer"):
        checked_pointer(pointer)


@given(st.binary(max_size=300) | PRINTABLE.map(str.encode))
def test_white_space_around_a_key_does_not_count(sent):
    def read(value):
        try:
            return of_header("Idempotency-Key", [value])
        except InvalidKeyError as error:
            return str(error)

    assert read(sent) == read(b"\t" + sent)


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        (b"k-1", b"k-1"),
        (b" k-1\t", b"k-1"),
        (b'"k-1"', b'"k-1"'),
        (b'"k-1"; secret=1', b'"k-1"'),
        (b'"a\\"b\\\\,c"', b'"a\\"b\\\\,c"'),
    ],
)
def test_what_is_sent_back_is_the_key_and_nothing_else(raw, sent):
    key = of_header("Idempotency-Key", [raw])
    assert echoed(raw, key) == sent


@pytest.mark.row("P1")
@given(st.text(st.characters(), min_size=8, max_size=300), st.text(st.characters(), min_size=8))
def test_any_text_is_a_key_of_its_own(one, other):
    key = of_any_text("/key", one, 8)
    assert len(key) <= 255
    assert key.isascii()
    assert key.isprintable()
    assert (of_any_text("/key", other, 8) == key) is (one == other)


def test_a_plain_key_stays_as_it_is():
    assert of_any_text("/key", "idem_aaaa 1111:/~", 8) == "idem_aaaa 1111:/~"


@pytest.mark.parametrize("value", ["1234567", "", None, 12345678, ["12345678"]])
def test_what_is_no_such_text_is_named(value):
    with pytest.raises(MissingMemberError, match="key must be a string of 8 or more characters"):
        of_any_text("/key", value, 8)
