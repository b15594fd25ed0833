"""Profiles for webhook providers: the key is what the signature covers."""

import base64
import hashlib
import hmac

import pytest

from oncekey import ConfigurationError, Once
from oncekey.http import presets
from oncekey.http.rules import Rules
from oncekey.http.signatures import SignatureError
from tests.unit.http.requests import call_of, found, request_of

ALL = {
    "standard_webhooks": b"webhook-id",
    "svix": b"svix-id",
    "github": b"x-github-delivery",
    "shopify": b"x-shopify-event-id",
    "twilio": b"i-twilio-idempotency-token",
    "gitlab": b"idempotency-key",
}
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
WEEK = 7 * 24 * 3600 * 1_000_000


def rules_of(profile):
    return Rules(Once("memory://", observers=()), profile=profile)


@pytest.mark.row("W1")
@pytest.mark.parametrize(("name", "header"), ALL.items())
def test_the_key_is_in_the_providers_header(name, header):
    rules = rules_of(getattr(presets, name)(None))
    call = call_of(rules, request=request_of(headers=[(header, b"evt-1")]))
    assert call.key == "evt-1"
    assert call.scope.startswith("shopify" if name == "shopify" else rules.profile.name)
    assert (call.terms.ttl, call.terms.fail_open, call.fingerprint) == (WEEK, True, None)


@pytest.mark.row("W1")
@pytest.mark.parametrize(
    ("name", "body"), [("stripe", b'{"id": "evt-1"}'), ("slack", b'{"event_id": "evt-1"}')]
)
def test_the_key_is_in_the_providers_body(name, body):
    assert call_of(rules_of(getattr(presets, name)(None)), body, key=None).key == "evt-1"


@pytest.mark.parametrize("body", [b'{"challenge": "x"}', b"token=x"])
def test_what_slack_sends_without_an_id_just_runs(body):
    assert call_of(rules_of(presets.slack(None)), body, key=None) is None


def test_shopify_events_are_apart_by_shop_and_topic():
    def scope(topic):
        headers = [(b"x-shopify-event-id", b"e"), (b"x-shopify-topic", topic)]
        return call_of(rules_of(presets.shopify(None)), request=request_of(headers=headers)).scope

    assert scope(b"orders/paid") != scope(b"orders/cancelled")


@pytest.mark.row("W1")
@pytest.mark.parametrize("name", ["stripe", "slack", *ALL])
def test_an_event_at_another_endpoint_is_another_event(name):
    """Providers give an event one id, whatever number of endpoints they send it to."""
    rules = rules_of(getattr(presets, name)(None))
    body = b'{"id": "evt-1", "event_id": "evt-1"}'
    headers = [(ALL[name], b"evt-1")] if name in ALL else []

    def identity(path, query=b""):
        return call_of(rules, body, request_of(path, query=query, headers=headers)).identity

    places = [("/hooks/a",), ("/hooks/b",), ("/hooks/a", b"tenant=1"), ("/hooks/a", b"tenant=2")]
    assert len({identity(*place) for place in places}) == 4
    assert identity(*places[2]) == identity(*places[2])
    assert "tenant" not in identity(*places[2])[0]


@pytest.mark.parametrize(("name", "prefix"), [("standard_webhooks", "webhook"), ("svix", "svix")])
def test_the_header_of_the_key_is_the_one_that_is_signed(name, prefix, monkeypatch):
    """A copy of a signed event under another id in a header that is not signed is no new event."""
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    signed = hmac.digest(b"0123456789abcdef01234567", b"evt-1.1700000000.{}", hashlib.sha256)
    proof = f"v1,{base64.b64encode(signed).decode()}".encode()
    names = {"id": b"evt-1", "timestamp": b"1700000000", "signature": proof}
    genuine = [(f"{prefix}-{key}".encode(), value) for key, value in names.items()]
    other = "svix" if prefix == "webhook" else "webhook"
    rules = rules_of(getattr(presets, name)(SECRET))
    for headers in (genuine, [*genuine, (f"{other}-id".encode(), b"forged")]):
        asked = found(rules, request_of(headers=headers))
        body = asked.body
        body.feed(b"{}")
        rules.verify(asked, body, "https://shop/hooks")
        assert rules.call(asked, body).key == "evt-1"
    forged = [(key, b"forged" if key.endswith(b"-id") else value) for key, value in genuine]
    asked = found(rules, request_of(headers=forged))
    body = asked.body
    body.feed(b"{}")
    with pytest.raises(SignatureError):
        rules.verify(asked, body, "https://shop/hooks")


@pytest.mark.parametrize("name", [*ALL, "stripe", "slack"])
def test_an_empty_secret_is_a_mistake_and_not_no_secret(name):
    with pytest.raises(ConfigurationError):
        getattr(presets, name)("")


@pytest.mark.parametrize("name", ["stripe", "slack", *ALL])
@pytest.mark.parametrize("secret", ["", " ", "\n", [], ["a secret", "\t"]])
def test_a_blank_secret_is_none(name, secret):
    with pytest.raises(ConfigurationError, match="secret that is not empty"):
        getattr(presets, name)(secret)
