"""Whatever bytes a store hands back: what was kept, or the error that says it cannot be read."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncekey.core.codec import (
    PLAIN,
    Codec,
    NotKeepableError,
    UnreadableBytesError,
    decode_error,
    encode_error,
    error_words,
)
from oncekey.core.record import Notes, Record, read_notes
from oncekey.errors import OncekeyError
from oncekey.http.response import packed, unpacked
from oncekey.jobs.enqueue import Tag, read_tag
from oncekey.stores.redis.commands import found
from oncekey.stores.sqlite.statements import from_row, to_row
from tests.fuzz.bytes_of import DEEP, damaged
from tests.fuzz.values import nested, small, told_apart
from tests.servers.redis_stored import as_stored

values = nested(small)
pack = msgspec.msgpack.encode
NOT_UTF8 = b"\xa1\xff"
TOO_DEEP = b"\x91" * DEEP + b"\x01"


class OddError(Exception):
    """One of the errors that a user keeps."""


# Results


@given(values)
def test_a_result_comes_back_as_it_was_or_is_not_kept(value):
    try:
        data = PLAIN.encode(value)
    except NotKeepableError:
        return
    assert told_apart(PLAIN.decode(data)) == told_apart(value)


@given(values, values)
def test_two_results_are_kept_as_the_same_bytes_only_if_they_are_the_same(one, other):
    try:
        same = PLAIN.encode(one) == PLAIN.encode(other)
    except NotKeepableError:
        return
    if same:
        assert told_apart(one) == told_apart(other)


def bytes_of(value):
    try:
        return pack(value, enc_hook=str)
    except OverflowError:  # a number that msgpack cannot hold
        return b""


@given(damaged(values.map(bytes_of)))
@example(NOT_UTF8)
@example(TOO_DEEP)
def test_any_bytes_are_a_result_or_unreadable(data):
    for codec in (PLAIN, Codec(dict[str, int]), Codec(list[float]), Codec(int | None)):
        try:
            codec.decode(data)
        except UnreadableBytesError:
            continue


# Notes and errors

notes = st.builds(
    Notes,
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.none() | st.binary(max_size=3), max_size=2),
)


@given(notes)
def test_notes_come_back(noted):
    try:
        data = noted.encode()
    except (UnicodeEncodeError, OverflowError):
        return
    assert read_notes(data) == noted


@given(damaged(st.just(Notes({"a": 1, "b": "x"}, {"load": b"\x01"}).encode())))
@example(b"\x82\xa5facts\x81" + NOT_UTF8 + b"\x01\xa5steps\x80")
@example(b"\x82\xa5facts\x81\xa1a" + TOO_DEEP + b"\xa5steps\x80")
def test_any_bytes_are_notes_or_unreadable(data):
    try:
        read_notes(data)
    except UnreadableBytesError:
        return


@given(damaged(st.just(encode_error(OddError("no funds", 7)))))
@example(b"\x94" + NOT_UTF8 + b"\xa1a\xa1b\xc0")
@example(b"\x95\xa1a\xa1a\xa1b\xc0" + TOO_DEEP)
def test_any_bytes_are_an_error_or_unreadable(data):
    assert isinstance(error_words(data), str)
    try:
        error, name, message = decode_error(data, (OddError,))
    except UnreadableBytesError:
        return
    assert error is None or isinstance(error, OddError)
    assert isinstance(name, str)
    assert isinstance(message, str)


# Records

record = Record(
    scope="s",
    key="k",
    status="completed",
    fingerprint="1:a",
    token=5_000_001,
    nonce="n",
    attempt=1,
    lease_end=6_000_000,
    result=b"\xc0",
    created=5_000_000,
    started=5_000_000,
    updated=5_000_100,
    finished=5_000_100,
    expires=9_000_000,
)
STORED = as_stored(record)
SPOKEN = msgspec.structs.replace(record, label="Übung", reference="ß", error=b"e", noted=b"n")


@pytest.mark.parametrize("one", [record, SPOKEN])
def test_a_stored_record_comes_back(one):
    assert found("s", "k", as_stored(one)) == one


@given(damaged(st.just(STORED)))
@example(b"garbage")
@example(b"once")
@example(STORED[:5] + b"\x09" + STORED[6:])
@example(STORED[:-2] + b"\xff\xff")
def test_any_stored_bytes_are_a_record_or_unreadable(data):
    try:
        read = found("s", "k", data)
    except OncekeyError:
        return
    assert read is not None
    assert read.status in ("running", "completed", "failed", "released", "held")
    assert isinstance(read.token, int)


@given(st.integers(1, 2), st.integers(0, 2**62), st.none() | st.binary(max_size=4), st.booleans())
def test_a_row_comes_back(attempt, token, result, uncertain):
    one = msgspec.structs.replace(
        record, attempt=attempt, token=token, result=result, uncertain=uncertain
    )
    assert from_row(to_row(one)) == one


# Responses and tags


@given(damaged(st.just(packed(200, [(b"content-type", b"text/plain")], b"hello"))))
@example(NOT_UTF8)
@example(TOO_DEEP)
def test_any_bytes_are_a_response_or_unreadable(data):
    try:
        reply = unpacked(data)
    except UnreadableBytesError:
        return
    assert isinstance(reply.status, int)
    assert isinstance(reply.body, bytes)


@given(
    st.text(max_size=20)
    | damaged(st.just(Tag("s", "k", 5, "ttl").text().encode())).map(
        lambda data: data.decode("latin-1")
    )
)
@example("\ud800")
@example("[" * DEEP)
@example('["s","k",1,"ttl",' + "[" * DEEP)
def test_any_header_is_a_tag_or_none(text: Any):
    tag = read_tag(text)
    assert tag is None or isinstance(tag, Tag)
