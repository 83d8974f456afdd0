"""The gate as apps use it: what they may ask, what they get, what they are told when they have to wait."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from lxml import etree
from trio.testing import MockClock

from cormorant.rules.search.caps import dump_caps
from cormorant.rules.search.outcomes import CredentialsRefused
from cormorant.rules.search.requests import Caps
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.testing import BROKEN, ScriptedSource, busy, named_sources
from storage.search import history, sources
from tests.web.web_place import KEY, SONARR, SOURCE_KEY, web_place

pytestmark = pytest.mark.slow("real sockets")

SEARCH = {"t": "tvsearch", "cat": "5030,5040", "extended": "1", "offset": "0", "limit": "100", "q": "some show"}
RSS = {name: value for name, value in SEARCH.items() if name != "q"}


def xml(answer: httpx2.Response) -> etree._Element:
    return etree.fromstring(answer.content)


def titles(answer: httpx2.Response) -> list[str]:
    return [str(item.findtext("title")) for item in xml(answer).iter("item")]


def error_of(answer: httpx2.Response) -> tuple[int, str, str]:
    root = xml(answer)
    assert root.tag == "error"
    return answer.status_code, str(root.attrib["code"]), str(root.attrib["description"])


async def test_a_search_is_answered_with_all_that_apps_read(tmp_path: Path) -> None:
    red = ScriptedSource(["Some Show S01", "Other & <Show>"])
    with web_place(tmp_path, red=red) as place:
        async with place.served() as (_, client):
            answer = await place.torznab(client, "red", **SEARCH)
            again = await place.torznab(client, "red", **SEARCH)

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/rss+xml")
    assert titles(answer) == ["Some Show S01", "Other & <Show>"]
    for item in xml(answer).iter("item"):
        texts: Any = {name: item.findtext(name) for name in ("title", "guid", "link", "pubDate", "size")}
        assert all(texts.values())
        assert parsedate_to_datetime(texts["pubDate"]).tzinfo is not None
        enclosure = item.find("enclosure")
        assert enclosure is not None
        assert enclosure.get("type") == "application/x-bittorrent"
        assert (enclosure.get("url") or "").startswith(f"{place.address}/gate/red/download/sonarr.")
    assert answer.content == again.content
    assert len(red.requests) == 1


@pytest.mark.parametrize(
    ("params", "kind", "query", "sent"),
    [
        ({"t": "tvsearch", "tvdbid": "121361", "season": "00", "ep": "1"}, "tv", "", {"tvdbid": "121361", "season": "00", "ep": "1"}),
        ({"t": "tvsearch", "q": "x", "season": "2026", "ep": "11/16"}, "tv", "x", {"season": "2026", "ep": "11/16"}),
        ({"t": "tvsearch", "imdbid": "tt0944947"}, "tv", "", {"imdbid": "0944947"}),
        ({"t": "movie", "imdbid": "0944947"}, "movie", "", {"imdbid": "0944947"}),
        ({"t": "music", "q": "", "artist": "A", "album": "B"}, "music", "", {"artist": "A", "album": "B"}),
        ({"t": "book", "author": "A", "title": "B"}, "book", "", {"author": "A", "title": "B"}),
        ({"t": "search", "q": "Title 1999"}, "search", "Title 1999", {}),
    ],
)  # fmt: skip
async def test_the_site_is_asked_what_the_app_asked(
    tmp_path: Path, params: dict[str, str], kind: str, query: str, sent: dict[str, str]
) -> None:
    red = ScriptedSource(["x"])
    with web_place(tmp_path, red=red) as place:
        async with place.served() as (_, client):
            await place.torznab(client, "red", cat="5030,100001", offset="0", limit="50", extended="1", **params)

    (asked,) = red.requests
    assert (asked.kind, asked.query, dict(asked.params)) == (kind, query, sent)
    assert (asked.categories, asked.offset, asked.limit) == ((5030, 100001), 0, 50)


@pytest.mark.parametrize(
    ("key", "params", "expected"),
    [
        ("", {"t": "caps"}, (200, "200", "Missing parameter (apikey)")),
        ("wrong", {"t": "caps"}, (200, "100", "Incorrect user credentials")),
        (KEY, {"t": "caps"}, (200, "100", "Incorrect user credentials")),
        (SONARR, {}, (200, "200", "Missing parameter (t)")),
        (SONARR, {"t": "register"}, (200, "202", "No such function (register)")),
        (SONARR, {"t": "search", "cat": "tv"}, (200, "201", "Incorrect parameter (cat: numbers with commas between them)")),
        (SONARR, {"t": "search", "offset": "-1"}, (200, "201", "Incorrect parameter (offset: a number from 0 to 100000)")),
        (SONARR, {"t": "movie", "imdbid": "x"}, (200, "201", "Incorrect parameter (imdbid: digits, with or without tt before them)")),
    ],
)  # fmt: skip
async def test_what_a_person_has_to_mend_is_a_document_that_apps_read(
    tmp_path: Path, key: str, params: dict[str, str], expected: tuple[int, str, str]
) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served() as (_, client):
            answer = await place.torznab(client, "red", **{"apikey": key} | params)

    assert error_of(answer) == expected


async def test_an_unknown_source_is_told_and_no_other_is_named(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served() as (_, client):
            answer = await place.torznab(client, "blue", **SEARCH)

    assert error_of(answer) == (200, "201", "there is no source called blue")


async def test_sources_that_speak_no_torznab_are_not_there_for_apps(tmp_path: Path) -> None:
    spotify = SourceSettings(kind="spotify", id="app", key=Secret(SOURCE_KEY))
    others = {"songs": spotify, "peers": SourceSettings(kind="slskd", url="http://slskd.test", key=Secret(SOURCE_KEY))}
    red, songs, peers = ScriptedSource(["x"]), ScriptedSource(["y"]), ScriptedSource(["z"])
    with web_place(tmp_path, red=red, songs=songs, peers=peers) as place:
        async with place.served(sources={**named_sources("red", spacing_s=0.0, pace_s=0.0), **others}) as (
            service,
            client,
        ):
            refused = [await place.torznab(client, name, **SEARCH) for name in ("songs", "peers")]
            caps = await place.torznab(client, "songs", t="caps")
            together = await place.torznab(client, "combined", **SEARCH)
            taken = await client.get("/gate/peers/download/sonarr.a.b")
            found = await (await service.search("x")).wait()

    assert [error_of(answer)[1:] for answer in refused] == [
        ("201", "there is no source called songs"),
        ("201", "there is no source called peers"),
    ]
    assert error_of(caps)[1] == "201"
    assert error_of(taken)[:2] == (404, "300")
    assert titles(together) == ["x"]
    assert list(found.coverage) == ["red"]
    assert songs.asked_at == peers.asked_at == []


async def test_a_search_that_would_wait_too_long_is_told_when_to_come_back(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    red, hasty = ScriptedSource(["x"]), {"sonarr": ClientSettings(key=Secret(SONARR), hold_s=20.0)}
    with web_place(tmp_path, red=red) as place:
        async with place.served({"spacing_s": 30.0}, clients=hasty) as (_, client):
            first = await place.torznab(client, "red", **SEARCH | {"q": "one"})
            second = await place.torznab(client, "red", **SEARCH | {"q": "two"})

    assert first.status_code == 200
    assert error_of(second) == (429, "500", "Request limit reached")
    assert 28 <= int(second.headers["retry-after"]) <= 30
    assert len(red.requests) == 1


async def test_a_search_is_held_until_its_turn_comes(tmp_path: Path, socket_clock: MockClock) -> None:
    red = ScriptedSource(["x"])
    with web_place(tmp_path, red=red) as place:
        async with place.served({"spacing_s": 30.0}) as (_, client):
            await place.torznab(client, "red", **SEARCH | {"q": "one"})
            held = await place.torznab(client, "red", **SEARCH | {"q": "two"})

    assert held.status_code == 200
    assert red.asked_at[1] - red.asked_at[0] == pytest.approx(30.0)


async def test_a_site_that_limits_us_and_one_that_is_paused_close_for_the_app_too(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    with web_place(tmp_path, red=ScriptedSource(busy(retry_after_s=120)), blue=ScriptedSource(["x"])) as place:
        async with place.served(clients={"sonarr": ClientSettings(key=Secret(SONARR), hold_s=20.0)}) as (
            service,
            client,
        ):
            limited = await place.torznab(client, "red", **SEARCH)
            await service.pause_source("blue")
            paused = await place.torznab(client, "blue", **SEARCH)

    assert error_of(limited) == (429, "500", "Request limit reached")
    assert 118 <= int(limited.headers["retry-after"]) <= 120
    assert error_of(paused) == (429, "500", "Request limit reached")
    assert int(paused.headers["retry-after"]) == 300


@pytest.mark.parametrize("trouble", [BROKEN, CredentialsRefused(f"the key {SOURCE_KEY} is dead")])
async def test_a_site_in_trouble_is_no_limit_and_no_fault_of_the_apps_key(tmp_path: Path, trouble: Exception) -> None:
    with web_place(tmp_path, red=ScriptedSource(trouble)) as place:
        async with place.served() as (_, client):
            status, code, words = error_of(await place.torznab(client, "red", **SEARCH))

    assert (status, code) == (503, "900")
    assert words.startswith("red: ")
    assert SOURCE_KEY not in words


async def test_caps_are_what_the_site_said_or_what_any_site_can(tmp_path: Path) -> None:
    stated = Caps(page_size=50, searching={"search": frozenset({"q"}), "music": frozenset({"q", "artist", "album"})})
    with web_place(tmp_path, red=ScriptedSource(), blue=ScriptedSource()) as place:
        async with place.served() as (service, client):
            usual = xml(await place.torznab(client, "red", t="caps"))
            red_id = service.sources.directory.by_name["red"].record.id
            await service.transaction(sources.set_caps, red_id, dump_caps(stated), now=service.clock.now())
            own = xml(await place.torznab(client, "red", t="caps"))
            both = xml(await place.torznab(client, "combined", t="caps"))

    assert [caps.tag for caps in (usual, own, both)] == ["caps"] * 3
    assert usual.xpath("string(//tv-search/@supportedParams)") == "q,season,ep"
    assert usual.xpath("string(//category[@id='5000']/subcat[@id='5040']/@name)") == "TV/HD"
    assert own.xpath("string(//audio-search/@supportedParams)") == "q,artist,album"
    assert own.xpath("string(//tv-search/@available)") == "no"
    assert (own.xpath("string(//limits/@default)"), own.xpath("string(//limits/@max)")) == ("50", "50")
    assert both.xpath("string(//tv-search/@available)") == "yes"
    assert both.xpath("string(//audio-search/@supportedParams)") == "q"


async def test_all_sources_together_answer_with_what_there_is(tmp_path: Path) -> None:
    found = {"red": ScriptedSource(["a", "b"]), "blue": ScriptedSource(["c"]), "grey": ScriptedSource(BROKEN)}
    with web_place(tmp_path, **found) as place:
        async with place.served() as (_, client):
            whole = await place.torznab(client, "combined", **SEARCH)
            part = await place.torznab(client, "combined", **SEARCH | {"offset": "2", "limit": "2"})
            beyond = await place.torznab(client, "combined", **SEARCH | {"offset": "50"})

    assert sorted(titles(whole)) == ["a", "b", "c"]
    assert len(titles(part)) == 1
    assert titles(beyond) == []
    assert xml(beyond).xpath("string(//*[local-name()='response']/@total)") == "3"
    assert "/torznab/all" not in whole.text


async def test_five_apps_that_ask_for_what_is_new_at_once_are_one_request(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    red = ScriptedSource(["new"], takes_s=0.1)
    names = [f"app{number}" for number in range(5)]
    apps = {name: ClientSettings(key=Secret(f"key of {name}")) for name in names}
    answers: list[httpx2.Response] = []

    with web_place(tmp_path, red=red) as place:
        async with place.served({"pace_s": 60.0}, clients=apps) as (_, client):

            async def poll(number: int) -> None:
                cat = ("5030,5040", "2000", "3000", "3010", "7000")[number]
                answers.append(await place.torznab(client, "red", apikey=f"key of app{number}", **RSS | {"cat": cat}))

            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(poll, number)
            later = await place.torznab(client, "red", apikey="key of app0", **RSS)

    assert [titles(answer) for answer in [*answers, later]] == [["new"]] * 6
    assert [request.categories for request in red.requests] == [(2000, 3000, 3010, 5030, 5040, 7000)]
    assert red.requests[0].is_rss


async def test_what_is_new_is_paged_from_one_page_and_ends(tmp_path: Path) -> None:
    red = ScriptedSource([f"new {number}" for number in range(100)])
    with web_place(tmp_path, red=red) as place:
        async with place.served() as (_, client):
            pages = [await place.torznab(client, "red", **RSS | {"offset": str(offset)}) for offset in (0, 100)]

    assert [len(titles(page)) for page in pages] == [100, 0]
    assert len(red.requests) == 1


async def test_a_page_of_a_search_is_asked_of_the_site(tmp_path: Path) -> None:
    red = ScriptedSource(["x"])
    with web_place(tmp_path, red=red) as place:
        async with place.served() as (_, client):
            answer = await place.torznab(client, "red", **SEARCH | {"offset": "100"})

    assert [request.offset for request in red.requests] == [100]
    assert xml(answer).xpath("string(//*[local-name()='response']/@offset)") == "100"


async def test_what_was_asked_is_put_down_to_the_app(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(["x"])) as place:
        async with place.served() as (service, client):
            await place.torznab(client, "red", **SEARCH)
            asked = await service.transaction(history.recent)

    assert [(each.source, each.consumer, each.query) for each in asked] == [("red", "sonarr", "some show")]


async def test_a_held_search_does_not_hold_up_the_stop(tmp_path: Path, socket_clock: MockClock) -> None:
    answers: list[httpx2.Response] = []
    with web_place(tmp_path, red=ScriptedSource(["x"])) as place:
        service = place.service({"spacing_s": 50.0})
        async with trio.open_nursery() as nursery, service:
            client = await nursery.start(_asking, place, answers)
            await place.torznab(client, "red", **SEARCH)
            nursery.start_soon(_hold, place, client, answers)
            await trio.sleep(0.3)

    assert [error_of(answer)[:2] for answer in answers] == [(503, "900")]
    assert service.report is not None
    assert service.report.clean
    assert service.report.took_s < 2.5


async def _asking(
    place: Any, answers: list[httpx2.Response], *, task_status: trio.TaskStatus[httpx2.AsyncClient]
) -> None:
    async with place.client() as client:
        task_status.started(client)
        while not answers:
            await trio.sleep(0.05)


async def _hold(place: Any, client: httpx2.AsyncClient, answers: list[httpx2.Response]) -> None:
    answers.append(await place.torznab(client, "red", **SEARCH | {"q": "held"}))


async def test_an_app_uses_no_more_than_its_share_and_what_is_kept_is_for_all(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    red = ScriptedSource(["x"])
    apps = {
        "greedy": ClientSettings(key=Secret("key of greedy"), share=0.25, hold_s=20.0),
        "sonarr": ClientSettings(key=Secret(SONARR), hold_s=20.0),
    }
    with web_place(tmp_path, red=red) as place:
        async with place.served({"per_day": 8}, clients=apps) as (_, client):

            async def greedy(query: str) -> httpx2.Response:
                return await place.torznab(client, "red", apikey="key of greedy", **SEARCH | {"q": query})

            answers = [await greedy(query) for query in ("one", "two", "three", "two")]
            feed = await place.torznab(client, "red", apikey="key of greedy", **RSS)
            other = [
                await place.torznab(client, "red", **SEARCH | {"q": "three"}),
                await place.torznab(client, "red", **RSS),
            ]
            kept = [await greedy("three"), await place.torznab(client, "red", apikey="key of greedy", **RSS)]

    assert [answer.status_code for answer in answers] == [200, 200, 429, 200]
    assert 86_390 <= int(answers[2].headers["retry-after"]) <= 86_400
    assert feed.status_code == 429
    assert [answer.status_code for answer in other + kept] == [200] * 4
    assert len(red.requests) == 4


async def test_nothing_is_asked_for_an_app_that_has_hung_up(tmp_path: Path, socket_clock: MockClock) -> None:
    red = ScriptedSource(["x"])
    with web_place(tmp_path, red=red) as place:
        async with place.served({"spacing_s": 30.0}) as (service, client):
            await place.torznab(client, "red", **SEARCH | {"q": "one"})
            async with place.client() as hasty, trio.open_nursery() as nursery:
                nursery.start_soon(partial(place.torznab, hasty, "red", **SEARCH | {"q": "two"}))
                await trio.sleep(10)
                waited = service.sources.directory.by_name["red"].snapshot.waiting
                nursery.cancel_scope.cancel()
            await trio.sleep(60)
            after = await place.torznab(client, "red", **SEARCH | {"q": "three"})

    assert waited == 1
    assert [request.query for request in red.requests] == ["one", "three"]
    assert after.status_code == 200
