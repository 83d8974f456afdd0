"""Downloads and secrets: a real site on loopback, whose key is in its links, and apps that must never see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from lxml import etree
from sqlalchemy import Connection, text

from cormorant.clients.torznab_items import NEWZNAB, TORZNAB
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.sources import SourceSettings
from tests.clients.raw_server import Asked, RawServer, page, raw_server
from tests.web.web_place import SOURCE_KEY, WebPlace, web_place

pytestmark = pytest.mark.slow("real sockets, on the real clock")

TORRENT = (
    b"d8:announce29:http://t.example/announce/key4:infod6:lengthi5e4:name8:some.mkv12:piece lengthi16384e"
    b"6:pieces20:01234567890123456789ee"
)
NZB = (
    b'<?xml version="1.0"?><nzb xmlns="http://www.newzbin.com/DTD/2003/nzb"><file poster="p" date="1" subject="s">'
    b'<groups><group>a.b</group></groups><segments><segment bytes="1" number="1">a@b</segment></segments></file></nzb>'
)
SECRETS = (SOURCE_KEY, "pass" + SOURCE_KEY[:5], "uid-secret-77")


def feed(url: str) -> str:
    link = f"{url}/dl/1.torrent?apikey={SOURCE_KEY}&amp;passkey=pass{SOURCE_KEY[:5]}&amp;uk=uid-secret-77"
    return f"""<rss version="2.0" xmlns:torznab="{TORZNAB}" xmlns:newznab="{NEWZNAB}"><channel>
      <item><title>A torrent with {SOURCE_KEY} in its name</title><guid>{link}</guid><link>{link}</link>
        <comments>{url}/details?id=1&amp;authkey=uid-secret-77</comments>
        <pubDate>Mon, 16 Nov 2026 01:02:03 +0100</pubDate><size>5</size>
        <enclosure url="{link}" length="5" type="application/x-bittorrent"/>
        <torznab:attr name="category" value="5040"/><torznab:attr name="category" value="100321"/>
        <torznab:attr name="seeders" value="3"/><torznab:attr name="peers" value="4"/>
        <torznab:attr name="downloadvolumefactor" value="0"/><torznab:attr name="tag" value="{SOURCE_KEY}"/>
        <torznab:attr name="tag" value="internal"/><torznab:attr name="coverurl" value="{link}"/></item>
      <item><title>A magnet</title><guid>2</guid><pubDate>Mon, 16 Nov 2026 00:00:00 GMT</pubDate>
        <enclosure url="magnet:?xt=urn:btih:{"a" * 40}&amp;tr=http://t/uid-secret-77" type="application/x-bittorrent"/></item>
      <item><title>An NZB</title><guid>3</guid>
        <enclosure url="{url}/dl/3.nzb?apikey={SOURCE_KEY}" length="9" type="application/x-nzb"/>
        <newznab:attr name="category" value="5040"/></item>
      <item><title>Gone</title><guid>4</guid><pubDate>Mon, 16 Nov 2026 00:00:00 GMT</pubDate>
        <enclosure url="{url}/dl/4" type="application/x-bittorrent"/></item>
    </channel></rss>"""


@asynccontextmanager
async def a_site(tmp_path: Path, **chosen: Any) -> AsyncIterator[tuple[WebPlace, RawServer, httpx2.AsyncClient]]:
    async with raw_server() as site:
        site.routes = {
            "/api": page(feed(site.url)),
            "/dl/1.torrent": page(TORRENT),
            "/dl/3.nzb": page(NZB),
            "/dl/4": page(status="404 Not Found"),
        }
        source = SourceSettings(
            url=f"{site.url}/api", key=Secret(SOURCE_KEY), spacing_s=0.0, pace_s=0.0, grabs_per_day=2
        )
        with web_place(tmp_path) as place:
            async with place.served(sources={"red": source}, **chosen) as (_, client):
                yield place, site, client


async def found(place: WebPlace, client: httpx2.AsyncClient) -> tuple[httpx2.Response, dict[str, etree._Element]]:
    answer = await place.torznab(client, "red", t="search", q="x")
    items = etree.fromstring(answer.content).iter("item")
    return answer, {
        str(item.findtext("title")).removeprefix("A ").removeprefix("An ").split()[0]: item for item in items
    }


def link_of(item: etree._Element) -> str:
    enclosure = item.find("enclosure")
    assert enclosure is not None
    assert item.findtext("link") == enclosure.get("url")
    return str(enclosure.get("url"))


async def test_no_key_of_a_site_is_in_any_byte_that_an_app_gets(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, _, client):
        answer, items = await found(place, client)
        feed_of_new = await place.torznab(client, "red", t="search")
        combined = await place.torznab(client, "combined", t="search", q="y")
        sent = [answer, feed_of_new, combined, await place.torznab(client, "red", t="caps")]

    for each in sent:
        whole = each.content + repr(each.headers).encode()
        assert [secret for secret in SECRETS if secret.encode() in whole] == []
    assert len(items) == 4


async def test_what_an_app_reads_of_an_item_is_there(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, _, client):
        answer, items = await found(place, client)

    torrent, nzb = items["torrent"], items["NZB"]
    attributes = [(each.get("name"), each.get("value")) for each in torrent.iter(f"{{{TORZNAB}}}attr")]
    assert attributes == [
        ("category", "5040"), ("category", "100321"), ("size", "5"), ("seeders", "3"), ("peers", "4"),
        ("downloadvolumefactor", "0"), ("tag", "internal"),
    ]  # fmt: skip
    assert torrent.findtext("pubDate") == "Mon, 16 Nov 2026 00:02:03 +0000"
    assert {name for name, _ in ((each.get("name"), "") for each in nzb.iter(f"{{{NEWZNAB}}}attr"))} >= {
        "category",
        "size",
    }
    assert nzb.find("enclosure").get("type") == "application/x-nzb"  # type: ignore[union-attr]  # it is there
    assert all(item.findtext("pubDate") and item.findtext("size") for item in items.values())
    assert answer.status_code == 200


async def test_a_download_goes_through_the_gate_and_is_put_down_to_the_app(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, site, client):
        _, items = await found(place, client)
        torrent = await client.get(link_of(items["torrent"]), headers={"X-Api-Key": ""})
        nzb = await client.get(link_of(items["NZB"]), headers={"X-Api-Key": ""})
        lanes = await place.gateway.read(spent)

    assert (torrent.status_code, torrent.headers["content-type"], torrent.content) == (
        200,
        "application/x-bittorrent",
        TORRENT,
    )
    assert torrent.headers["content-disposition"] == 'attachment; filename="some.mkv.torrent"'
    assert (nzb.status_code, nzb.headers["content-type"], nzb.content) == (200, "application/x-nzb", NZB)
    assert lanes == [("query", "sonarr"), ("grab", "sonarr"), ("grab", "sonarr")]
    assert [asked.params.get("apikey") for asked in site.asked] == [SOURCE_KEY] * 3


async def test_a_magnet_is_a_redirect_and_asks_nobody(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, site, client):
        _, items = await found(place, client)
        answer = await client.get(link_of(items["magnet"]))

    assert answer.status_code == 302
    assert answer.headers["location"].startswith(f"magnet:?xt=urn:btih:{'a' * 40}")
    assert len(site.asked) == 1


async def test_what_is_gone_is_404_and_what_is_limited_is_429(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, _, client):
        _, items = await found(place, client)
        answers = [await client.get(link_of(items[name])) for name in ("Gone", "torrent", "torrent")]

    assert [answer.status_code for answer in answers] == [404, 200, 429]
    assert 86_000 < int(answers[-1].headers["retry-after"]) <= 86_400


async def test_a_link_that_was_changed_in_any_letter_leads_nowhere(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, site, client):
        _, items = await found(place, client)
        address, _, token = link_of(items["torrent"]).rpartition("/")
        changed = [
            token[:place_] + ("A" if token[place_] != "A" else "B") + token[place_ + 1 :]
            for place_ in range(len(token))
        ]
        answers = [await client.get(f"{address}/{each}") for each in [*changed[::5], "x", "sonarr..", token + "x"]]
        elsewhere = await client.get(f"{address.replace('/red/', '/combined/')}/{token}")

    assert {answer.status_code for answer in answers} == {404}
    assert elsewhere.status_code == 404
    assert b"<error" in elsewhere.content
    assert len(site.asked) == 1


async def test_a_link_outlives_a_restart(tmp_path: Path) -> None:
    async with raw_server() as site:
        site.routes = {"/api": page(feed(site.url)), "/dl/1.torrent": page(TORRENT)}
        red = SourceSettings(url=f"{site.url}/api", key=Secret(SOURCE_KEY), spacing_s=0.0, pace_s=0.0)
        with web_place(tmp_path) as place:
            async with place.served(sources={"red": red}) as (_, client):
                path = link_of((await found(place, client))[1]["torrent"]).removeprefix(place.address)
            async with place.served(sources={"red": red}) as (_, client):
                answer = await client.get(path)

    assert answer.content == TORRENT


CAPS = b"""<caps><limits default="50" max="75"/><searching><search available="yes" supportedParams="q"/>
<tv-search available="yes" supportedParams="q,season,ep,tvdbid"/></searching>
<categories><category id="5000" name="TV"><subcat id="5040" name="HD"/></category></categories></caps>"""


async def answer_by_function(stream: trio.SocketStream, asked: Asked) -> None:
    await stream.send_all(page(CAPS if asked.params.get("t") == "caps" else feed("http://x")))


async def test_a_site_is_asked_once_what_it_can_do_and_that_counts(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, site, client):
        site.routes["/api"] = answer_by_function
        first = await place.torznab(client, "red", t="caps")
        second = await place.torznab(client, "red", t="caps")
        lanes = await place.gateway.read(spent)

    assert etree.fromstring(first.content).xpath("string(//tv-search/@supportedParams)") == "q,season,ep,tvdbid"
    assert first.content == second.content
    assert [asked.params["t"] for asked in site.asked] == ["caps"]
    assert lanes == [("query", "sonarr")]


async def test_a_site_that_does_not_say_what_it_can_do_counts_as_usual_and_is_left_alone(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, site, client):
        site.routes["/api"] = page(status="500 Oops")
        answers = [await place.torznab(client, "red", t="caps") for _ in range(3)]

    found = {str(etree.fromstring(answer.content).xpath("string(//tv-search/@supportedParams)")) for answer in answers}
    assert found == {"q,season,ep"}
    assert len(site.asked) == 1


def spent(connection: Connection) -> list[tuple[str, str]]:
    rows = connection.execute(text("SELECT lane, consumer FROM source_requests ORDER BY lane DESC, seq"))
    return [(row.lane, row.consumer) for row in rows]
