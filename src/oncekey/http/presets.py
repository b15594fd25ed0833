"""Profiles for the webhooks of well-known providers: where the event's id is, and its signature.

    IdempotencyMiddleware(app, once, profile=presets.github(secret), routes=["/hooks/github"])

Each one remembers an event for 7 days, longer than the provider retries, and checks the signature
before the store is asked. The same event at another path or with another query is another one,
because providers give one id to all endpoints that they send an event to. Pass None instead of a
secret only if something in front of the application has checked the signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from oncekey.http.profiles import WEBHOOK, Profile
from oncekey.http.request import Request, Scoping
from oncekey.http.signatures import (
    GitHubSignature,
    GitLabToken,
    ShopifySignature,
    Signature,
    SlackSignature,
    StandardSignature,
    StripeSignature,
    TwilioSignature,
)
from oncekey.policy import Policy

Secret = str | Sequence[str] | None
"""A secret, several while one is being replaced, or None if signatures are checked elsewhere."""

_OUTLASTS_RETRIES: Final = Policy(ttl="7d")


def standard_webhooks(secret: Secret) -> Profile:
    """Return the profile for Standard Webhooks. The key is the header `webhook-id`.

    A secret that begins with `whpk_` is a public key of ed25519, for signatures of version v1a.
    """
    return _preset(
        "standard-webhooks", "webhook-id", StandardSignature(secret) if secret is not None else None
    )


def svix(secret: Secret) -> Profile:
    """Return the profile for Svix. The key is `svix-id`, the only header with an id signed."""
    signature = StandardSignature(secret, prefix="svix-") if secret is not None else None
    return _preset("svix", "svix-id", signature)


def github(secret: Secret) -> Profile:
    """Return the profile for GitHub. The key is `X-GitHub-Delivery`, repeated by a redelivery."""
    return _preset(
        "github", "X-GitHub-Delivery", GitHubSignature(secret) if secret is not None else None
    )


def shopify(secret: Secret) -> Profile:
    """Return the profile for Shopify. The key is `X-Shopify-Event-Id`, else the webhook's id.

    The scope has shop and topic: one event may come through several subscriptions, and each of
    them is handled.
    """
    return _preset(
        "shopify",
        ("X-Shopify-Event-Id", "X-Shopify-Webhook-Id", "Shopify-Webhook-Id"),
        ShopifySignature(secret) if secret is not None else None,
        scope=_shop_and_topic,
    )


def stripe(secret: Secret) -> Profile:
    """Return the profile for Stripe. The key is the member `id` of the event."""
    return _preset("stripe", "/id", StripeSignature(secret) if secret is not None else None)


def slack(secret: Secret) -> Profile:
    """Return the profile for Slack. The key is the member `event_id`.

    A request without one, such as the verification of the URL, runs unprotected.
    """
    profile = _preset("slack", "/event_id", SlackSignature(secret) if secret is not None else None)
    return profile.replace(required=False)


def twilio(secret: Secret) -> Profile:
    """Return the profile for Twilio. The key is the header `I-Twilio-Idempotency-Token`."""
    return _preset(
        "twilio",
        "I-Twilio-Idempotency-Token",
        TwilioSignature(secret) if secret is not None else None,
    )


def gitlab(secret: Secret) -> Profile:
    """Return the profile for GitLab. The key is the header `Idempotency-Key`."""
    return _preset("gitlab", "Idempotency-Key", GitLabToken(secret) if secret is not None else None)


def _preset(
    name: str,
    key: str | tuple[str, ...],
    signature: Signature | None,
    *,
    scope: Scoping | None = None,
) -> Profile:
    def endpoint(request: Request) -> str | None:
        """Return the provider and the query. Rules add the path. A query may hold a secret."""
        owner = name if scope is None else scope(request)
        return f"{owner}?{sha256(request.query).hexdigest()[:16]}" if request.query else owner

    return WEBHOOK.replace(
        name=name,
        key=key,
        scope=endpoint,
        by_route=True,
        signature=signature,
        policy=_OUTLASTS_RETRIES.over(WEBHOOK.policy),
    )


def _shop_and_topic(request: Request) -> str:
    shop = request.header("x-shopify-shop-domain", "")
    return f"shopify:{shop}:{request.header('x-shopify-topic', '')}"
