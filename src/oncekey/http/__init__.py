"""HTTP: handle requests, webhooks and payments once, even if they arrive twice.

The middlewares are in `oncekey.http.asgi`, `.wsgi` and `.django`, and the transports for httpx in
`oncekey.http.client`. Import them by name, since each needs its framework.
"""

from oncekey.http.profiles import ACP, IETF, PAYMENTS, STRIPE, UCP, WEBHOOK, Profile
from oncekey.http.request import EVERYBODY, Request, by_authorization, by_user
from oncekey.http.response import Reply, Words
from oncekey.http.rules import Settings

__all__ = [
    "ACP",
    "EVERYBODY",
    "IETF",
    "PAYMENTS",
    "STRIPE",
    "UCP",
    "WEBHOOK",
    "Profile",
    "Reply",
    "Request",
    "Settings",
    "Words",
    "by_authorization",
    "by_user",
]
