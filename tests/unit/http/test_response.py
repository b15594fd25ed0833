"""Responses as they are kept, and our own words."""

import json

import pytest

from oncekey.core.codec import NotKeepableError, UnreadableBytesError
from oncekey.http.response import REPLIES, Reply, Unkept, Words, packed, problem_type, say, unpacked


def test_a_response_comes_back_byte_for_byte():
    headers = [(b"link", b"<a>"), (b"link", b"<b>"), (b"etag", b'"1"'), (b"location", b"/o/1")]
    reply = unpacked(packed(201, headers, b"\x00\xff{}"))
    assert (reply.status, reply.headers, reply.body) == (201, headers, b"\x00\xff{}")


@pytest.mark.parametrize(
    "name",
    [
        *(b"set-cookie", b"date", b"server", b"www-authenticate", b"connection", b"keep-alive"),
        *(b"transfer-encoding", b"te", b"trailer", b"upgrade", b"proxy-authenticate"),
        *(b"access-control-allow-origin", b"access-control-expose-headers"),
        *(b"authentication-info", b"authorization", b"age", b"clear-site-data", b"alt-svc"),
        *(b"set-cookie2", b"x-csrf-token", b"idempotent-unprotected"),
    ],
)
def test_what_belongs_to_one_client_or_connection_is_not_kept(name):
    headers = [(b"content-type", b"text/plain"), (name, b"x")]
    assert unpacked(packed(200, headers, b"")).headers == [(b"content-type", b"text/plain")]


def test_other_bytes_are_no_response():
    with pytest.raises(UnreadableBytesError):
        unpacked(b"\x93\x01")


def test_only_packed_responses_are_kept():
    assert REPLIES.encode(b"packed") == b"packed"
    reply = Reply.json(201, {"id": 7})
    assert REPLIES.decode(REPLIES.encode(reply)) == reply
    assert reply.body == b'{"id":7}'
    with pytest.raises(NotKeepableError, match="a stream"):
        REPLIES.encode(Unkept("a stream"))
    with pytest.raises(NotKeepableError, match="no response"):
        REPLIES.encode("text")


def test_without_a_body_it_is_a_problem():
    words = Words(status=409, title="Busy")
    reply = say("in-progress", words, detail="Wait.", retry_after=0.2, docs_url="https://d/k")
    assert reply.status == 409
    assert dict(reply.headers) == {
        b"content-type": b"application/problem+json",
        b"content-length": b"%d" % len(reply.body),
        b"retry-after": b"1",
        b"content-language": b"en",
        b"link": b'<https://d/k>; rel="describedby"',
    }
    assert json.loads(reply.body) == {
        "type": "https://d/k#in-progress",
        "title": "Busy",
        "status": 409,
        "detail": "Wait.",
        "retry_after": 1,
    }


def test_a_problem_names_its_record_where_there_is_one():
    words = Words(status=409, title="Lost")
    reply = say("outcome-unknown", words, detail="Look.", instance="urn:oncekey:sha256:7")
    assert json.loads(reply.body) == {
        "type": "urn:oncekey:outcome-unknown",
        "title": "Lost",
        "status": 409,
        "detail": "Look.",
        "instance": "urn:oncekey:sha256:7",
    }


@pytest.mark.parametrize(
    ("docs_url", "kind"),
    [
        (None, "urn:oncekey:key-reused"),
        ("https://shop.example/keys", "https://shop.example/keys#key-reused"),
        ("https://shop.example/keys/", "https://shop.example/keys/key-reused"),
        ("https://shop.example/#", "https://shop.example/#key-reused"),
        ("https://shop.example/?problem=", "https://shop.example/?problem=key-reused"),
    ],
)
def test_the_type_of_a_problem_is_below_the_documentation(docs_url, kind):
    assert problem_type("key-reused", docs_url) == kind


def test_a_body_is_filled_in():
    words = Words(
        status=400,
        body={"error": {"n": "{retry_after}", "m": "{field}: {detail}", "k": 1, "t": True}},
        headers=(("X-Hint", "yes"),),
    )
    reply = say("invalid-key", words, detail="bad {field}", field="key", retry_after=2.5)
    assert json.loads(reply.body) == {"error": {"n": 3, "m": "key: bad key", "k": 1, "t": True}}
    assert (b"x-hint", b"yes") in reply.headers
    assert (b"content-type", b"application/json") in reply.headers
