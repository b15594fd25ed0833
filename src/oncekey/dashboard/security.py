"""Check the Host header of every request, and set strict security headers on every answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from oncekey.errors import ConfigurationError
from oncekey.inspection.text import printable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


_HOST: Final = re.compile(
    r"(?P<name>[\w-]+(?:\.[\w-]+)*|\[[0-9a-f:.]+\])\.?(?::\d{1,5})?", re.ASCII
)
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


class AllowedHosts:
    """The host names that the dashboard answers to.

    `*.example.com` allows all names below that one, `*` any name, if a proxy checks them. This
    stops DNS rebinding: a foreign page can make its own name resolve to this machine, and then read
    whatever answers there. Such a request carries the foreign name in its Host header.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        """`allowed` are names without ports. Raise `ConfigurationError` if one is not valid."""
        if isinstance(allowed, str) or not (names := list(allowed)):
            msg = "allowed_hosts must be a list of names, for example ['ops.example.com']"
            raise ConfigurationError(msg)
        for name in names:
            _check(name)
        self._any = "*" in names
        self._names = frozenset(name.lower() for name in names)
        self._below = tuple(name[1:].lower() for name in names if name.startswith("*."))

    def know(self, host: str) -> bool:
        """Return whether the value of a Host header is one of the names, with any port."""
        name = _name(host)
        return bool(name) and (self._any or name in self._names or name.endswith(self._below))


def _check(name: object) -> None:
    if name == "*":
        return
    if (
        not isinstance(name, str)
        or not (bare := name.removeprefix("*."))
        or _name(bare) != bare.lower()
    ):
        msg = (
            f"allowed_hosts are names as in the address bar, without scheme and port, but "
            f"{name!r} is not; write 'ops.example.com', '[::1]' or '*.example.com'"
        )
        raise ConfigurationError(msg)


def _name(host: str) -> str:
    """Return the name in a Host header without its port; empty if it is not valid."""
    found = _HOST.fullmatch(host.lower())
    return found["name"] if found else ""


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


class HostGuard:
    """Middleware that refuses unknown hosts and sets strict headers on every answer."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(
                scope, receive, send
            )  # the app has only HTTP routes and refuses all else
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
            said = printable(", ".join(named)) or "nobody"
            app = PlainTextResponse(
                f"This dashboard does not answer to {said[:300]!r}; "
                f"if that is its name, add it to allowed_hosts.\n",
                400,
            )
        await app(scope, receive, strictly)
