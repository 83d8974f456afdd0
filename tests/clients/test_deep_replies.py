"""Replies of JSON that are nested too deep: an ordinary error of the one who was asked, whoever that is."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

import cormorant.clients
from cormorant.clients.arr import APPS, ArrClient, prowlarr_indexers
from cormorant.clients.feeds import FeedClient
from cormorant.clients.http.json_api import JsonApi
from cormorant.clients.http.transport import Transport
from cormorant.clients.price_sites import PriceClient
from cormorant.clients.slskd import SlskdClient
from cormorant.clients.spotify import SpotifyClient, SpotifyOptions
from cormorant.clients.targets.qbittorrent import Qbittorrent
from cormorant.clients.targets.sabnzbd import Sabnzbd
from cormorant.clients.targets.slskd import SlskdTarget
from cormorant.clients.torznab import TorznabClient
from cormorant.rules.app_indexers import GateEndpoint
from cormorant.rules.json_documents import DEPTH_MAX, NestedTooDeep, check_nesting, parse_json
from cormorant.rules.search.outcomes import SourceError
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import ParcelKind, TargetError
from cormorant.testing import SimulatedClock, in_line
from tests.clients.parcel_samples import parcel
from tests.clients.raw_server import page, raw_server
from tests.environments import environment_of

KEY: Final = Secret("hunter2hunter2")
CLOCK: Final = SimulatedClock()


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


# What Python reads depends on its version: some read 900 levels, some 9,000.
REPLIES: Final = {
    "never closed": "[" * 100_000,
    "closed": nested(100_000),
    "one too many": nested(DEPTH_MAX + 1),
    "as much as Python reads": nested(900),
    "in a field": f'{{"version": "https://jsonfeed.org/version/1", "error": {nested(900)}, "id": {nested(900)}}}',
    "in an indexer": f'[{{"id": 1, "implementation": "Torznab", "fields": {nested(900)}}}]',
}
Ask = Callable[[str, Transport], Awaitable[object]]


def api(url: str, transport: Transport) -> JsonApi:
    return JsonApi(app="Sonarr", url=url, key=KEY, transport=transport, offload=in_line)


def connected(url: str, transport: Transport) -> Awaitable[object]:
    endpoint = GateEndpoint(source="a", implementation="Torznab", url=url, name="a")
    return ArrClient(APPS["sonarr"], api(url, transport)).add("a", endpoint, KEY)


def torznab(url: str, transport: Transport) -> TorznabClient:
    return TorznabClient(url, KEY, transport, environment_of(offload=in_line, clock=CLOCK))


def prices(url: str, transport: Transport) -> PriceClient:
    return PriceClient(url, KEY, transport, environment_of(offload=in_line, clock=CLOCK))


def slskd(url: str, transport: Transport) -> SlskdClient:
    return SlskdClient(url, KEY, transport, environment_of(offload=in_line, chance=random.Random(1)))


def spotify(url: str, transport: Transport) -> SpotifyClient:
    where = SpotifyOptions(api_url=url, token_url=url)
    return SpotifyClient("playground", KEY, transport, environment_of(offload=in_line, clock=CLOCK), options=where)


def feeds(transport: Transport) -> FeedClient:
    return FeedClient(transport, environment_of(offload=in_line, clock=CLOCK))


Called = TypeVar("Called", Qbittorrent, Sabnzbd, SlskdTarget)

ASKED: Final[dict[str, Ask]] = {
    "a feed": lambda url, transport: feeds(transport).fetch(url),
    "an indexer": lambda url, transport: torznab(url, transport).search(SearchRequest(query="a")),
    "a source of prices": lambda url, transport: prices(url, transport).search(SearchRequest(query="a")),
    "slskd, searching": lambda url, transport: slskd(url, transport).search("a"),
    "Spotify": lambda url, transport: spotify(url, transport).artist("4Z8W4fKeB5YxbusRsdQVPb"),
    "Prowlarr": lambda url, transport: prowlarr_indexers(api(url, transport)),
    "Sonarr": connected,
}


def target(made: type[Called], url: str, transport: Transport) -> Called:
    settings = TargetSettings(url=url, key=KEY)
    return made(settings, transport, environment_of(offload=in_line, clock=CLOCK))


TARGETS: Final[dict[str, Ask]] = {
    "qBittorrent": lambda url, transport: target(Qbittorrent, url, transport).status(parcel(ParcelKind.TORRENT), None),
    "SABnzbd": lambda url, transport: target(Sabnzbd, url, transport).status(parcel(ParcelKind.NZB), None),
    "slskd": lambda url, transport: target(SlskdTarget, url, transport).test(),
}


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
@pytest.mark.parametrize("body", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("ask", [*ASKED.values(), *TARGETS.values()], ids=[*ASKED, *TARGETS])
async def test_a_deep_reply_is_an_error_of_whoever_gave_it(ask: Ask, body: str, status: str) -> None:
    async with raw_server({"*": page(body, status=status)}) as server:
        transport = Transport(written=[server.url])
        with pytest.raises((SourceError, TargetError)):
            await ask(server.url, transport)


def test_every_client_reads_json_with_the_limit() -> None:
    folder = Path(cormorant.clients.__file__).parent
    without = {path.name for path in folder.rglob("*.py") if "json.load" in path.read_text()}

    assert without == {"apprise.py"}, "it reads what a process of ours wrote"


def test_a_document_at_the_limit_is_read_and_one_level_more_is_not() -> None:
    value: Any = parse_json(nested(DEPTH_MAX))

    assert isinstance(value, list)
    with pytest.raises(NestedTooDeep):
        parse_json(nested(DEPTH_MAX + 1))
    with pytest.raises(NestedTooDeep):
        check_nesting({"a": value})
