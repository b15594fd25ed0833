"""What stands around every answer: the host is known, and the browser is told to be strict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from oncekey.dashboard.hosts import Hosts
from oncekey.dashboard.text import visible

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: browsers would then not say where a form comes from.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """The app, asked only under names that it has, with strict headers on all its answers."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        """`hosts` are the names."""
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)  # there is nothing else in it: all is refused
            return

        async def strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        named = Headers(scope=scope).getlist("host")
        app = self._app
        if len(named) != 1 or not self._hosts.know(named[0]):
            said = visible(", ".join(named)) or "nobody"
            app = PlainTextResponse(
                f"This dashboard does not answer to {said[:300]!r}; "
                f"if that is its name, add it to allowed_hosts.\n",
                400,
            )
        await app(scope, receive, strictly)
