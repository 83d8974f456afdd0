"""Where may a stranger send us? To the public internet, and never into the operator's own network."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

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
