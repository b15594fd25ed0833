"""HTTP: requests, webhooks and payments that may arrive twice.

The middlewares are in `oncekey.http.asgi`, `.wsgi` and `.django`, and the transports for httpx in
`oncekey.http.client`; each is imported by name, because each needs its framework.
"""

from oncekey.http.profiles import IETF, PAYMENTS, STRIPE, WEBHOOK, Profile
from oncekey.http.request import EVERYBODY, Request, by_authorization, by_user
from oncekey.http.response import Reply, Words
from oncekey.http.rules import Settings

__all__ = [
    "EVERYBODY",
    "IETF",
    "PAYMENTS",
    "STRIPE",
    "WEBHOOK",
    "Profile",
    "Reply",
    "Request",
    "Settings",
    "Words",
    "by_authorization",
    "by_user",
]
