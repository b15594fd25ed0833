"""Profiles for the webhooks of well-known providers: where the event's id is, and who signed it.

    IdempotencyMiddleware(app, once, profile=presets.github(secret), routes=["/hooks/github"])

Each remembers an event for 7 days, which outlasts the provider's own retries, and checks the
signature before the store is touched. Pass None instead of a secret only where something in front
of the application has checked it.
"""

from __future__ import annotations

from collections.abc import Sequence
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
"""A secret, several while one is being exchanged for another, or None: checked elsewhere."""

_OUTLASTS_RETRIES: Final = Policy(ttl="7d")


def standard_webhooks(secret: Secret) -> Profile:
    """Providers that follow Standard Webhooks: the header `webhook-id`."""
    return _preset(
        "standard-webhooks", "webhook-id", StandardSignature(secret) if secret is not None else None
    )


def svix(secret: Secret) -> Profile:
    """Svix: the header `svix-id`. No other is looked at, because no other is signed."""
    signature = StandardSignature(secret, prefix="svix-") if secret is not None else None
    return _preset("svix", "svix-id", signature)


def github(secret: Secret) -> Profile:
    """GitHub: the header `X-GitHub-Delivery`, which a redelivery repeats."""
    return _preset(
        "github", "X-GitHub-Delivery", GitHubSignature(secret) if secret is not None else None
    )


def shopify(secret: Secret) -> Profile:
    """Shopify: the header `X-Shopify-Event-Id`, or the webhook's id; apart by shop and topic.

    One event may come by several subscriptions, and each is an event of its own.
    """
    return _preset(
        "shopify",
        ("X-Shopify-Event-Id", "X-Shopify-Webhook-Id", "Shopify-Webhook-Id"),
        ShopifySignature(secret) if secret is not None else None,
        scope=_shop_and_topic,
    )


def stripe(secret: Secret) -> Profile:
    """Stripe: the member `id` of the event."""
    return _preset("stripe", "/id", StripeSignature(secret) if secret is not None else None)


def slack(secret: Secret) -> Profile:
    """Slack: the member `event_id`; what has none, such as the URL's verification, just runs."""
    profile = _preset("slack", "/event_id", SlackSignature(secret) if secret is not None else None)
    return profile.replace(required=False)


def twilio(secret: Secret) -> Profile:
    """Twilio: the header `I-Twilio-Idempotency-Token`."""
    return _preset(
        "twilio",
        "I-Twilio-Idempotency-Token",
        TwilioSignature(secret) if secret is not None else None,
    )


def gitlab(secret: Secret) -> Profile:
    """GitLab: the header `Idempotency-Key`."""
    return _preset("gitlab", "Idempotency-Key", GitLabToken(secret) if secret is not None else None)


def _preset(
    name: str,
    key: str | tuple[str, ...],
    signature: Signature | None,
    *,
    scope: Scoping | None = None,
) -> Profile:
    return WEBHOOK.replace(
        name=name,
        key=key,
        scope=scope or (lambda _request: name),
        signature=signature,
        policy=_OUTLASTS_RETRIES.over(WEBHOOK.policy),
    )


def _shop_and_topic(request: Request) -> str:
    shop = request.header("x-shopify-shop-domain", "")
    return f"shopify:{shop}:{request.header('x-shopify-topic', '')}"
