"""Dialing: strangers cannot send us into the operator's network, by whatever name or address."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.abc import HostnameResolver
from typing_extensions import override

from cormorant.clients.http.dialer import Dialer
from cormorant.clients.http.transport import Transport
from cormorant.rules.search.outcomes import SourceRefused, SourceUnavailable
from tests.clients.raw_server import page, raw_server, redirect


def pointing_at(port: int) -> Sequence[str]:
    hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",  # noqa: S104 - an attacker would send us there
        "2130706433",
        "0x7f.1",
        "127.1",
        "nas.local",
    ]
    return [f"http://{host}:{port}/" for host in hosts] + ["http://169.254.169.254/latest/meta-data/"]


@pytest.mark.parametrize("index", range(10))
async def test_a_redirect_into_a_private_network_is_refused(index: int) -> None:
    async with raw_server() as inside, raw_server({"/": redirect(pointing_at(inside.port)[index])}) as server:
        transport = Transport(written=[server.url])
        with pytest.raises(SourceRefused, match="private network"):
            await transport.get(server.url)

    assert inside.asked == []


async def test_a_link_into_a_private_network_is_refused_unless_it_was_written() -> None:
    async with raw_server({"/": page("here")}) as server:
        stranger = Transport()
        with pytest.raises(SourceRefused, match="write that address into the settings"):
            await stranger.get(server.url)

        assert server.asked == []
        friend = Transport(written=[server.url])
        assert (await friend.get(server.url)).body == b"here"


class Names(HostnameResolver):
    """A resolver that answers each question with the next address it was given."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked = 0

    @override
    async def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        address = self.addresses[min(self.asked, len(self.addresses) - 1)]
        self.asked += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    @override
    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


async def test_a_public_name_that_resolves_to_a_private_address_is_refused() -> None:
    async with raw_server() as inside:
        trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
        transport = Transport()
        with pytest.raises(SourceRefused, match="leads into a private network"):
            await transport.get(f"http://rebind.example.org:{inside.port}/")

    assert inside.asked == []


async def test_the_address_that_was_checked_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server({"/": page("inside")}) as inside:
        names = Names("127.0.0.2", "127.0.0.1")  # at the first nobody listens
        trio.socket.set_custom_hostname_resolver(names)
        monkeypatch.setattr("cormorant.clients.http.dialer.is_public", lambda address: address == "127.0.0.2")
        transport = Transport()
        with pytest.raises(SourceUnavailable, match="cannot be reached"):
            await transport.get(f"http://rebind.example.org:{inside.port}/")

    assert names.asked == 1
    assert inside.asked == []


async def test_a_name_that_cannot_be_resolved_is_unavailable() -> None:
    class NoNames(Names):
        @override
        async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
            raise socket.gaierror(-2, "Name or service not known")

    trio.socket.set_custom_hostname_resolver(NoNames())
    transport = Transport()
    with pytest.raises(SourceUnavailable, match="cannot be resolved"):
        await transport.get("http://nowhere.example.org/")


async def test_a_second_address_is_tried_when_the_first_does_not_listen() -> None:
    class TwoNames(Names):
        @override
        async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.0.0.2", "127.0.0.1")]

    async with raw_server({"/": page("here")}) as server:
        trio.socket.set_custom_hostname_resolver(TwoNames())
        written = f"http://twin.example.org:{server.port}"
        transport = Transport(written=[written])
        assert (await transport.get(written)).body == b"here"


def test_a_public_numeric_address_is_no_local_name() -> None:
    dialer = Dialer([])

    for host in ("2606:2800:21f::1", "93.184.215.14", "example.org"):
        dialer.check_name((host, 80))
