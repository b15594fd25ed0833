"""What stands around every answer: the host is known, and the browser is told to be strict."""

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
    """The names that the dashboard answers to.

    `*.example.com` stands for all below a name, `*` for any, where something in front checks.

    A page of somebody else can make a browser believe that its own name belongs to this machine,
    and then read whatever answers there. Such a request names the other host.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        """Names without ports."""
        if isinstance(allowed, str) or not (names := list(allowed)):
            msg = "allowed_hosts must be a list of names, for example ['ops.example.com']"
            raise ConfigurationError(msg)
        for name in names:
            _check(name)
        self._any = "*" in names
        self._names = frozenset(name.lower() for name in names)
        self._below = tuple(name[1:].lower() for name in names if name.startswith("*."))

    def know(self, host: str) -> bool:
        """Whether the value of a Host header is one of the names, with any port."""
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
    """The name in a Host header, without its port; empty when it is none."""
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
    """The app, asked only under names that it has, with strict headers on all its answers."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
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
            said = printable(", ".join(named)) or "nobody"
            app = PlainTextResponse(
                f"This dashboard does not answer to {said[:300]!r}; "
                f"if that is its name, add it to allowed_hosts.\n",
                400,
            )
        await app(scope, receive, strictly)
