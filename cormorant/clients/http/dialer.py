"""Resolves, checks and connects; which addresses are public."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

import httpcore2
import trio
from typing_extensions import override

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


_NAT64 = IPv6Network("64:ff9b::/96")
_V4_COMPATIBLE = IPv6Network("::/96")
_LOW_32_BITS = 0xFFFF_FFFF

_LOCAL_NAMES = ("localhost", "local", "internal", "lan", "home.arpa")


def is_public(address: str) -> bool:
    """Whether a numeric address is one of the public internet. What cannot be read is not.

    An IPv4 address inside an IPv6 one counts as itself: `::ffff:127.0.0.1` leads to this machine.

    >>> [is_public(text) for text in ("93.184.215.14", "2606:2800:21f::1", "10.0.0.1", "169.254.169.254", "::1")]
    [True, True, False, False, False]
    >>> [is_public(text) for text in ("::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "100.64.0.1", "host")]
    [False, False, False, False, False]
    """
    try:
        read = ip_address(address)
    except ValueError:
        return False
    inner = _inner_v4(read) if isinstance(read, IPv6Address) else None
    return _is_global(read) if inner is None else _is_global(inner)


def is_local_name(host: str) -> bool:
    """Whether a name can only mean a machine nearby. A resolver far away could not be asked what it means.

    >>> [is_local_name(name) for name in ("localhost", "nas.local", "prowlarr", "example.org", "a.localhost.")]
    [True, True, True, False, True]
    """
    labels = host.rstrip(".").lower()
    return "." not in labels or any(labels == name or labels.endswith(f".{name}") for name in _LOCAL_NAMES)


def is_numeric(host: str) -> bool:
    """Whether a host is an address and no name, in any spelling that a resolver would take for one.

    >>> [is_numeric(host) for host in ("127.0.0.1", "::1", "0x7f.1", "2130706433", "127.1", "example.org")]
    [True, True, True, True, True, False]
    """
    last = host.rstrip(".").rpartition(".")[2].lower()
    return ":" in host or last.isdigit() or last.startswith("0x")


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )


def _inner_v4(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or address in _V4_COMPATIBLE:
        return IPv4Address(int(address) & _LOW_32_BITS)
    return None
