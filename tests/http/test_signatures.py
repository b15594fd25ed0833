"""Signatures of webhooks: the providers' published examples, and no request that was changed."""

import base64
import dataclasses
import hashlib
import hmac
import pickle
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st

from oncekey import ConfigurationError, OncekeyError
from oncekey.http.signatures import (
    GitHubSignature,
    GitLabToken,
    ShopifySignature,
    Signature,
    SignatureError,
    SlackSignature,
    StandardSignature,
    StripeSignature,
    TwilioSignature,
)

NOW = 1_700_000_000.0
URL = "https://shop.example/hooks?a=1"
SECRET = "whsec_" + base64.b64encode(b"a secret of 24 bytes or more").decode()
OTHER = "whsec_" + base64.b64encode(b"another secret of that sort.").decode()
FORM = "application/x-www-form-urlencoded"


class Request(NamedTuple):
    headers: dict[str, str]
    body: bytes
    url: str = URL
    now: float = NOW

    def but(self, **headers: str | None) -> "Request":
        """The same with other headers, and without those that are None."""
        changed = self.headers | {name.replace("_", "-"): v for name, v in headers.items()}
        return self._replace(headers={name: v for name, v in changed.items() if v is not None})


def mac(secret: str | bytes, signed: bytes, digest: str = "sha256") -> bytes:
    return hmac.new(secret.encode() if isinstance(secret, str) else secret, signed, digest).digest()


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


# A genuine request of each provider


def standard(body: bytes, secret: str = SECRET, prefix: str = "webhook-") -> Request:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = b64(mac(key, b"msg_1.%d." % NOW + body))
    values = {"id": "msg_1", "timestamp": f"{NOW:.0f}", "signature": f"v1,{signature}"}
    return Request({f"{prefix}{name}": value for name, value in values.items()}, body)


def svix(body: bytes, secret: str = SECRET) -> Request:
    return standard(body, secret, "svix-")


def stripe(body: bytes, secret: str = SECRET) -> Request:
    signature = mac(secret, b"%d." % NOW + body).hex()
    return Request({"stripe-signature": f"t={NOW:.0f},v1={signature},v0=old"}, body)


def slack(body: bytes, secret: str = SECRET) -> Request:
    signature = mac(secret, b"v0:%d:" % NOW + body).hex()
    moment = f"{NOW:.0f}"
    return Request(
        {"x-slack-request-timestamp": moment, "x-slack-signature": f"v0={signature}"}, body
    )


def github(body: bytes, secret: str = SECRET) -> Request:
    return Request({"x-hub-signature-256": f"sha256={mac(secret, body).hex()}"}, body)


def shopify(body: bytes, secret: str = SECRET) -> Request:
    return Request({"x-shopify-hmac-sha256": b64(mac(secret, body))}, body)


def twilio(body: bytes, secret: str = SECRET) -> Request:
    url = f"{URL}&bodySHA256={hashlib.sha256(body).hexdigest()}"
    return Request({"x-twilio-signature": b64(mac(secret, url.encode(), "sha1"))}, body, url)


def gitlab(body: bytes, secret: str = SECRET) -> Request:
    return Request({"x-gitlab-token": secret}, body)


Make = Callable[..., Request]
Maker = Callable[..., Signature]


def of_svix(secrets: object) -> StandardSignature:
    return StandardSignature(secrets, prefix="svix-")  # type: ignore[arg-type]  # wrong ones too


PROVIDERS: dict[str, tuple[Maker, Make]] = {
    "standard": (StandardSignature, standard),
    "svix": (of_svix, svix),
    "stripe": (StripeSignature, stripe),
    "slack": (SlackSignature, slack),
    "github": (GitHubSignature, github),
    "shopify": (ShopifySignature, shopify),
    "twilio": (TwilioSignature, twilio),
    "gitlab": (GitLabToken, gitlab),
}
DATED = {
    "standard": "webhook-timestamp",
    "svix": "svix-timestamp",
    "stripe": "stripe-signature",
    "slack": "x-slack-request-timestamp",
}
every = pytest.mark.parametrize(("signature", "make"), PROVIDERS.values(), ids=PROVIDERS.keys())
every_over_body = pytest.mark.parametrize(
    ("signature", "make"),
    [pair for name, pair in PROVIDERS.items() if name != "gitlab"],
    ids=[name for name in PROVIDERS if name != "gitlab"],
)
every_dated = pytest.mark.parametrize(
    ("signature", "make"), [PROVIDERS[name] for name in DATED], ids=DATED.keys()
)


def refused(signature: Signature, request: Request, says: str = "does not fit|timestamp") -> None:
    with pytest.raises(SignatureError, match=says) as caught:
        signature.verify(*request)
    words = str(caught.value)
    assert "\n" not in words
    assert not [one for one in (SECRET, OTHER, *request.headers.values()) if one and one in words]


# Published examples


TWILIO = "https://mycompany.com/myapp.php?foo=1&bar=2"
CALL = urlencode(
    {
        "CallSid": "CA1234567890ABCDE",
        "Digits": "1234",
        "From": "+14158675309",
        "To": "+18005551212",
        "Caller": "+14158675309",
    }
).encode()
BODY_HASH = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"


def call(signature: str, body: bytes = CALL, url: str = TWILIO, kind: str = FORM) -> Request:
    return Request({"x-twilio-signature": signature, "content-type": kind}, body, url)


@pytest.mark.parametrize(
    ("signature", "request_"),
    [
        pytest.param(
            GitHubSignature("It's a Secret to Everybody"),
            Request(
                {
                    "x-hub-signature-256": "sha256="
                    "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
                },
                b"Hello, World!",
            ),
            id="github",
        ),
        pytest.param(
            StandardSignature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
            Request(
                {
                    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
                    "webhook-timestamp": "1614265330",
                    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
                },
                b'{"test": 2432232314}',
                now=1614265330,
            ),
            id="standard",
        ),
        pytest.param(
            SlackSignature("8f742231b10e8888abcd99yyyzzz85a5"),
            Request(
                {
                    "x-slack-request-timestamp": "1531420618",
                    "x-slack-signature": "v0="
                    "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
                },
                b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
                b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA"
                b"&user_name=roadrunner&command=%2Fwebhook-collect&text="
                b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J"
                b"%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
                b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
                now=1531420618,
            ),
            id="slack",
        ),
        pytest.param(
            TwilioSignature("12345"), call("RSOYDt4T1cUTdK1PDd93/VVr8B8="), id="twilio-form"
        ),
        pytest.param(
            TwilioSignature("12345"),
            call(
                "IK+Dwps556ElfBT0I3Rgjkr1wJU=",
                b"Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234",
            ),
            id="twilio-repeated-name",
        ),
        pytest.param(
            TwilioSignature("12345"),
            call(
                "a9nBmqA0ju/hNViExpshrM61xv4=",
                b'{"property": "value", "boolean": true}',
                f"{TWILIO}&bodySHA256={BODY_HASH}",
                "application/json",
            ),
            id="twilio-json",
        ),
        pytest.param(
            TwilioSignature("12345"),
            call("RSOYDt4T1cUTdK1PDd93/VVr8B8=", url=TWILIO.replace(".com", ".com:1234")),
            id="twilio-port-left-out",
        ),
        pytest.param(
            TwilioSignature("12345"),
            call(
                "Zmvh+3yNM1Phv2jhDCwEM3q5ebU=",
                url=TWILIO.replace(".com", ".com:1234").replace("https", "http"),
            ),
            id="twilio-port-kept",
        ),
        pytest.param(
            TwilioSignature("12345"), call("kvajT1Ptam85bY51eRf/AJRuM3w="), id="twilio-port-443"
        ),
        pytest.param(
            TwilioSignature("12345"),
            call("0ZXoZLH/DfblKGATFgpif+LLRf4=", url=TWILIO.replace("https", "http")),
            id="twilio-port-80",
        ),
    ],
)
def test_the_published_example_is_accepted(signature, request_):
    signature.verify(*request_)
    refused(signature, request_._replace(body=request_.body + b"x"), "does not fit")


# Any provider


@every
@pytest.mark.parametrize("body", [b"", b"{}", b"\x00\xff"])
def test_a_genuine_request_is_accepted(signature, make, body):
    signature(SECRET).verify(*make(body))


@every
def test_while_a_secret_is_exchanged_both_are_accepted(signature, make):
    for secrets in ([SECRET, OTHER], (OTHER, SECRET)):
        signature(secrets).verify(*make(b"{}", SECRET))
        signature(secrets).verify(*make(b"{}", OTHER))
    refused(signature(OTHER), make(b"{}", SECRET), "not")


@every
def test_a_request_without_its_headers_is_refused(signature, make):
    request = make(b"{}")
    for name in request.headers:
        refused(signature(SECRET), request.but(**{name: None}), f"{name} is missing")
        refused(signature(SECRET), request.but(**{name: ""}), f"{name} is missing")


@every_over_body
@given(body=st.binary(), other=st.binary())
def test_any_change_of_the_body_is_refused(signature, make, body, other):
    assume(body != other)
    refused(signature(SECRET), make(body)._replace(body=other), "does not fit")


@every
@given(data=st.data())
def test_any_change_of_a_header_is_refused(signature, make, data):
    request = make(b'{"id": 1}')
    name = data.draw(st.sampled_from(sorted(request.headers)))
    value = request.headers[name]
    end = value.index(",v0") if ",v0" in value else len(value)  # what is old is not read
    at = data.draw(st.integers(0, end - 1))
    put = data.draw(st.text(st.characters(exclude_characters=", "), max_size=2))  # no part more
    changed = value[:at] + put + value[at + 1 :]
    assume(changed != value)
    refused(signature(SECRET), request.but(**{name: changed}))


@every_dated
def test_a_request_is_good_for_as_long_as_the_tolerance_in_both_directions(signature, make):
    request = make(b"{}")
    for now in (NOW - 300, NOW + 300):
        signature(SECRET).verify(*request._replace(now=now))
    for now in (NOW - 301, NOW + 301, float("nan"), float("inf")):
        refused(signature(SECRET), request._replace(now=now), "300 s from now")


@pytest.mark.parametrize("signature", [StandardSignature, StripeSignature, SlackSignature])
def test_the_tolerance_can_be_chosen(signature):
    request = {StandardSignature: standard, StripeSignature: stripe, SlackSignature: slack}[
        signature
    ](b"{}")
    signature(SECRET, tolerance="1h").verify(*request._replace(now=NOW + 3600))
    refused(signature(SECRET, tolerance=5), request._replace(now=NOW + 6), "5 s from now")
    with pytest.raises(ConfigurationError, match="tolerance must be"):
        signature(SECRET, tolerance=0)


@every
def test_secrets_are_not_shown(signature, make):
    shown = repr(signature([SECRET, OTHER]))
    assert SECRET not in shown
    assert OTHER not in shown
    assert "_keys" not in shown


@every
@pytest.mark.parametrize("secrets", [None, "", [], [""], [None], ["x", 7], 7, b"bytes"])
def test_secrets_that_cannot_work_are_refused_in_one_sentence(signature, make, secrets):
    with pytest.raises(ConfigurationError, match=r"secret") as caught:
        signature(secrets)
    assert "\n" not in str(caught.value)


@every
def test_they_are_values(signature, make):
    one = signature(SECRET)
    assert one == signature(SECRET)
    assert one != signature(OTHER)
    assert hash(one) == hash(signature(iter([SECRET])))
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.secrets = OTHER
    refused(dataclasses.replace(one, secrets=OTHER), make(b"{}"), "not")


def test_the_error_has_a_status_and_travels():
    error = SignatureError("the header x is missing")
    assert isinstance(error, OncekeyError)
    assert error.status_hint == 401
    assert str(pickle.loads(pickle.dumps(error))) == "the header x is missing"  # noqa: S301 - our own


# Standard Webhooks


def test_one_of_several_signatures_is_enough():
    request = standard(b"{}")
    genuine = request.headers["webhook-signature"]
    many = request.but(webhook_signature=f"v1a,{b64(b'x')} v1,{b64(b'y')} {genuine}")
    StandardSignature(SECRET).verify(*many)


@pytest.mark.parametrize("version", ["", "v1a,", "v2,", "v1", "v1,v1,", "v1 "])
def test_only_version_one_counts(version):
    request = standard(b"{}")
    bare = request.headers["webhook-signature"].removeprefix("v1,")
    refused(StandardSignature(SECRET), request.but(webhook_signature=version + bare), "not fit")


# The version v1a, with a pair of keys: only the provider can sign

PAIR = Ed25519PrivateKey.from_private_bytes(b"a private key that is 32 bytes.."[:32])
PUBLIC_BYTES = PAIR.public_key().public_bytes_raw()
PUBLIC = "whpk_" + base64.b64encode(PUBLIC_BYTES).decode()


def signed_with_a_pair(body: bytes) -> Request:
    request = standard(body)
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode()
    return request.but(webhook_signature=f"v1a,{b64(PAIR.sign(signed + body))}")


def test_who_has_the_public_key_can_check_what_was_signed():
    StandardSignature(PUBLIC).verify(*signed_with_a_pair(b"{}"))


@given(st.binary(), st.binary())
def test_any_change_of_a_body_signed_with_a_pair_is_refused(body, other):
    assume(body != other)
    changed = signed_with_a_pair(body)._replace(body=other)
    refused(StandardSignature(PUBLIC), changed, "not fit")


@pytest.mark.parametrize("name", ["webhook_id", "webhook_timestamp"])
def test_id_and_timestamp_are_signed_with_the_pair_too(name):
    changed = signed_with_a_pair(b"{}").but(**{name: f"{NOW + 1:.0f}"})
    refused(StandardSignature(PUBLIC), changed, "not fit")


def test_a_public_key_is_no_secret():
    """Everybody knows it: who signs with it proves nothing."""
    forged = standard(b"{}", secret="whsec_" + b64(PUBLIC_BYTES))
    refused(StandardSignature(PUBLIC), forged, "not fit")
    as_v1a = forged.headers["webhook-signature"].replace("v1,", "v1a,")
    refused(StandardSignature(PUBLIC), forged.but(webhook_signature=as_v1a), "not fit")


@pytest.mark.parametrize("version", ["", "v1,", "v1", "v2,", "v1a"])
def test_only_its_own_version_counts_for_a_public_key(version):
    request = signed_with_a_pair(b"{}")
    bare = request.headers["webhook-signature"].removeprefix("v1a,")
    refused(StandardSignature(PUBLIC), request.but(webhook_signature=version + bare), "not fit")


def test_a_secret_and_a_public_key_may_both_be_in_use():
    both = StandardSignature([SECRET, PUBLIC])
    both.verify(*standard(b"{}"))
    both.verify(*signed_with_a_pair(b"{}"))
    refused(both, signed_with_a_pair(b"{}")._replace(body=b"[]"), "not fit")


def test_a_signature_with_a_public_key_is_a_value():
    signature = StandardSignature(PUBLIC)
    assert pickle.loads(pickle.dumps(signature)) == signature  # noqa: S301 - made here
    pickle.loads(pickle.dumps(signature)).verify(*signed_with_a_pair(b"{}"))  # noqa: S301 - made here


@pytest.mark.parametrize("key", ["whpk_", "whpk_abcd", "whpk_!", PUBLIC + "AAAA"])
def test_a_public_key_that_is_none_is_refused(key):
    with pytest.raises(ConfigurationError, match="public key of 32 bytes in base64"):
        StandardSignature(key)


def test_a_secret_may_come_without_its_prefix():
    StandardSignature(SECRET.removeprefix("whsec_")).verify(*standard(b"{}"))


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!", "whsk_abcd", "no base64", "YQ"])
def test_a_secret_that_is_no_base64_is_refused_unseen(secret):
    with pytest.raises(ConfigurationError, match="base64") as caught:
        StandardSignature(secret)
    assert secret not in str(caught.value).replace("whsec_", "")


def test_the_names_with_the_other_prefix_are_not_read():
    refused(StandardSignature(SECRET), svix(b"{}"), "webhook-id is missing")
    refused(StandardSignature(SECRET, prefix="svix-"), standard(b"{}"), "svix-id is missing")
    both = standard(b"{}").but(svix_id="msg_2")
    refused(StandardSignature(SECRET, prefix="svix-"), both, "svix-timestamp is missing")


@pytest.mark.parametrize("prefix", ["", "Svix-", "svix ", None])
def test_a_prefix_that_no_header_can_have_is_refused(prefix):
    with pytest.raises(ConfigurationError, match="prefix must be"):
        StandardSignature(SECRET, prefix=prefix)


def test_the_parts_of_what_is_signed_cannot_be_cut_otherwise():
    genuine = standard(b"%d.0" % NOW)  # signs msg_1.1700000000.1700000000.0
    moved = genuine.but(webhook_id=f"msg_1.{NOW:.0f}")._replace(body=b"0")
    refused(StandardSignature(SECRET), moved, "mistaken for a timestamp")


# Stripe


def test_stripe_signs_once_for_each_secret():
    one, other = (stripe(b"{}", secret).headers["stripe-signature"] for secret in (OTHER, SECRET))
    both = f"{one.removesuffix(',v0=old')},{other.partition(',')[2]}"
    StripeSignature(SECRET).verify(*stripe(b"{}").but(stripe_signature=both))


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("v1=00", "must have one timestamp, but it has 0"),
        ("t=1,t=2,v1=00", "must have one timestamp, but it has 2"),
        ("t=,v1=00", "no number"),
        ("t=1e9,v1=00", "no number"),
        ("t=" + "9" * 5000 + ",v1=00", "no number"),
        ("t=\u0661\u0667,v1=00", "no number"),
        (f"t={NOW:.0f}", "does not fit"),
        (f"t={NOW:.0f},v1=", "does not fit"),
        (f"t={NOW:.0f},v1=\u00e9", "does not fit"),
        ("nonsense", "timestamp"),
    ],
)
def test_a_header_of_another_shape_is_refused(header, says):
    refused(StripeSignature(SECRET), Request({"stripe-signature": header}, b"{}"), says)


# Twilio


@given(
    fields=st.dictionaries(st.text(min_size=1), st.text()),
    name=st.text(min_size=1),
    value=st.text(min_size=1),
)
def test_a_form_with_another_field_is_refused(fields, name, value):
    body = urlencode(fields).encode()
    signed = TWILIO + "".join(one + fields[one] for one in sorted(fields))
    request = call(b64(mac("12345", signed.encode(), "sha1")), body)
    TwilioSignature("12345").verify(*request)
    assume(name not in fields)
    more = urlencode({**fields, name: value}).encode()
    refused(TwilioSignature("12345"), request._replace(body=more), "does not fit")


def test_equal_fields_of_a_form_are_signed_once():
    request = call(b64(mac("12345", f"{TWILIO}a1a2".encode(), "sha1")), b"a=2&a=1&a=2")
    TwilioSignature("12345").verify(*request)


def test_bytes_of_a_form_that_are_no_text_count_too():
    signed = TWILIO.encode() + b"a\xff"
    request = call(b64(mac("12345", signed, "sha1")), b"a=%FF")
    TwilioSignature("12345").verify(*request)
    TwilioSignature("12345").verify(*request._replace(body=b"a=\xff"))
    refused(TwilioSignature("12345"), request._replace(body=b"a=%FE"), "does not fit")


@pytest.mark.parametrize("url", [TWILIO.replace("1", "2"), TWILIO + "#x", "", "https://other.com/"])
def test_another_url_is_refused(url):
    refused(TwilioSignature("12345"), call("RSOYDt4T1cUTdK1PDd93/VVr8B8=", url=url), "not fit")


@pytest.mark.parametrize("url", ["https://a:b/", "https://[/", "https://a:99999/"])
def test_a_url_that_cannot_be_read_is_refused(url):
    refused(TwilioSignature("12345"), call("x", url=url), "cannot be read")


def test_a_body_that_nothing_covers_is_refused():
    request = call(b64(mac("12345", TWILIO.encode(), "sha1")), b"{}", kind="application/json")
    refused(TwilioSignature("12345"), request, "bodySHA256")
    TwilioSignature("12345").verify(*request._replace(body=b""))


# GitLab


def test_a_token_that_headers_cannot_carry_is_refused():
    with pytest.raises(ConfigurationError, match="ASCII"):
        GitLabToken("pässword")


def test_a_token_that_is_only_part_of_the_secret_is_refused():
    for token in (SECRET[:-1], SECRET + "x", SECRET.upper(), "\udcff"):
        refused(GitLabToken(SECRET), Request({"x-gitlab-token": token}, b""), "does not fit")
