"""Which address is connected to? The one that was checked: a name is resolved once, and nothing asks for it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import httpcore2
import trio
from typing_extensions import override

from cormorant.clients.http.destinations import is_local_name, is_numeric, is_public
from cormorant.rules.search.outcomes import SourceRefused

Place = tuple[str, int]
"""A host as it is written, and a port."""

ADDRESSES_MAX: Final = 4
TRY_S: Final = 5.0
"""How long one address of several may take before the next is tried."""


def refuse_private(host: str, *, address: str = "") -> SourceRefused:
    """The error for a stranger that points into the operator's network."""
    # The address itself is not told: it could be shown to whoever sent us there.
    what = f"{host} leads into a private network" if address else f"{host} is an address of a private network"
    return SourceRefused(
        f"{what}, and was not written by you but came in a link or a redirect; "
        "if it is meant, write that address into the settings of the source"
    )


class Dialer(httpcore2.AsyncNetworkBackend):
    """Connects to places the operator wrote wherever they are, and to all others only on the public internet."""

    def __init__(self, written: Iterable[Place]) -> None:
        self._written = frozenset(written)
        self._trio = httpcore2.TrioBackend()

    def is_written(self, place: Place) -> bool:
        """Whether the operator wrote this host and port."""
        return place in self._written

    def check_name(self, place: Place) -> None:
        """Refuse what can be refused without resolving. With a proxy this is all that can be done from here."""
        host = place[0]
        if place in self._written:
            return
        if not is_public(host) if is_numeric(host) else is_local_name(host):
            raise refuse_private(host)

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve, check, and connect to an address that passed; the total time is the caller's."""
        addresses = await self._resolve(host, port)
        for address in addresses[:-1]:
            with trio.move_on_after(TRY_S):
                try:
                    return await self._trio.connect_tcp(address, port, socket_options=socket_options)
                except httpcore2.ConnectError:
                    continue
        return await self._trio.connect_tcp(addresses[-1], port, socket_options=socket_options)

    async def _resolve(self, host: str, port: int) -> list[str]:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the name {host} cannot be resolved") from error
        addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))[:ADDRESSES_MAX]
        is_written = (host, port) in self._written
        allowed = [address for address in addresses if is_written or is_public(address)]
        if not allowed:
            raise (
                refuse_private(host, address=addresses[0]) if addresses else httpcore2.ConnectError(f"{host} has none")
            )
        return allowed
