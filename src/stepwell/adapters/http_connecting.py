"""How the client of the tool `http` connects: to an address that was judged, whatever name it was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream

    from stepwell.adapters.http_addresses import Addresses


def checking_backend(addresses: Addresses) -> AsyncNetworkBackend:
    """A network backend that resolves names by `addresses` and tries what they give, one after the other."""
    import httpcore2

    class Checking(httpcore2.AsyncNetworkBackend):
        def __init__(self) -> None:
            self._network = httpcore2.AnyIOBackend()

        async def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,
            local_address: str | None = None,
            socket_options: Iterable[Any] | None = None,
        ) -> AsyncNetworkStream:
            found = await addresses.of(host, port)
            failed: Exception = httpcore2.ConnectError(f"the name {host!r} has no address")
            for address in found:
                try:
                    return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
                except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                    failed = error
            raise failed

    return Checking()
