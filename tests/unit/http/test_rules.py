"""The rules of a middleware."""

import json
from decimal import Decimal
from uuid import UUID

import pytest
from starlette.authentication import SimpleUser

from oncekey import (
    ConfigurationError,
    InProgressError,
    InvalidKeyError,
    KeyReusedError,
    LeaseLostError,
    NotRecordedError,
    Once,
    OutcomeUnknownError,
    Policy,
    StoreError,
    UnreadableError,
)
from oncekey.http import EVERYBODY, IETF, PAYMENTS, by_authorization, by_user
from oncekey.http.errors import MissingKeyError, MissingMemberError, TooLargeError
from oncekey.http.profiles import PROFILES
from oncekey.http.request import Request
from oncekey.http.response import ORDINARY, REPLAYED, Unkept, packed
from oncekey.http.rules import Rules
from oncekey.http.signatures import SignatureError
from tests.unit.http.requests import call_of, found, request_of, rules_of

KEYED = [(b"idempotency-key", b"k")]


# Which requests are covered


def test_a_request_with_a_key_is_covered():
    asked = found(rules_of(routes=["/orders"]), request_of(headers=KEYED))
    assert (asked.key, asked.label, asked.echo) == ("k", "POST /orders", KEYED)


@pytest.mark.parametrize(
    "request_",
    [
        request_of(),
        request_of("/other", headers=KEYED),
        request_of(method="GET", headers=KEYED),
        request_of(headers=[*KEYED, (b"x-skip", b"1")]),
    ],
    ids=["no key", "other route", "other method", "not wanted"],
)
def test_others_are_not(request_):
    rules = rules_of(routes=["/orders"], when=lambda request: not request.header("X-Skip"))
    assert found(rules, request_) is None


def test_the_key_of_a_request_that_is_not_wanted_may_be_anything():
    rules = rules_of(when=lambda _request: False)
    assert found(rules, request_of(headers=[(b"idempotency-key", b"a,b")])) is None


@pytest.mark.parametrize("path", ["/orders/a\x00b", "/orders/\ud800", "/orders/" + "x" * 999])
def test_whatever_a_client_writes_into_a_path_can_be_kept(path):
    call = call_of(rules_of(), request=request_of(path, headers=KEYED))
    assert call.reference.isprintable()
    assert len(call.reference) <= 255
    assert call.scope.isprintable()


def test_a_required_key_that_is_missing_is_named():
    with pytest.raises(MissingKeyError, match="Idempotency-Key is missing"):
        found(rules_of(required=True), request_of())
    with pytest.raises(MissingKeyError, match="idempotencyKey is missing") as caught:
        call_of(rules_of(profile="payments"), b"{}", key=None)
    assert caught.value.field == "idempotencyKey"
    assert call_of(rules_of(profile="payments", required=False), b"{}", key=None) is None


def test_the_first_place_that_holds_a_key_counts():
    rules = rules_of(profile=IETF.replace(key=("X-A", "X-B", "/id")))
    headers = [(b"x-b", b"b"), (b"x-a", b"a")]
    assert call_of(rules, request=request_of(headers=headers)).key == "a"
    assert call_of(rules, request=request_of(headers=headers[:1])).key == "b"
    assert call_of(rules, b'{"id": "c"}', key=None).key == "c"


def test_an_array_has_no_members():
    with pytest.raises(MissingMemberError, match="userId must be"):
        call_of(Rules(Once("memory://"), profile="payments"), b"[]", key=None)
    with pytest.raises(MissingKeyError, match="idempotencyKey is missing"):
        call_of(rules_of(profile="payments"), b"[]", key=None)


@pytest.mark.parametrize("body", [b"7", b"{", b"", b'"text"'])
def test_a_body_that_is_no_object_is_named(body):
    with pytest.raises(MissingMemberError, match="body must be a JSON object"):
        call_of(Rules(Once("memory://"), profile="payments"), body, key=None)


def test_what_is_sent_back_is_the_key_and_not_the_header():
    headers = [(b"idempotency-key", b'"k"; note=1')]
    assert found(rules_of(), request_of(headers=headers)).echo == [(b"idempotency-key", b'"k"')]


# Whose request it is


def test_scope_method_and_path_are_one_scope():
    request = request_of("/orders/é", headers=KEYED, user="u:1")
    call = call_of(rules_of(scope=by_user), request=request)
    assert call.scope == "u%3A1:POST:/orders/%C3%A9"
    assert call_of(rules_of(scope=by_user, profile="stripe"), request=request).scope == "u%3A1"
    assert call_of(rules_of(profile="stripe"), request=request).scope is None


def test_credentials_are_hashed():
    one, other = (
        call_of(
            rules_of(scope=by_authorization, profile="stripe"),
            request=request_of(headers=[*KEYED, (b"authorization", secret)]),
        ).scope
        for secret in (b"Bearer a", b"Bearer b")
    )
    assert one != other
    assert "Bearer" not in one


def test_a_request_of_nobody_without_a_key_is_none_of_our_business():
    rules = rules_of(profile=IETF.replace(key="/id"), scope=by_user)
    asked = found(rules, request_of())
    body = asked.body
    body.feed(b"{}")
    assert rules.call(asked, body) is None
    assert not asked.notice


def test_a_handler_is_asked_to_claim_only_where_there_is_a_key():
    rules = rules_of(profile="payments", claim="handler", scope="/userId")
    for content, notices in ((b"{}", 0), (b'{"idempotencyKey": "12345678"}', 1)):
        asked = found(rules, request_of())
        body = asked.body
        body.feed(content)
        rules.unclaimed(asked, body, 200)
        assert len(asked.notice) == notices


def test_a_request_of_nobody_is_not_protected():
    assert call_of(rules_of(scope=by_user), request=request_of(headers=KEYED)) is None
    assert call_of(rules_of(scope=by_authorization)) is None


def test_a_user_without_authentication_is_a_mistake():
    request = Request("POST", "/", b"", KEYED)
    with pytest.raises(ConfigurationError, match="authentication"):
        by_user(request)


@pytest.mark.row("P10")
@pytest.mark.parametrize("user", [b'"u-1"', b"7"])
def test_a_member_of_the_body_says_whose_it_is(user):
    rules = Rules(Once("memory://"), profile="payments")
    body = b'{"userId": %s, "idempotencyKey": "key-0001"}' % user
    assert call_of(rules, body, key=None).scope == user.decode().strip('"')


@pytest.mark.parametrize("user", [b'""', b"null", b"true", b"[]"])
def test_a_member_that_says_nobody_is_named(user):
    rules = Rules(Once("memory://"), profile="payments")
    with pytest.raises(MissingMemberError, match="userId must be"):
        call_of(rules, b'{"userId": %s, "idempotencyKey": "key-0001"}' % user, key=None)
    with pytest.raises(MissingMemberError, match="userId must be"):
        call_of(rules, b'{"idempotencyKey": "key-0001"}', key=None)


def test_a_handler_says_whose_it_is():
    rules = Rules(Once("memory://"), claim="handler")
    assert call_of(rules, principal="u-1").scope == "u-1:POST:/orders"
    assert call_of(rules, principal=7).scope == "7:POST:/orders"
    assert call_of(rules, principal=UUID(int=7)).scope.startswith("00000000-")
    assert call_of(rules, principal=EVERYBODY).scope == "POST:/orders"
    assert call_of(rules, principal=None) is None
    with pytest.raises(ConfigurationError, match="claim needs scope="):
        call_of(rules)
    with pytest.raises(ConfigurationError, match="must be a name"):
        call_of(rules, principal=[])


# What makes it the same request


def test_method_path_query_and_body_make_the_request():
    rules = rules_of(profile="stripe")
    prints = {
        call_of(rules, body, request=request_of(path, query=query, headers=KEYED)).fingerprint
        for path, query, body in (
            ("/orders", b"", b"{}"),
            ("/refunds", b"", b"{}"),
            ("/orders", b"dry=1", b"{}"),
            ("/orders", b"", b"[]"),
        )
    }
    assert len(prints) == 4
    assert call_of(rules, b"{ }").fingerprint in prints


@pytest.mark.row("P7")
def test_chosen_members_make_the_request():
    rules = rules_of(profile=PAYMENTS.replace(fingerprint=("/amount",)))
    one, same, other = (
        call_of(
            rules, b'{"idempotencyKey": "key-0001", "amount": %s}' % amount, key=None
        ).fingerprint
        for amount in (b"1", b'1.0, "note": 2', b"2")
    )
    assert one == same != other


def test_a_webhook_has_no_fingerprint():
    request = request_of(headers=[(b"x-idempotency-key", b"k")])
    assert call_of(rules_of(profile="webhook"), request=request).fingerprint is None


def test_chosen_headers_make_the_request_too():
    rules = rules_of(fingerprint_headers=["If-Match", "x-tenant"])

    def print_of(*headers):
        return call_of(rules, request=request_of(headers=[*KEYED, *headers])).fingerprint

    tag, other = (b"if-match", b'"1"'), (b"if-match", b'"2"')
    prints = [print_of(), print_of(tag), print_of(other), print_of((b"x-tenant", b'"1"'))]
    assert len(set(prints)) == 4
    assert print_of(tag, (b"accept", b"text/html")) == print_of(tag)
    assert print_of(tag, other) == print_of((b"if-match", b'"1", "2"')) != print_of(other, tag)


def test_chosen_headers_count_for_what_was_answered_before():
    rules = rules_of(fingerprint_headers=["If-Match"])
    asked, body = _again(rules)
    rules.answered(asked, body, rules.call(asked, body))
    other = rules.call(*_again(rules, headers=[*KEYED, (b"if-match", b'"1"')]))
    assert other.fingerprint != rules.call(*_again(rules)).fingerprint


# What is kept


def test_headers_that_are_never_replayed_are_neither_kept_nor_sent(recorded):
    headers = [(b"x-trace", b"1"), (b"etag", b"1")]
    kept = rules_of(never_replay=["X-Trace"]).kept(200, headers, b"")
    assert kept == packed(200, [(b"etag", b"1")], b"")
    record = recorded(status="completed", result=packed(200, headers, b""))  # kept before
    reply = rules_of(never_replay=["X-Trace"]).replay(record, [])
    assert reply.headers == [(b"etag", b"1"), REPLAYED]


def test_an_ordinary_header_is_not_if_it_is_never_replayed():
    headers = [(b"content-type", b"text/plain"), (b"etag", b"1")]
    assert rules_of().ordinary(headers)
    assert not rules_of(never_replay=["ETag"]).ordinary(headers)
    assert not rules_of(profile=IETF.replace(key="ETag")).ordinary(headers)


@pytest.mark.parametrize("profile", PROFILES)
def test_ordinary_headers_are_kept_as_they_are(profile):
    rules = rules_of(profile=profile)
    headers = [(name, b"1") for name in (*ORDINARY, b"content-type")]
    assert rules.ordinary(headers)
    assert rules.kept(200, headers, b"") == rules.kept(200, headers, b"", ordinary=True)
    assert all(name == name.lower() for name in ORDINARY)


@pytest.mark.parametrize(
    "pair",
    [
        (b"x-other", b"1"),
        (b"set-cookie", b"a=1"),
        (b"Vary", b"accept"),
        (b"content-type", b"text/event-stream"),
        (b"access-control-allow-origin", b"*"),
        (b"idempotency-key", b"k"),
        (b"vary", bytearray(b"accept")),
        (bytearray(b"vary"), b"accept"),
    ],
)
def test_headers_that_need_another_look_are_not_ordinary(pair):
    assert not rules_of().ordinary([(b"vary", b"accept"), pair])


def test_a_status_is_kept_by_the_profile_or_on_demand():
    rules = rules_of()
    assert rules.keeps(201)
    assert not rules.keeps(422)


def test_a_large_response_is_not_kept():
    kept = rules_of(max_result=100).kept(200, [], b"x" * 200)
    assert isinstance(kept, Unkept)
    assert "max_result" in kept.why


@pytest.mark.row("W7")
def test_of_a_webhooks_response_nothing_but_the_status_is_kept():
    rules = rules_of(profile="webhook")
    assert rules.kept(202, [(b"x-secret", b"1")], b"secret") == packed(202, [], b"")


def test_what_is_done_to_one_replay_does_not_reach_the_next(recorded):
    rules, echo = rules_of(), [(b"idempotency-key", b"k")]
    record = recorded(status="completed", result=packed(201, [(b"etag", b"1")], b"body"))
    rules.replay(record, echo).headers.append((b"x-added", b"1"))
    assert rules.replay(record, echo).headers == [(b"etag", b"1"), REPLAYED, *echo]


def test_a_replay_is_the_response_or_says_why_not(recorded):
    rules, echo = rules_of(), [(b"idempotency-key", b"k")]
    record = recorded(status="completed", result=packed(201, [(b"etag", b"1")], b"body"))
    reply = rules.replay(record, echo)
    assert (reply.status, reply.body) == (201, b"body")
    assert reply.headers == [(b"etag", b"1"), REPLAYED, *echo]
    reply = rules.replay(recorded(status="completed", result=None), [])
    assert (reply.status, REPLAYED in reply.headers) == (409, False)
    reply = rules.replay(recorded(status="completed", result=b"\xc1"), [])
    assert json.loads(reply.body)["type"] == "urn:oncekey:response-not-replayable"
    reply = rules_of(profile="webhook").replay(recorded(status="completed", result=None), [])
    assert json.loads(reply.body) == {"cached": True, "message": "Request already processed"}
    assert REPLAYED in reply.headers


def test_a_replayed_failure_says_that_asking_again_changes_nothing(recorded):
    rules = rules_of(profile="stripe")
    hint = (b"stripe-should-retry", b"false")
    for headers in ([], [hint]):
        record = recorded(status="completed", result=packed(502, headers, b""))
        assert rules.replay(record, []).headers == [hint, REPLAYED]
    record = recorded(status="completed", result=packed(402, [], b""))
    assert rules.replay(record, []).headers == [REPLAYED]


@pytest.mark.parametrize(
    "kind",
    [b"text/event-stream; charset=utf-8", b"Application/x-ndjson", b"multipart/x-mixed-replace"],
)
def test_streams_are_known_by_their_type(kind):
    assert rules_of().endless([(b"content-type", kind)])
    assert not rules_of().endless([(b"content-type", b"application/json"), (b"x", kind)])


def test_an_exception_is_kept_only_where_5xx_are():
    assert rules_of().failure() is None
    assert rules_of(profile="stripe").failure().status == 500


# What is said


@pytest.mark.parametrize(
    ("error", "statuses", "retry"),
    [
        (MissingKeyError("X"), (400, 400, 400, 400), None),
        (MissingMemberError("/x", "is bad"), (400, 400, 400, 400), None),
        (InvalidKeyError("bad"), (400, 400, 400, 400), None),
        (SignatureError("bad"), (401, 401, 401, 401), None),
        (TooLargeError("big"), (413, 413, 413, 413), None),
        (InProgressError("m", key="k", retry_after=2.2), (409, 409, 429, 202), b"3"),
        (KeyReusedError("m", key="k"), (422, 400, 422, 409), None),
        (OutcomeUnknownError("m", key="k"), (409, 409, 409, 409), None),
        (LeaseLostError("m", key="k"), (409, 409, 409, 409), None),
        (UnreadableError("m", key="k"), (409, 409, 409, 409), None),
        (StoreError("redis://secret"), (503, 503, 503, 503), b"1"),
        (NotRecordedError("m", key="k", result=1), (503, 503, 503, 503), b"1"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
def test_each_error_has_its_answer(error, statuses, retry):
    for profile, status in zip(("ietf", "stripe", "webhook", "payments"), statuses, strict=True):
        reply = rules_of(profile=profile, retry_after="1s").answers.refusal(error)
        assert reply.status == status
        assert dict(reply.headers).get(b"retry-after") == retry
        assert b"secret" not in reply.body


def test_what_is_not_for_clients_is_raised():
    with pytest.raises(ConfigurationError):
        rules_of().answers.refusal(ConfigurationError("wrong"))


# Settings


async def coroutine(request): ...


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"profile": "x"}, "profile must be"),
        ({"scope": "user"}, "scope must be"),
        ({"scope": 7}, "scope must be"),
        ({"claim": "later"}, "claim must be"),
        ({"max_body": "many"}, "max_body"),
        ({"when": "always"}, "when must be"),
        ({"reconcile": "gateway"}, "reconcile must be"),
        ({"colour": "red"}, "no setting colour"),
        ({"ttl": "soon"}, "ttl"),
        ({"status_path": "requests"}, "status_path"),
        ({"fingerprint_headers": "If-Match"}, "fingerprint_headers is a list"),
        ({"fingerprint_headers": ["If Match"]}, "fingerprint_headers is a list"),
        ({"fingerprint_headers": ["If-Match"], "profile": "webhook"}, "has no fingerprint"),
        ({"never_replay": [7]}, "never_replay is a list"),
        ({"docs_url": ""}, "docs_url is an address"),
        ({"docs_url": 7}, "docs_url is an address"),
        ({"docs_url": "https://x/\r\nSet-Cookie: a=b"}, "docs_url is an address"),
        ({"docs_url": "https://x/>; rel=next"}, "docs_url is an address"),
        ({"routes": []}, "routes= is empty"),
        ({"status_path": "/requests", "claim": "handler"}, "status_path needs"),
        ({"scope": coroutine}, "scope must be a plain function"),
        ({"when": coroutine}, "when must be a plain function"),
    ],
)
def test_wrong_settings_are_refused_at_once(settings, words):
    with pytest.raises(ConfigurationError, match=words):
        rules_of(**settings)


@pytest.mark.parametrize(
    ("found", "scope"),
    [(7, "7"), (UUID(int=7), f"{UUID(int=7)}"), (Decimal(7), "7"), ("", "%"), ("a:b", "a%3Ab")],
)
def test_the_owner_is_a_name_or_what_has_one(found, scope):
    assert call_of(rules_of(scope=lambda _: found)).scope == f"{scope}:POST:/orders"


@pytest.mark.parametrize("found", [object(), True, False, {"id": 7}, ("a", 7), SimpleUser("ann")])
def test_an_owner_without_a_name_of_its_own_is_refused(found):
    """The text of an object is another one for each request, so that each would run."""
    with pytest.raises(ConfigurationError, match=r"scope= must find a name, .* but it found"):
        call_of(rules_of(scope=lambda _: found))


@pytest.mark.parametrize("profile", ["ietf", "stripe"])
def test_a_scope_has_no_default(profile):
    with pytest.raises(ConfigurationError, match="needs scope="):
        Rules(Once("memory://"), profile=profile)


def test_once_must_be_one():
    with pytest.raises(ConfigurationError, match="must be a Once"):
        Rules("redis://localhost", scope=None)


def test_without_a_once_the_environment_says_which(monkeypatch):
    monkeypatch.setenv("ONCEKEY_STORE", "memory://")
    assert isinstance(Rules(None, scope=None).once, Once)


def test_what_is_said_nearest_counts():
    once = Once("memory://", policy=Policy(ttl="1h", wait="3s", keep=ValueError))
    terms = Rules(once, profile="webhook", scope=None, ttl="2h", policy=Policy(lease="9s")).terms
    assert (terms.ttl, terms.lease, terms.wait) == (7_200_000_000, 9_000_000, 3.0)
    assert (terms.fail_open, terms.max_run, terms.retry_after) == (True, 300.0, 5.0)
    assert terms.keep == ()


# What comes again


def _again(rules, body=b'{"a": 1}', **changes):
    request = request_of(**({"headers": KEYED} | changes))
    asked = found(rules, request)
    filled = asked.body
    filled.feed(body)
    return asked, filled


def test_the_very_same_request_makes_no_other_call_after_it_was_answered():
    rules = rules_of()
    asked, body = _again(rules)
    first = rules.call(asked, body)
    assert rules.call(*_again(rules)) is not first
    rules.answered(asked, body, first)
    assert rules.call(*_again(rules)) is first
    rules.answered(*_again(rules), first)
    assert rules.call(*_again(rules)) is first


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"body": b'{"a":1}'}, True),
        ({"body": b'{"a": 2}'}, False),
        ({"query": b"a=1"}, False),
        ({"path": "/other"}, False),
        ({"method": "PATCH"}, False),
        ({"headers": [*KEYED, (b"content-type", b"text/plain")]}, True),  # the first one counts
    ],
)
def test_any_other_request_makes_its_own(changes, same):
    rules = rules_of(profile=IETF.replace(by_route=False))
    asked, body = _again(rules)
    first = rules.call(asked, body)
    rules.answered(asked, body, first)
    other = rules.call(*_again(rules, **changes))
    assert (other.fingerprint == first.fingerprint) is same
    assert other.identity == first.identity
    assert call_of(rules_of(profile=IETF.replace(by_route=False)), b'{"a": 1}') == first


def test_another_content_type_makes_another_call():
    rules = rules_of()
    asked, body = _again(rules)
    rules.answered(asked, body, rules.call(asked, body))
    plain = Request("POST", "/orders", b"", [(b"content-type", b"text/plain"), *KEYED])
    asked = found(rules, plain)
    body = asked.body
    body.feed(b'{"a": 1}')
    assert rules.call(asked, body).fingerprint != rules.call(*_again(rules)).fingerprint


def test_only_so_many_are_remembered():
    rules = rules_of()
    for number in range(600):
        asked, body = _again(rules, headers=[(b"idempotency-key", b"%d" % number)])
        rules.answered(asked, body, rules.call(asked, body))
        assert len(rules._answered) <= 256
