"""The OpenAPI document of the service, without what the middleware adds to it."""

from __future__ import annotations

from typing import Any

from examples.payments.checks import CURRENCIES, SHORTEST_KEY

JSON = "application/json"


def _object(**members: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members)}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema}}}


def _error(name: str, **members: dict[str, Any]) -> dict[str, Any]:
    return _object(error={"type": "string", "enum": [name]}, **members)


TEXT = {"type": "string"}
CURRENCY = {"type": "string", "enum": list(CURRENCIES)}
AMOUNT = {"type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000_000}
PAYMENT = _object(
    userId={"type": "string", "minLength": 1},
    amount=AMOUNT,
    currency=CURRENCY,
    idempotencyKey={"type": "string", "minLength": SHORTEST_KEY},
)
CHARGED = _object(
    paymentId=TEXT,
    status={"type": "string", "enum": ["succeeded"]},
    chargedAmount=AMOUNT,
    currency=CURRENCY,
)
FAILED = _object(status={"type": "string", "enum": ["failed"]}, reason=TEXT)

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Payments",
        "version": "1.0.0",
        "description": "A payment service that charges once, however often it is asked.",
        "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        "contact": {"name": "The Oncekey authors", "url": "https://oncekey.example"},
    },
    "servers": [{"url": "https://payments.shop.test"}],
    "tags": [{"name": "payments", "description": "Charge a card."}],
    "security": [],
    "paths": {
        "/payments": {
            "post": {
                "operationId": "pay",
                "summary": "Charge a card",
                "description": "Charge a card once.",
                "tags": ["payments"],
                "requestBody": {"required": True, "content": {JSON: {"schema": PAYMENT}}},
                "responses": {
                    "200": _answer("The charge.", {"anyOf": [CHARGED, FAILED]}),
                    "400": _answer("Not valid.", _error("validation", field=TEXT, message=TEXT)),
                    "429": _answer(
                        "Too many requests.",
                        _error("rate_limited", retryAfterMs={"type": "integer"}),
                    ),
                    "504": _answer(
                        "The gateway did not answer in time.",
                        _error("timeout", operation=TEXT, ms={"type": "integer"}),
                    ),
                },
            }
        }
    },
}
