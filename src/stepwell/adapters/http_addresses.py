"""Which addresses a request may connect to: those of the public internet, and what the settings allow besides.

The law of the file: the address that is judged is the one that is connected to. A name is resolved once, here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias

from stepwell.errors import StepFailed

if TYPE_CHECKING:
    from ipaddress import IPv4Network

Address: TypeAlias = IPv4Address | IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")
"""All that IPv6 routes publicly; ranges outside are local, retired or lead to IPv4 (RFC 4291, 6052, 3879)."""
_INSIDE = tuple(
    ip_network(one)
    for one in (
        "192.0.0.0/24",
        "192.88.99.0/24",
        "168.63.129.16/32",
        "100.100.100.200/32",
        "3fff::/20",
        "2001:db8::/32",
    )
)
"""Not public though Python may say so: of protocols, retired, or a cloud's own service behind a public address."""


class Addresses:
    """The rule of one project. `allowed` holds host names, `host:port`, addresses and networks (10.0.0.0/8), or `*`."""

    def __init__(self, allowed: Iterable[str] = (), *, resolve: Resolve | None = None) -> None:
        self._hosts: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        self._everything = False
        self._resolve = resolve or _resolved
        for entry in allowed:
            self._allow(entry.strip().lower())

    def _allow(self, entry: str) -> None:
        if entry == "*":
            self._everything = True
            return
        try:
            self._networks.append(ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            self._hosts.add(entry)

    async def of(self, host: str, port: int) -> list[str]:
        """The addresses of a host that may be connected to, in the resolver's order.

        Raises StepFailed: `refused` where it has only such as may not, `connection_error` where it has none.
        """
        try:
            found = await self._resolve(host, port)
        except (OSError, ValueError, OverflowError) as error:  # a name that is none is a ValueError of its codec
            why = getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__
            said = f"the name {host!r} cannot be resolved: {why}"
            raise StepFailed("connection_error", said, detail={"sent": False}) from None
        if {host.lower(), f"{host.lower()}:{port}"} & self._hosts:
            return list(found)
        fit = [address for address in found if self._fits(ip_address(address.partition("%")[0]))]
        if found and not fit:
            said = f"{host} is at {found[0]}, an address that is not public"
            hint = f'to allow it, add "{host}" to allow_private under [http] in stepwell.toml'
            raise StepFailed("refused", f"{said}; {hint}", detail={"sent": False, "address": found[0]})
        return fit

    def _fits(self, address: Address) -> bool:
        if self._everything:
            return True
        inner = _inside(address)
        places = (address,) if inner is None else (address, inner)
        if any(place in network for place in places for network in self._networks):
            return True
        return _public(address if inner is None else inner)


def _public(address: Address) -> bool:
    if not address.is_global or address.is_multicast or any(address in network for network in _INSIDE):
        return False
    return isinstance(address, IPv4Address) or address in _UNICAST


def _inside(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE:  # ISATAP
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


async def _resolved(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[4][0]) for place in found))
