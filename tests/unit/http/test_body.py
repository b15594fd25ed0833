"""Bodies: kept, given back, and told apart by what they mean."""

import gzip
import zlib
from contextlib import closing

import brotli  # type: ignore[import-untyped]  # it brings no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.http.body import Body
from oncekey.http.errors import TooLargeError

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def body_of(*chunks, kind=JSON, limit=1 << 30, encoding=""):
    body = Body(limit, kind, encoding)
    for chunk in chunks:
        body.feed(chunk)
    return body


@pytest.mark.parametrize(
    "chunks", [[], [b""], [b"one"], [b"one", b"two"], [b"x" * 700_000, b"y" * 700_000, b"z"]]
)
def test_what_was_fed_comes_back(chunks):
    whole = b"".join(chunks)
    body = body_of(*chunks)
    assert body.size == len(whole)
    assert b"".join(body.chunks()) == body.whole() == body.stream().read() == whole
    assert list(body.chunks())
    body.close()


def test_more_than_the_limit_is_refused():
    body = body_of(b"12345", limit=5)
    with pytest.raises(TooLargeError, match="5 bytes") as caught:
        body.feed(b"6")
    assert caught.value.status_hint == 413


@pytest.mark.row("P7")
@pytest.mark.parametrize(
    "other",
    [b'{"b":2,"a":1.0}', b'{ "a": 1, "b": 2 }', b'{"a":1e0,"b":2.00}'],
)
def test_the_same_json_has_one_fingerprint(other):
    one = body_of(b'{"a":1,"b":2}').fingerprint
    assert body_of(other).fingerprint == one
    assert body_of(other, kind="application/vnd.api+json; charset=utf-8").fingerprint == one
    assert body_of(other, kind="text/plain").fingerprint != one


@pytest.mark.parametrize("other", [b'{"a":1}', b'{"a":"1","b":2}', b'{"a":1,"b":[2]}', b"{", b""])
def test_other_json_has_another_fingerprint(other):
    assert body_of(other).fingerprint != body_of(b'{"a":1,"b":2}').fingerprint


def test_what_is_not_json_counts_byte_by_byte():
    broken = body_of(b'{"a": ')
    assert broken.fingerprint == body_of(b'{"a": ', kind="").fingerprint
    with pytest.raises(ValueError, match="not JSON"):
        _ = broken.value


def test_large_json_counts_byte_by_byte():
    large = b'{"a":"' + b"x" * (1 << 20) + b'"}'
    assert body_of(large).fingerprint == body_of(large, kind="").fingerprint


def test_the_order_of_a_forms_names_does_not_count():
    one = body_of(b"a=1&b=2&b=3", kind=FORM).fingerprint
    assert body_of(b"b=2&a=1&b=3", kind=FORM).fingerprint == one
    assert body_of(b"a=1&b=3&b=2", kind=FORM).fingerprint != one
    assert body_of(b"a=&b=2&b=3", kind=FORM).fingerprint != one


def multipart(boundary, content):
    return (
        f"--{boundary}\r\nContent-Disposition: form-data; name=f\r\n\r\n".encode()
        + content
        + f"\r\n--{boundary}--\r\n".encode()
    )


@given(
    content=st.binary(max_size=200),
    cuts=st.lists(st.integers(1, 50), max_size=6),
    quoted=st.booleans(),
)
def test_the_boundary_of_a_multipart_body_does_not_count(content, cuts, quoted):
    mark = '"' if quoted else ""
    first = body_of(multipart("AaB03x", content), kind="multipart/form-data; boundary=AaB03x")
    whole, chunks = multipart("another-one-77", content), []
    for cut in cuts:
        chunks.append(whole[:cut])
        whole = whole[cut:]
    kind = f"multipart/form-data; boundary={mark}another-one-77{mark}"
    with closing(body_of(*chunks, whole, kind=kind)) as second:
        assert second.fingerprint == first.fingerprint
    other = body_of(
        multipart("AaB03x", content + b"!"), kind="multipart/form-data; boundary=AaB03x"
    )
    assert other.fingerprint != first.fingerprint


def form(boundary, *fields):
    parts = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields
    )
    return f"{''.join(parts)}--{boundary}--\r\n".encode()


FIELDS = [("a", "1"), ("b", "2"), ("b", "3"), ("file", "x" * 100_000)]


def test_the_fields_of_a_form_may_come_in_another_order():
    kind = "multipart/form-data; boundary=X"
    first = body_of(form("X", *FIELDS), kind=kind)
    a, b, c, file = FIELDS
    assert body_of(form("X", file, b, c, a), kind=kind).fingerprint == first.fingerprint
    for other in ([a, c, b, file], [a, b, file], [a, b, c, file, a], [("b", "1"), a, b, c, file]):
        assert body_of(form("X", *other), kind=kind).fingerprint != first.fingerprint


@pytest.mark.parametrize("boundary", ["a,b", "'()+_,-./:=?", "two words"])
def test_a_boundary_may_have_commas(boundary):
    kind = f'multipart/form-data; charset=utf-8; boundary="{boundary}"'
    one = body_of(form(boundary, *FIELDS), kind=kind)
    assert (
        one.fingerprint
        == body_of(form("X", *FIELDS), kind="multipart/form-data; boundary=X").fingerprint
    )


def test_the_parts_of_other_multipart_bodies_are_in_order():
    def print_of(boundary, *fields):
        return body_of(
            form(boundary, *fields), kind=f"multipart/mixed; boundary={boundary}"
        ).fingerprint

    assert print_of("X", *FIELDS) == print_of("another", *FIELDS)
    assert print_of("X", *FIELDS) != print_of("X", *FIELDS[::-1])


def test_of_very_many_parts_the_order_counts():
    fields, kind = (
        [(str(number), "") for number in range(10_100)],
        "multipart/form-data; boundary=X",
    )
    one, same = (body_of(form("X", *fields), kind=kind).fingerprint for _ in "12")
    assert one == same != body_of(form("X", *fields[::-1]), kind=kind).fingerprint


# Content encodings


def deflated(data):
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(data) + packing.flush()


PLAIN = b'{"a": 1, "b": "' + b"x" * 100_000 + b'"}'
ENCODED = {
    "gzip": [gzip.compress(PLAIN, mtime=1), gzip.compress(PLAIN, 1, mtime=2)],
    "GZip ": [gzip.compress(PLAIN[:50]) + gzip.compress(PLAIN[50:])],
    "x-gzip": [gzip.compress(PLAIN)],
    "deflate": [zlib.compress(PLAIN), zlib.compress(PLAIN, 1), deflated(PLAIN)],
    "br": [brotli.compress(PLAIN), brotli.compress(PLAIN, quality=1)],
}


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_the_same_content_compressed_anew_is_the_same(encoding, size):
    plain = body_of(PLAIN).fingerprint
    for data in ENCODED[encoding]:
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        with closing(body_of(*chunks, encoding=encoding)) as body:
            assert body.fingerprint == plain
            assert body.value["a"] == 1
            assert body.whole() == data


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "compress", "gzip, br"])
def test_what_cannot_be_decoded_is_compared_by_its_bytes(encoding):
    data = {"gzip": gzip.compress, "br": brotli.compress}.get(encoding, zlib.compress)(PLAIN)
    broken = [b"no such thing", data[:-1], b"", *([data] if "," in encoding else [])]
    for one in broken:
        body = body_of(one, encoding=encoding)
        assert body.fingerprint == body_of(one, kind="").fingerprint


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_what_would_be_too_large_is_not_decoded(encoding):
    zeros = bytes(50_000_000)
    packed = {"gzip": gzip.compress, "br": brotli.compress, "deflate": zlib.compress}[encoding](
        zeros
    )
    body = body_of(packed, encoding=encoding, limit=1 << 20)
    assert body.content is body
    assert body.fingerprint == body_of(packed, kind="").fingerprint


def test_a_long_body_is_hashed_as_it_comes(monkeypatch):
    body = body_of(b"x" * 700_000, b"y" * 700_000, kind="")
    monkeypatch.setattr(body, "chunks", None)
    assert body.digest() == body_of(b"x" * 700_000 + b"y" * 700_000).digest()
    assert body.fingerprint.startswith("raw:")
    body.close()


def test_a_multipart_body_without_a_boundary_counts_byte_by_byte():
    assert body_of(b"x", kind="multipart/form-data").fingerprint == body_of(b"x").fingerprint


@pytest.mark.row("P7")
def test_chosen_members_are_all_that_counts():
    pointers = ("/userId", "/amount", "/currency")
    one = body_of(b'{"userId":"u","amount":100,"currency":"USD","note":"a"}')
    same = body_of(b'{"note":"b","currency":"USD","amount":100.0,"userId":"u"}')
    assert one.chosen(pointers) == same.chosen(pointers)
    for other in (b'{"userId":"u","amount":100.01,"currency":"USD"}', b'{"userId":"u"}', b"{"):
        assert body_of(other).chosen(pointers) != one.chosen(pointers)


def test_long_decimals_are_kept_apart():
    pointers = ("/amount",)
    one = body_of(b'{"amount":0.1000000000000000000001}').chosen(pointers)
    assert body_of(b'{"amount":0.1000000000000000000002}').chosen(pointers) != one
