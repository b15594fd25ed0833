"""Which addresses a webhook may be sent to, and connections to those that were checked.

A receiver chooses the URL of its webhook, and the name in it may lead into your own network, now
or when it is resolved for the second time. So a name is resolved once for each connection, all of
its addresses are checked, and the connection is made to one of those.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from time import monotonic
from typing import Any, Final, cast

import httpcore

from oncekey.errors import ConfigurationError
from oncekey.outbox.errors import MessageRefusedError

Address = IPv4Address | IPv6Address
_NAT64: Final = ip_network("64:ff9b::/96")


class Networks:
    """The public networks, and those that were allowed."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """Take networks as `"10.1.0.0/16"`. Raise ConfigurationError for what is none."""
        self._allowed = [*map(_network, [allowed] if isinstance(allowed, str) else allowed)]

    def check(self, host: str, address: str) -> None:
        """Raise MessageRefusedError for an address that is neither public nor allowed."""
        found = ip_address(address.partition("%")[0])
        if any(found in network for network in self._allowed):
            return
        reached = _reached(found)
        if not _is_public(reached) and not any(reached in network for network in self._allowed):
            msg = (
                f"{host} has an address in a network that is not public, and no webhook is sent "
                f"there unless networks= allows it"
            )
            raise MessageRefusedError(msg)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of the host. Raise MessageRefusedError if one may not be used."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as error:
            raise MessageRefusedError(f"{host} has no address: {error}") from error
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        for one in addresses:
            self.check(host, one)
        return addresses


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects to the addresses that were checked, and resolves no name a second time.

    The certificate is checked for the name all the same, which httpcore does itself.
    """

    def __init__(self, networks: Networks) -> None:
        """Take what is allowed."""
        self._networks = networks
        self._backend = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore passes it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers, and give each of them its share of time."""
        addresses = await self._networks.addresses(host, port)
        end = None if timeout is None else monotonic() + timeout
        for number, address in enumerate(addresses, 1):
            share = (
                None if end is None else max(0.0, end - monotonic()) / (len(addresses) - number + 1)
            )
            try:
                # mypy knows its type only when it reads httpcore in one order of imports
                stream: httpcore.AsyncNetworkStream = await self._backend.connect_tcp(
                    address, port, share, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(addresses):
                    raise
            else:
                return stream
        raise MessageRefusedError(f"{host} has no address")


def _network(text: object) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)  # type: ignore[arg-type]  # it raises ValueError for other types
    except ValueError as error:
        msg = f"networks are given as '10.1.0.0/16' or as an address, not as {text!r}: {error}"
        raise ConfigurationError(msg) from None


def _reached(address: Address) -> Address:
    """Return the IPv4 address that is written into one of IPv6, since that is what is reached."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: Address) -> bool:
    local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or local)
