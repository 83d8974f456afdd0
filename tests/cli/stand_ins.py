"""Stand-ins behind the host names of the README: each at an address of its own, in one thread."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import trio
from attrs import frozen
from trio.abc import HostnameResolver
from typing_extensions import override

from actors import SystemClock
from cormorant.playground.arr import APPS, Arr
from cormorant.playground.catalogue import PlayedCatalogue
from cormorant.playground.http import StandInRequest, StandInResponse, StandInSite
from cormorant.playground.indexer import Habits, Indexer
from cormorant.playground.prowlarr import Prowlarr, ProwlarrEntry
from cormorant.playground.qbittorrent import QbittorrentStandIn
from cormorant.playground.server import serve_replies
from cormorant.playground.spotify import SpotifyStandIn
from cormorant.rules.addresses import ListenAddress
from cormorant.web.listener import bound
from tests.bounds import WAIT_S
from tests.stand_ins.spotify import busy_artist

KEY = "the-key-of-the-app"
ARTIST = busy_artist("2VAvhf61GgLYmC6C8anyX1", "Boards of Canada", 3)

Hosts = Mapping[tuple[str, int], StandInSite]
"""Stand-ins by host name and port."""


def hosts(spotify_id: str) -> Hosts:
    """The programs that the README names."""
    clock = SystemClock()
    catalogue = PlayedCatalogue(clock.now())
    indexers = [Indexer(name=name, habits=Habits(), catalogue=catalogue, clock=clock) for name in ("attic", "cellar")]
    spotify = SpotifyStandIn(artists={ARTIST.id: ARTIST}, client_id=spotify_id, secret=KEY)
    return {
        ("prowlarr", 9696): Prowlarr(key=KEY, entries=[ProwlarrEntry(indexer=each) for each in indexers]),
        ("sonarr", 8989): Arr(app=APPS["sonarr"], key=KEY),
        ("qbittorrent", 8080): QbittorrentStandIn(password=KEY),
        ("spotify", 8000): spotify,
        ("podcast.example", 8000): Podcast(),
    }


@frozen
class Podcast:
    """A feed with one item."""

    name: str = "podcast"

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        await trio.lowlevel.checkpoint()
        item = f"<item><title>One</title><guid>1</guid><link>{asked.base}/1.mp3</link></item>"
        feed = f"<rss version='2.0'><channel><title>Podcast</title>{item}</channel></rss>"
        return StandInResponse(kind="application/rss+xml", body=feed.encode())


@frozen
class Names(HostnameResolver):
    """Host names as the stand-ins themselves know them: Sonarr asks Cormorant by name."""

    addresses: Mapping[str, str]

    @override
    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        await trio.lowlevel.checkpoint()
        address = self.addresses[host.decode() if isinstance(host, bytes) else host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    @override
    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise AssertionError("nothing asks for names of addresses")


async def relay(stream: trio.SocketStream, *, port: int) -> None:
    """Pass a connection on to a port of this machine."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as inner, stream, trio.open_nursery() as nursery:
        nursery.start_soon(_pass_on, stream, inner)
        await _pass_on(inner, stream)
        nursery.cancel_scope.cancel()


async def _pass_on(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for piece in source:
            await sink.send_all(piece)
        await sink.send_eof()


@contextmanager
def running(standing: Hosts, *, gate_port: int) -> Iterator[dict[str, str]]:
    """Run the stand-ins. Gives the address of each host name. `cormorant:7979` leads to the port of the gate."""
    number = os.getpid()  # other runs of the tests have other addresses
    names = [host for host, _ in standing]
    addresses = {
        host: f"127.{100 + number % 100}.{number // 100 % 250}.{place}"
        for place, host in enumerate([*names, "cormorant"], 1)
    }
    is_up, told = threading.Event(), trio.Event()
    tokens: list[trio.lowlevel.TrioToken] = []

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for (host, port), site in standing.items():
                listening = bound(ListenAddress(addresses[host], port))
                nursery.start_soon(serve_replies, listening, site.answer, f"http://{host}:{port}")
            doors = await trio.open_tcp_listeners(7979, host=addresses["cormorant"])
            nursery.start_soon(trio.serve_listeners, partial(relay, port=gate_port), doors)
            trio.socket.set_custom_hostname_resolver(Names(addresses))
            tokens.append(trio.lowlevel.current_trio_token())
            is_up.set()
            await told.wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(run,), daemon=True)
    thread.start()
    assert is_up.wait(WAIT_S)
    try:
        yield addresses
    finally:
        tokens[0].run_sync_soon(told.set)
        thread.join(WAIT_S)
