"""Asking an ASGI application without a server between."""

import asyncio

from oncekey.core.requests import Scan

KEY = (b"idempotency-key", b"k")


def record(store):
    """The one record of the store."""
    (only,) = store.scan(Scan()).records
    return only


def scope_of(**changes):
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [KEY, (b"host", b"here")],
        **changes,
    }


class Wire:
    """Both ends of a connection: what the client sends, and what it got."""

    def __init__(self, *messages):
        self.got = []
        self._messages = list(messages) or [{"type": "http.request", "body": b"{}"}]
        self.gone = asyncio.Event()

    async def receive(self):
        if self._messages:
            return self._messages.pop(0)
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.got.append(message)

    @property
    def status(self):
        return self.got[0]["status"]

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.got[1:])


async def ask(app, *messages, **changes):
    wire = Wire(*messages)
    await app(scope_of(**changes), wire.receive, wire.send)
    return wire


def answering(status=200, headers=(), body=b"done"):
    """An application of three lines, and how often it ran."""

    async def app(scope, receive, send):
        app.runs += 1
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": body})

    app.runs = 0
    return app
