"""The URL at which a client asks how its request is doing."""

import json

import pytest
from msgspec.structs import replace

from oncekey import Once
from oncekey.http import by_user
from oncekey.http.response import packed
from oncekey.http.rules import Rules
from oncekey.http.status import with_url
from tests.unit.http.requests import call_of, found, request_of, rules_of

KEYED = [(b"idempotency-key", b"k")]


@pytest.fixture
def asked(recorded):
    """Rules, a request of u-1 that runs, its record, and where to ask about it."""
    rules = rules_of(scope=by_user, status_path="/requests")
    request = request_of(headers=KEYED, user="u-1")
    call = call_of(rules, request=request)
    record = recorded(scope=call.scope, key=call.key, nonce="n-1")
    busy = rules.answers.say("in-progress", retry_after=1)
    reply = rules.accepted(busy, found(rules, request), call, record)
    return rules, record, json.loads(reply.body)["status_url"]


def look(rules, url, user, record):
    request = request_of(url, method="GET", user=user)
    assert rules.status.meant("GET", url, "")
    pointing = rules.looked_for(request)
    known = pointing is not None and (pointing.scope, pointing.key) == (record.scope, record.key)
    return rules.told(pointing, record if known else None)


def test_who_sent_it_may_ask_how_it_is_doing(asked):
    rules, record, url = asked
    assert url.startswith("/requests/")
    reply = look(rules, url, "u-1", record)
    assert (reply.status, dict(reply.headers)[b"retry-after"]) == (409, b"1")
    done = replace(record, status="completed", result=packed(201, [], b"done"))
    assert look(rules, url, "u-1", done).body == b"done"
    assert look(rules, url, "u-1", replace(record, status="held")).status == 409
    assert look(rules, url, "u-1", replace(record, status="released")).status == 404


def test_who_has_a_number_for_a_name_may_ask_too(recorded):
    rules = rules_of(scope=lambda _request: 7, status_path="/requests")
    request = request_of(headers=KEYED)
    call = call_of(rules, request=request)
    record = recorded(scope=call.scope, key=call.key, nonce="n-1")
    busy = rules.answers.say("in-progress", retry_after=1)
    reply = rules.accepted(busy, found(rules, request), call, record)
    url = json.loads(reply.body)["status_url"]
    assert look(rules, url, None, record).status == 409


def test_nobody_else_may(asked):
    rules, record, url = asked
    assert look(rules, url, "u-2", record).status == 404
    assert look(rules, url, "u-1", replace(record, nonce="n-2")).status == 404


@pytest.mark.parametrize("text", ["", "AAAA", "%%%", "x" * 5000, "kw", "é"])
def test_other_references_lead_nowhere(asked, text):
    rules, record, _ = asked
    assert look(rules, f"/requests/{text}", "u-1", record).status == 404


def test_only_gets_below_the_path_are_meant(asked):
    rules, _, url = asked
    assert not rules.status.meant("POST", url, "")
    assert not rules.status.meant("GET", "/requests", "")


def test_where_the_body_says_whose_it_is_the_reference_is_the_proof(recorded):
    rules = Rules(Once("memory://"), profile="payments", status_path="/requests")
    body = b'{"userId": "u-1", "idempotencyKey": "key-0001"}'
    call = call_of(rules, body, key=None)
    record = recorded(scope="u-1", key="key-0001")
    url = rules.status.url(call, record, None, "")
    assert look(rules, url, None, record).status == 202


def test_what_does_not_run_has_no_url(asked, recorded):
    rules, record, _ = asked
    request = request_of(headers=KEYED, user="u-1")
    busy = rules.answers.say("in-progress", retry_after=1)
    for other in (None, replace(record, status="completed")):
        reply = rules.accepted(busy, found(rules, request), call_of(rules, request=request), other)
        assert reply is busy


def test_the_url_is_in_the_body_and_in_a_header():
    rules = Rules(Once("memory://"), profile="payments")
    reply = with_url(rules.answers.say("in-progress", retry_after=2), "/requests/x")
    assert json.loads(reply.body) == {
        "status": "in_progress",
        "retry_after": 2,
        "status_url": "/requests/x",
    }
    headers = dict(reply.headers)
    assert headers[b"location"] == b"/requests/x"
    assert headers[b"content-length"] == b"%d" % len(reply.body)


@pytest.mark.parametrize("path", ["/requests", "/api/requests"])
def test_below_a_prefix_the_url_is_the_one_that_the_client_sees(path, recorded):
    rules = rules_of(status_path=path)
    call = call_of(rules)
    url = rules.status.url(call, recorded(), None, "/api")
    assert url.startswith("/api/requests/")
    assert rules.status.meant("GET", url, "/api")
    assert rules.status.read(url, "/api") is not None
