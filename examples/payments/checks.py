"""What a payment request must look like, checked in the order in which it is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

CURRENCIES = ("VND", "USD")
SHORTEST_KEY = 8


@dataclass(frozen=True)
class Payment:
    """A request that makes sense."""

    user: str
    amount: float
    currency: str


class InvalidRequestError(Exception):
    """One member of the request is wrong."""

    def __init__(self, field: str, message: str) -> None:
        """The field by its name in the body, and what it must be."""
        super().__init__(f"{field} {message}")
        self.field = field
        self.message = message


def checked(body: Any) -> Payment:
    """The payment, or the first thing that is wrong with it."""
    if isinstance(body, list):
        body = {}  # an object without members, as clients in JavaScript have it
    if not isinstance(body, dict):
        raise InvalidRequestError("body", "must be an object")
    user: Any = body.get("userId")
    amount: Any = body.get("amount")
    currency: Any = body.get("currency")
    if not isinstance(user, str) or not user:
        raise InvalidRequestError("userId", "must be a non-empty string")
    if not _positive(amount):
        raise InvalidRequestError("amount", "must be a number above zero")
    if currency not in CURRENCIES:
        raise InvalidRequestError("currency", f"must be one of {', '.join(CURRENCIES)}")
    key = body.get("idempotencyKey")
    if not isinstance(key, str) or len(key) < SHORTEST_KEY:
        raise InvalidRequestError("idempotencyKey", "must be a string of 8 or more characters")
    return Payment(user, amount, currency)


def _positive(amount: object) -> bool:
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        return False
    try:
        return math.isfinite(amount) and amount > 0
    except OverflowError:  # more digits than a number of JSON can be relied on to have
        return False
