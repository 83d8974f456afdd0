"""What is new: pages from several polls, one request for several processes, and the item that says there is none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.ports import ignore
from cormorant.rules.search.caps import dump_caps
from cormorant.rules.search.requests import Caps, Category, Result, SearchPage, SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.settings import SearchSettings
from cormorant.testing import BROKEN, ScriptedSource
from storage.database import Database, Mode, StorageOptions
from storage.search import sources
from storage.search.sources import SourceRecord
from tests.services.gate.test_gate import RSS, SEARCH, error_of, titles, xml
from tests.web.web_place import SONARR, WebPlace, web_place

pytestmark = pytest.mark.slow("real sockets")

NEVER_FRESH: dict[str, Any] = {"search": attrs.evolve(SearchSettings(), rss_ttl_s=0.0)}


def total(answer: httpx2.Response) -> tuple[str, str]:
    where = "string(//*[local-name()='response']/@{})"
    return str(xml(answer).xpath(where.format("offset"))), str(xml(answer).xpath(where.format("total")))


def news(start: int, count: int = 100) -> list[str]:
    """As sites list it: the newest first."""
    return [f"new {number}" for number in reversed(range(start, start + count))]


@contextmanager
def two_places(folder: Path, url: str = "", **sources: ScriptedSource) -> Iterator[list[WebPlace]]:
    """Two processes, as far as a database can tell."""
    options = StorageOptions(url=url or f"sqlite:///{folder}/shared.db")
    gateways = [Database(options, mode=Mode.INLINE, emit=ignore, chance=random.Random(1)) for _ in range(2)]
    try:
        yield [WebPlace(gateway, folder, sources) for gateway in gateways]
    finally:
        for gateway in gateways:
            gateway.dispose()


async def test_pages_go_on_into_what_earlier_polls_brought(tmp_path: Path) -> None:
    red = ScriptedSource(news(0), news(60))
    with web_place(tmp_path, red=red) as place:
        async with place.served(**NEVER_FRESH) as (_, client):
            await place.torznab(client, "red", **RSS)
            pages = [await place.torznab(client, "red", **RSS | {"offset": str(offset)}) for offset in (0, 100, 200)]

    assert [title for page in pages for title in titles(page)] == news(0, 160)
    assert [total(page) for page in pages] == [("0", "160"), ("100", "160"), ("200", "160")]
    assert [page.status_code for page in pages] == [200] * 3
    assert len(red.requests) == 2


async def test_all_sources_together_are_paged_also_while_one_does_not_answer(tmp_path: Path) -> None:
    found = {"red": ScriptedSource(news(0, 70), BROKEN), "blue": ScriptedSource([f"blue {n}" for n in range(70)])}
    with web_place(tmp_path, **found) as place:
        async with place.served(**NEVER_FRESH) as (_, client):
            await place.torznab(client, "combined", **RSS)
            pages = [
                await place.torznab(client, "combined", **RSS | {"offset": str(offset), "limit": "60"})
                for offset in (0, 60, 120, 180)
            ]

    shown = [titles(page) for page in pages]
    assert [len(page) for page in shown] == [60, 60, 20, 0]
    assert sorted(title for page in shown for title in page) == sorted(
        [*news(0, 70), *[f"blue {n}" for n in range(70)]]
    )
    assert {total(page)[1] for page in pages} == {"140"}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_one_poll_serves_the_apps_of_two_processes(
    tmp_path: Path, socket_clock: MockClock, request: pytest.FixtureRequest, kind: str
) -> None:
    url = "" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    red = ScriptedSource(news(0, 3), takes_s=0.5)
    hasty = {"sonarr": ClientSettings(key=Secret(SONARR), hold_s=5.0)}
    with two_places(tmp_path, url, red=red) as (one, two):
        paced = {"pace_s": 600.0}  # so that the second could not poll in time by itself
        async with (
            one.served(paced, clients=hasty) as (_, first),
            two.served(paced, clients=hasty) as (_, second),
        ):
            answers: list[httpx2.Response] = []

            async def poll(place: WebPlace, client: httpx2.AsyncClient) -> None:
                answers.append(await place.torznab(client, "red", **RSS))

            with trio.fail_after(20):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(poll, one, first)
                    nursery.start_soon(poll, two, second)
                    nursery.start_soon(poll, two, second)
            later = [await place.torznab(client, "red", **RSS) for place, client in ((one, first), (two, second))]

    assert [titles(answer) for answer in answers + later] == [news(0, 3)] * 5
    assert len(red.requests) == 1


async def test_a_category_that_is_wanted_for_the_first_time_is_asked_for_alone_and_then_with_the_others(
    tmp_path: Path,
) -> None:
    red = ScriptedSource(["x"])
    with web_place(tmp_path, red=red) as place:
        async with place.served(**NEVER_FRESH) as (_, client):
            await place.torznab(client, "red", **RSS | {"cat": "5030"})
            await place.torznab(client, "red", **RSS | {"cat": "2000"})
            await place.torznab(client, "red", **RSS | {"cat": "5030"})

    assert [request.categories for request in red.requests] == [(5030,), (2000,), (2000, 5030)]


@pytest.mark.parametrize("where", ["red", "combined"])
async def test_a_feed_that_is_empty_has_one_item_that_says_so_and_cannot_be_fetched(tmp_path: Path, where: str) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served() as (_, client):
            first = await place.torznab(client, where, **RSS)
            beyond = await place.torznab(client, where, **RSS | {"offset": "100"})
            [item] = xml(first).iter("item")
            fetched = await client.get(str(item.findtext("link")))

    assert item.findtext("title") == "Nothing is here yet (a placeholder made up by Cormorant, not a release)"
    assert [each.text for each in item.findall("category")] == ["5030", "5040"]
    assert item.xpath("string(enclosure/@type)") == "application/x-bittorrent"
    assert item.xpath("string(*[local-name()='attr'][@name='seeders']/@value)") == "0"
    assert item.findtext("pubDate") == "Sat, 01 Jan 2000 00:00:00 +0000"
    assert total(first) == ("0", "1")
    assert (titles(beyond), total(beyond)) == ([], ("100", "0"))
    assert error_of(fetched) == (404, "300", "there is no such download")


async def test_before_there_is_any_source_the_gate_can_be_added_too(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            answer = await place.torznab(client, "combined", **RSS)

    assert len(titles(answer)) == 1


async def test_nothing_is_made_up_where_something_could_be_found_or_nobody_knows(tmp_path: Path) -> None:
    found = {
        "red": ScriptedSource(),
        "grey": ScriptedSource(BROKEN),
        "music": ScriptedSource(),
        "full": ScriptedSource(["x"]),
    }
    audio = Caps(categories=(Category(id=3000, name="Audio"),))
    with web_place(tmp_path, **found) as place:
        async with place.served() as (service, client):
            music = service.sources.directory.by_name["music"].record.id
            await service.transaction(sources.set_caps, music, dump_caps(audio), now=service.clock.now())
            search = await place.torznab(client, "red", **SEARCH)
            partly = await place.torznab(client, "combined", **RSS)
            other = await place.torznab(client, "music", **RSS)

    assert titles(search) == []
    assert titles(partly) == ["x"]
    assert titles(other) == []


async def _only_music(_: SourceRecord, request: SearchRequest) -> SearchPage:
    song = Result(title="song", guid="song", link="http://x/song", protocol="torrent", categories=("3010",))
    return SearchPage(results=(song,) if 3010 in request.categories else ())


async def test_a_site_that_has_other_things_is_told_to_have_none_of_these(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        place.sources["red"] = _only_music  # type: ignore[assignment]  # all that is needed of a source
        async with place.served() as (_, client):
            songs = await place.torznab(client, "red", **RSS | {"cat": "3010"})
            films = await place.torznab(client, "red", **RSS | {"cat": "2000"})

    assert titles(songs) == ["song"]
    assert (films.status_code, titles(films)) == (200, [])


async def test_a_poll_that_fails_is_repeated_by_the_next_app(tmp_path: Path, socket_clock: MockClock) -> None:
    red = ScriptedSource(BROKEN, ["x"])
    with web_place(tmp_path, red=red) as place:
        async with place.served(clients={"sonarr": ClientSettings(key=Secret(SONARR), hold_s=5.0)}) as (_, client):
            first = await place.torznab(client, "red", **RSS)
            with trio.fail_after(4):
                second = await place.torznab(client, "red", **RSS)

    assert (first.status_code, second.status_code) == (503, 200)
    assert titles(second) == ["x"]
