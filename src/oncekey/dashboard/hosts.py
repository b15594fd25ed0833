"""Which names the dashboard answers to.

A page of somebody else can make a browser believe that its own name belongs to this machine, and
then read whatever answers there. Such a request names the other host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from oncekey.errors import ConfigurationError

_HOST: Final = re.compile(
    r"(?P<name>[\w-]+(?:\.[\w-]+)*|\[[0-9a-f:.]+\])\.?(?::\d{1,5})?", re.ASCII
)
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


class Hosts:
    """Names, `*.example.com` for all below a name, or `*` where something in front checks."""

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
