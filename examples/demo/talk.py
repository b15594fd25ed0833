"""Requests, their answers, and the curl commands that send the same."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

JSON = {"Content-Type": "application/json"}
REPLAYED = "Idempotent-Replayed"
KEY_HEADER = "X-Idempotency-Key"


@dataclass(frozen=True)
class Ask:
    """A POST with a JSON body."""

    path: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The body as it is sent."""
        return json.dumps(self.body)

    @property
    def key(self) -> str:
        """The key, wherever it is."""
        return str(self.headers.get(KEY_HEADER) or self.body.get("idempotencyKey"))

    def curl(self, base: str) -> str:
        """The command that sends it, on several lines."""
        headers = [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in self.headers.items()]
        first = f"curl -i {base}{self.path} -H 'Content-Type: application/json'"
        return " \\\n    ".join([first, *headers, f"-d {shlex.quote(self.text)}"])


@dataclass(frozen=True)
class Exchange:
    """A request and its answer; status 0 stands for none."""

    ask: Ask
    status: int
    replayed: bool = False
    body: str = ""

    @property
    def value(self) -> dict[str, Any]:
        """The answer as an object, which is empty if it is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Line:
    """Something that was done (`>`) or answered (`<`) without any request."""

    mark: str
    words: str


def send(client: httpx.Client, ask: Ask) -> Exchange:
    """The answer, or that there was none."""
    try:
        answer = client.post(ask.path, content=ask.text, headers={**JSON, **ask.headers})
    except httpx.TransportError:
        return Exchange(ask, 0)
    return Exchange(ask, answer.status_code, REPLAYED in answer.headers, answer.text)


def payment(amount: int, key: str) -> Ask:
    """A payment of user u1."""
    body = {"userId": "u1", "amount": amount, "currency": "VND", "idempotencyKey": key}
    return Ask("/payments", body)


def delivery(name: str, key: str) -> Ask:
    """An event, as a provider delivers it."""
    body = {"id": name, "anchor_transaction_id": key}
    return Ask("/webhook", body, {KEY_HEADER: key})
