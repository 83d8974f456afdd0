"""Whom do we believe about who asks? Proxies in these networks say for whom they ask; nobody else does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

import attrs

from cormorant.rules.settings.fields import Kind, Setting
from cormorant.rules.units import as_written

__all__ = ["Network", "address_group", "forwarded_client", "forwarded_host", "is_within", "networks"]

Network = IPv4Network | IPv6Network

_NETWORKS_MAX: Final = 100
_HOPS_MAX: Final = 20
_IPV6_PREFIX: Final = 64
_HOST: Final = re.compile(
    r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?)(?::[0-9]{1,5})?"
)


def forwarded_client(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """Who asks: the last address that no trusted proxy has written; all before it anybody may have made up.

    >>> trusted = [ip_network("10.0.0.0/8")]
    >>> forwarded_client("10.0.0.1", "6.6.6.6, 203.0.113.7, 10.0.0.2", trusted)
    '203.0.113.7'
    >>> forwarded_client("203.0.113.9", "127.0.0.1", trusted)
    '203.0.113.9'
    """
    client = peer
    for hop in reversed(forwarded_for.split(",")[-_HOPS_MAX:]):
        if not is_within(client, trusted):
            break
        told = _address(hop)
        if told is None:
            break
        client = told
    return client


def forwarded_host(text: str) -> str | None:
    """The name under which a proxy was asked; None: it is none.

    >>> forwarded_host("birds.example:8443"), forwarded_host("birds.example/../x")
    ('birds.example:8443', None)
    """
    first = text.partition(",")[0].strip()
    return first if _HOST.fullmatch(first) else None


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Whether an address is in one of the networks."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)


def address_group(address: str) -> str:
    """Whom limits count as one: an address, or the network that one who has IPv6 has as a whole.

    >>> address_group("203.0.113.7"), address_group("::ffff:203.0.113.7"), address_group("2001:db8::17")
    ('203.0.113.7', '203.0.113.7', '2001:db8::/64')
    """
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return address if found.is_loopback else str(ip_network((int(found), _IPV6_PREFIX), strict=False))


def _address(text: str) -> str | None:
    bare = text.strip().strip('"')
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return str(ip_address(bare))
    except ValueError:
        return None


def _parse_networks(value: object) -> tuple[Network, ...]:
    if not isinstance(value, list | tuple) or len(value) > _NETWORKS_MAX:
        raise ValueError(f'{as_written(value)} is not a list of networks, such as ["127.0.0.1", "172.16.0.0/12"]')
    return tuple(_parse_network(each) for each in value)


def _parse_network(value: object) -> Network:
    try:
        return ip_network(value if isinstance(value, str) else "")
    except ValueError:
        shown = as_written(value)
        raise ValueError(f'{shown} is not a network; write one like "172.16.0.0/12" or an IP address') from None


def _list_or_text(text: str) -> object:
    return [each.strip() for each in text.split(",") if each.strip()]


def _written(value: Iterable[Network]) -> str:
    return f"[{', '.join(as_written(str(each)) for each in value)}]"


NETWORKS: Final = Kind(name="list of networks", parse=_parse_networks, write=_written, from_environment=_list_or_text)


def networks(meaning: str) -> Any:
    """Networks, written as a list; in the environment with commas."""
    return attrs.field(default=(), metadata={Setting.KEY: Setting(kind=NETWORKS, meaning=meaning)})
