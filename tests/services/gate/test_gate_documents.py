"""Every document of the gate, as apps parse it: with a plain XML parser, and with the one that cross-seed uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from attrs import define, field
from lxml import etree

from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.sources import SourceSettings
from supervisors import Service
from tests.clients.raw_server import raw_server
from tests.web.arr_apps import six_fields
from tests.web.stand_in_site import Release, StandInSite
from tests.web.web_place import SONARR, SOURCE_KEY, WebPlace, web_place
from tests.web.xml2js import Parse, parser

pytestmark = pytest.mark.slow("real sockets, on the real clock")

KINDS: Final = {"attic": "torznab", "cellar": "newznab"}
TITLES: Final = [f"Some.Show.S02E0{n} & <more> “ß”" for n in range(3)]
SHOWS: Final = [Release(n, f"Some.Show.S02E0{n} &amp; &lt;more&gt; “ß”", 5040, {"season": "2"}) for n in range(3)]
REFUSED: Final[Mapping[str, dict[str, str]]] = {
    "without a key": {"apikey": "", "t": "caps"},
    "wrong key": {"apikey": "wrong", "t": "caps"},
    "without a function": {},
    "no such function": {"t": "register"},
    "wrong parameter": {"t": "search", "cat": "tv"},
}


@define
class Documents:
    """What a gate answered, by the kind of the document and where it was asked for."""

    address: str = ""
    caps: dict[str, bytes] = field(factory=dict)
    feeds: dict[str, bytes] = field(factory=dict)
    errors: dict[str, bytes] = field(factory=dict)

    @property
    def all(self) -> dict[str, bytes]:
        return self.caps | self.feeds | self.errors


@pytest.fixture(scope="module")
def xml2js() -> Parse:
    return parser()


async def documents_before(data: Path, releases: list[Release]) -> Documents:
    """Every document of a gate before a torrent site and a Usenet site that have these releases."""
    usual: dict[str, Any] = {"key": Secret(SOURCE_KEY), "spacing_s": 0.0, "pace_s": 0.0}
    hasty = ClientSettings(key=Secret(SONARR), hold_s=0.1)
    async with raw_server() as server:
        server.routes = {f"/{name}/api": StandInSite(kind, releases, server).play for name, kind in KINDS.items()}
        sources = {
            name: SourceSettings(url=f"{server.url}/{name}/api", kind=kind, **usual) for name, kind in KINDS.items()
        }
        with web_place(data) as place:
            async with place.served(sources=sources, clients={"sonarr": hasty}) as (service, client):
                return await _ask_for_all(place, service, client)


async def _ask_for_all(place: WebPlace, service: Service, client: httpx2.AsyncClient) -> Documents:
    found = Documents(place.address)

    async def ask(where: str, **params: str) -> bytes:
        return (await place.torznab(client, where, **params)).content

    for where in (*KINDS, "combined"):
        found.caps[f"caps {where}"] = await ask(where, t="caps")
        found.feeds[f"search {where}"] = await ask(where, t="tvsearch", q="some show", season="2", cat="5000")
        found.feeds[f"nothing {where}"] = await ask(where, t="search", q="no such words")
        found.feeds[f"news {where}"] = await ask(where, t="search", q="", limit="100", offset="0")
        found.feeds[f"beyond {where}"] = await ask(where, t="search", q="", limit="100", offset="100")
    for title, params in REFUSED.items():
        found.errors[title] = await ask("attic", **params)
    found.errors["unknown source"] = await ask("blue", t="caps")
    found.errors["gone"] = (await client.get("/gate/attic/download/sonarr.a.b")).content
    await service.pause_source("attic")
    found.errors["closed"] = await ask("attic", t="search", q="other words")
    return found


def items_of(document: bytes) -> list[etree._Element]:
    return etree.fromstring(document).findall("channel/item")


def indexers_of(document: bytes) -> list[tuple[str | None, str | None]]:
    """Number and name of the indexer of each item."""
    elements = [item.findall("prowlarrindexer") for item in items_of(document)]
    return [(each.get("id"), each.text) for [each] in elements]


@pytest.mark.parametrize("releases", [SHOWS, []], ids=["full", "empty"])
async def test_no_guid_has_an_attribute_and_every_item_and_channel_says_whose_it_is(
    tmp_path: Path, releases: list[Release]
) -> None:
    found = await documents_before(tmp_path, releases)

    for name, document in found.all.items():
        root = etree.fromstring(document)
        assert [dict(guid.attrib) for guid in root.iter("guid")] == [{}] * len(items_of(document)), name
    for name, document in found.feeds.items():
        assert etree.fromstring(document).findtext("channel/link") == f"{found.address}/", name
        assert all(number and indexer for number, indexer in indexers_of(document)), name
        assert all(each["guid"].startswith("cormorant-") for each in six_fields(document)), name


async def test_an_item_names_its_source_by_the_same_number_wherever_it_is_shown(tmp_path: Path) -> None:
    found = await documents_before(tmp_path, SHOWS)

    [(attic, _), *_] = indexers_of(found.feeds["search attic"])
    [(cellar, _), *_] = indexers_of(found.feeds["search cellar"])
    assert attic != cellar
    for page in ("search", "news"):
        assert indexers_of(found.feeds[f"{page} attic"]) == [(attic, "attic")] * 3
        assert indexers_of(found.feeds[f"{page} cellar"]) == [(cellar, "cellar")] * 3
        both = sorted(indexers_of(found.feeds[f"{page} combined"]))
        assert both == sorted([(attic, "attic")] * 3 + [(cellar, "cellar")] * 3)
        for item in items_of(found.feeds[f"{page} combined"]):
            assert f"/gate/{item.findtext('prowlarrindexer')}/download/" in str(item.findtext("link"))


async def test_the_placeholder_of_an_empty_feed_has_a_source_too(tmp_path: Path) -> None:
    found = await documents_before(tmp_path, [])

    [(attic, name)] = indexers_of(found.feeds["news attic"])
    assert (attic != "0", name) == (True, "attic")
    assert indexers_of(found.feeds["news combined"]) == [("0", "Cormorant")]


@pytest.mark.parametrize("releases", [SHOWS, []], ids=["full", "empty"])
async def test_cross_seed_reads_every_document_with_its_own_parser(
    xml2js: Parse, tmp_path: Path, releases: list[Release]
) -> None:
    found = await documents_before(tmp_path, releases)
    read = xml2js(found.all)

    for name in found.feeds:
        candidates = candidates_of(read[name])
        where = name.split()[-1]
        count = {"search": len(releases), "news": len(releases), "nothing": 0, "beyond": 0}[name.split()[0]]
        if not releases and name.startswith("news"):
            assert [each["name"][:15] for each in candidates] == ["Nothing is here"]
        elif where == "combined":
            assert sorted(each["name"] for each in candidates) == sorted(TITLES[:count] * 2)
            assert {each["tracker"] for each in candidates} == (set(KINDS) if count else set())
        else:
            assert [(each["name"], each["tracker"]) for each in candidates] == [
                (each, where) for each in TITLES[:count]
            ]
    for name in found.caps:
        assert caps_of(read[name]) == CAPS
    for name in found.errors:
        assert candidates_of(read[name]) == []
        assert set(read[name]["error"]["$"]) == {"code", "description"}


def candidates_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items as cross-seed takes them. It stores guid, name, link and tracker as text, whatever the parser made of them."""
    channels = document.get("rss", {}).get("channel", [])
    items = channels[0].get("item", []) if channels else []
    candidates = [
        {
            "guid": item["guid"][0],
            "name": item["title"][0],
            "tracker": item["prowlarrindexer"][0]["_"].strip(),
            "link": item["link"][0],
            "size": float(item["size"][0]),
            "pubDate": item["pubDate"][0],
        }
        for item in items
    ]
    for each in candidates:
        assert all(
            isinstance(each[name], str) and each[name] for name in ("guid", "name", "tracker", "link", "pubDate")
        )
        assert math.isfinite(each["size"])
        assert each["size"] > 0
    return candidates


CAPS: Final = {
    "limits": (100, 100),
    "available": {"search", "tv-search", "movie-search", "music-search", "audio-search"},
    "ids": {"tv-search": ["imdbid", "tvdbid"], "movie-search": ["imdbid", "tmdbid"]},
    "categories": {2000: "Movies", 3000: "Audio", 5000: "TV"},
}


def caps_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The abilities as cross-seed takes them."""
    [limits], [searching] = document["caps"]["limits"], document["caps"]["searching"]
    kinds = {name: kind[0]["$"] for name, kind in searching.items()}
    categories = [each["$"] for each in document["caps"]["categories"][0]["category"]]
    return {
        "limits": (int(limits["$"]["default"]), int(limits["$"]["max"])),
        "available": {name for name, kind in kinds.items() if kind["available"] == "yes"},
        "ids": {
            name: [each for each in kinds[name]["supportedParams"].split(",") if "id" in each]
            for name in ("tv-search", "movie-search")
        },
        "categories": {int(each["id"]): each["name"] for each in categories},
    }
