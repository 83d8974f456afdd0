"""Destinations: what lies in the operator's own network is recognised in every disguise."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.clients.http.dialer import is_local_name, is_numeric, is_public

PRIVATE = [
    "0.0.0.0",  # noqa: S104 - nothing is bound to it
    "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254",
    "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0",
    "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1", "::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::127.0.0.1",
    "2002:a00:1::", "not an address", "", "1.2.3",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_seen(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]
)
def test_what_is_public_is_seen(address: str) -> None:
    assert is_public(address)


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_an_address_in_an_address_counts_as_itself(address: IPv4Address) -> None:
    assert is_public(f"::ffff:{address}") == is_public(str(address))
    assert is_public(f"64:ff9b::{address}") == is_public(str(address))


@given(st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32, 2**128 - 1)).map(ip_address).map(str))
def test_every_address_is_numeric(address: str) -> None:
    assert is_numeric(address)


@given(st.text())
def test_any_host_can_be_judged(host: str) -> None:
    assert isinstance(is_public(host) or is_numeric(host) or is_local_name(host), bool)
