"""Real clients and signers of Python against the service: `python -m ... ADDRESS` prints JSON.

Only the environment of these tests has them.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, NamedTuple

import aiohttp
import httpx
import requests
import slack_sdk.signature
import standardwebhooks
import stripe
import svix
import twilio.request_validator

from tests.system.http.clients_site import SECRET, TOKEN

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else ""
KEY = "Idempotency-Key"


class Answer(NamedTuple):
    status: int
    id: str | None
    replayed: bool


Send = Callable[[str, dict[str, str]], Answer]
"""A function of a name, which is the body, and headers."""


def with_requests(name: str, headers: dict[str, str]) -> Answer:
    said = requests.post(f"{ADDRESS}/orders", json={"name": name}, headers=headers, timeout=60)
    return _answer(said.status_code, said.json(), said.headers)


def with_httpx(name: str, headers: dict[str, str]) -> Answer:
    said = httpx.post(f"{ADDRESS}/orders", json={"name": name}, headers=headers, timeout=60)
    return _answer(said.status_code, said.json(), said.headers)


def with_aiohttp(name: str, headers: dict[str, str]) -> Answer:
    async def ask() -> Answer:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{ADDRESS}/orders", json={"name": name}, headers=headers) as said,
        ):
            return _answer(said.status, await said.json(content_type=None), said.headers)

    return asyncio.run(ask())


def with_stripe(name: str, headers: dict[str, str]) -> Answer:
    stripe.enable_telemetry = False
    client = stripe.StripeClient(
        "sk_test_x", base_addresses={"api": ADDRESS}, max_network_retries=2
    )
    options: Any = {"idempotency_key": headers[KEY]} if KEY in headers else {}
    try:
        made: Any = client.v1.customers.create({"name": name}, options)
    except stripe.StripeError as error:
        return Answer(error.http_status or 0, None, replayed=False)
    return _answer(200, {"id": made.id}, made.last_response.headers)


def _answer(status: int, body: Any, headers: Any) -> Answer:
    lower = {name.lower(): value for name, value in headers.items()}
    return Answer(status, body.get("id"), lower.get("idempotent-replayed") == "true")


def tried(send: Send) -> dict[str, Any]:
    """Say what a client does with a key, and without one, and when an answer is lost."""
    before = len(_seen()["keys"])
    send("alone", {})
    own = _seen()["keys"][before] is not None
    key = str(uuid.uuid4())
    first, again = send("ann", {KEY: key}), send("ann", {KEY: key})
    other = send("bob", {KEY: key})
    lose = {KEY: f"lose-{uuid.uuid4()}"}
    before = sum(_seen()["runs"].values())
    last = send("eve", lose)
    by_itself = last.status < HTTPStatus.BAD_REQUEST
    if not by_itself:
        last = send("eve", lose)
    return {
        "own_key": own,
        "replayed": again.replayed and not first.replayed and again.id == first.id,
        "other": other.status,
        "by_itself": by_itself,
        "after_loss": last.replayed and sum(_seen()["runs"].values()) == before + 1,
    }


def _seen() -> Any:
    return httpx.get(f"{ADDRESS}/seen").json()


# Signers: each returns headers and body of a genuine delivery to the address.

Signed = tuple[dict[str, str], bytes]


def svix_signer(_url: str) -> Signed:
    from datetime import UTC, datetime

    now, body = datetime.now(UTC), b'{"type": "paid"}'
    identity = f"msg_{uuid.uuid4().hex}"
    signature = svix.webhooks.Webhook(SECRET).sign(identity, now, body.decode())
    moment = str(int(now.timestamp()))
    return {"svix-id": identity, "svix-timestamp": moment, "svix-signature": signature}, body


def standardwebhooks_signer(_url: str) -> Signed:
    from datetime import UTC, datetime

    now, body = datetime.now(UTC), b'{"type": "paid"}'
    identity = f"msg_{uuid.uuid4().hex}"
    signature = standardwebhooks.Webhook(SECRET).sign(identity, now, body.decode())
    moment = str(int(now.timestamp()))
    names = {"webhook-id": identity, "webhook-timestamp": moment, "webhook-signature": signature}
    return names, body


def slack_signer(_url: str) -> Signed:
    body = json.dumps({"event_id": f"Ev{uuid.uuid4().hex}"}).encode()
    moment = str(int(time.time()))
    verifier = slack_sdk.signature.SignatureVerifier(TOKEN)
    signature = verifier.generate_signature(timestamp=moment, body=body)
    return {"x-slack-request-timestamp": moment, "x-slack-signature": str(signature)}, body


def twilio_signer(url: str) -> Signed:
    fields = {"CallSid": f"CA{uuid.uuid4().hex}", "From": "+15551234567"}
    validator = twilio.request_validator.RequestValidator(TOKEN)
    headers = {
        "content-type": "application/x-www-form-urlencoded",
        "x-twilio-signature": validator.compute_signature(url, fields),
        "i-twilio-idempotency-token": str(uuid.uuid4()),
    }
    return headers, httpx.QueryParams(fields).__str__().encode()


def stripe_signer(_url: str) -> Signed:
    body = json.dumps({"id": f"evt_{uuid.uuid4().hex}", "object": "event"})
    moment = int(time.time())
    signature = stripe.WebhookSignature._compute_signature(f"{moment}.{body}", TOKEN)
    return {"stripe-signature": f"t={moment},v1={signature}"}, body.encode()


def delivered(provider: str, sign: Callable[[str], Signed]) -> dict[str, Any]:
    """Deliver an event, deliver it again, and deliver it with another body."""
    url = f"{ADDRESS}/hooks/{provider}"
    headers, body = sign(url)
    statuses = [
        httpx.post(url, content=content, headers=headers).status_code
        for content in (body, body, body + b" ")
    ]
    runs = _seen()["runs"].get(f"/hooks/{provider}")
    return {"preset": provider, "statuses": statuses, "runs": runs}


CLIENTS: dict[str, Send] = {
    "stripe": with_stripe,
    "requests": with_requests,
    "httpx": with_httpx,
    "aiohttp": with_aiohttp,
}
SIGNERS: dict[str, tuple[str, Callable[[str], Signed]]] = {
    "svix": ("svix", svix_signer),
    "standardwebhooks": ("standard_webhooks", standardwebhooks_signer),
    "slack_sdk": ("slack", slack_signer),
    "twilio": ("twilio", twilio_signer),
    "stripe": ("stripe", stripe_signer),
}


def _named(name: str) -> str:
    return f"{'stripe-python' if name == 'stripe' else name} {version(name)}"


if __name__ == "__main__":
    found = {
        "clients": {_named(name): tried(send) for name, send in CLIENTS.items()},
        "signers": {_named(name): delivered(*signer) for name, signer in SIGNERS.items()},
    }
    sys.stdout.write(json.dumps(found))
