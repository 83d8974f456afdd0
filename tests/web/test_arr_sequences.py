"""What Sonarr, Radarr, Lidarr, Prowlarr and cross-seed do one after the other, against a running gate and sites on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import define

from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.sources import SourceSettings
from tests.clients.raw_server import RawServer, raw_server
from tests.services.gate.test_gate_downloads import NZB, TORRENT
from tests.web.arr_apps import NEWZNAB, App, Complaint, six_fields
from tests.web.stand_in_site import StandInSite, a_library
from tests.web.web_place import SOURCE_KEY, WebPlace, web_place

pytestmark = pytest.mark.slow("real sockets, on the real clock")

TV, FILMS, MUSIC = "5030,5040", "2000,2010,2020,2030,2040,2045,2050,2060", "3000,3010,3030,3040"


@define
class Scene:
    """A gate before a site that has something of everything."""

    place: WebPlace
    http: Any
    site: StandInSite
    server: RawServer

    def app(self, categories: str, *, at: str = "attic", key: str = "key of sonarr", **more: Any) -> App:
        return App(http=self.http, url=f"{self.place.address}/gate/{at}", key=key, categories=categories, **more)

    def asked(self, function: str) -> list[dict[str, str]]:
        """What the site was asked of a kind, without what does not differ."""
        usual = {"t", "apikey", "extended", "limit", "o"}
        params = [each.params for each in self.server.asked if each.params.get("t") == function]
        return [{name: value for name, value in each.items() if name not in usual} for each in params]


@asynccontextmanager
async def scene(
    tmp_path: Path, *, kind: str = "torznab", is_empty: bool = False, **limits: Any
) -> AsyncIterator[Scene]:
    site = StandInSite(kind, [] if is_empty else a_library())
    usual: dict[str, Any] = {"spacing_s": 0.0, "pace_s": 0.0, "key": Secret(SOURCE_KEY), "kind": kind}
    clients = {name: ClientSettings(key=Secret(f"key of {name}")) for name in ("sonarr", "radarr")}
    async with raw_server() as server:
        site.server = server
        server.routes = {"*": site.play}
        attic = SourceSettings(url=f"{server.url}/api", **usual | limits)
        with web_place(tmp_path) as place:
            async with place.served(sources={"attic": attic}, clients=clients) as (_, http):
                http.headers.pop("X-Api-Key")
                yield Scene(place, http, site, server)


async def test_sonarr_is_added_syncs_searches_and_grabs(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        sonarr = here.app(TV)
        abilities = await sonarr.test("tvsearch")
        news = await sonarr.news("tvsearch")
        by_id = await sonarr.search("tvsearch", ("tvdbid", "121361"), ("season", "2"), ("ep", "7"))
        special = await sonarr.search("tvsearch", ("tvdbid", "121361"), ("season", "00"), ("ep", "1"))
        daily = await sonarr.search("tvsearch", ("q", "Daily Show"), ("season", "2026"), ("ep", "11/16"))
        anime = await sonarr.search("search", ("q", "Some Show 008"))
        await sonarr.search("tvsearch", ("imdbid", "tt0944947"))
        grabbed = await sonarr.grab(by_id[0])

    assert {"q", "season", "ep", "tvdbid"} <= set(abilities.searching["tv-search"])
    assert abilities.categories[5040] == "TV/HD"
    assert abilities.page_size == 100
    assert [each.title for each in news] == [f"Some.Show.S02E{n:03}.1080p" for n in range(100)]
    assert [each.title for each in by_id] == ["Some.Show.S02E007.1080p"]
    assert (by_id[0].categories, by_id[0].seeders, by_id[0].size) == ((5040,), 7, 1_000_000)
    assert [each.title for each in special + daily] == ["Some.Show.S00E01.Special", "Daily.Show.2026.11.16"]
    assert [each.title for each in anime] == ["Some.Show.S02E008.1080p"]
    assert here.asked("tvsearch")[-1]["imdbid"] == "0944947"
    assert grabbed == (200, "application/x-bittorrent", TORRENT)


async def test_sonarr_pages_back_to_the_last_release_it_knows(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        sonarr = here.app(TV)
        everything = here.site.releases
        here.site.releases = [each for each in everything if each.number >= 180]  # as it was ten hours ago
        [known, *_] = await sonarr.news("tvsearch", pages_max=1)
        here.site.releases = everything
        # Other categories are asked for anew, and bring what is new of these, too.
        await here.app("5000", key="key of radarr").news("tvsearch", pages_max=1)
        latest = await sonarr.news("tvsearch", known=known.guid)
        news = await sonarr.news("tvsearch", known="one that is long gone")

    titles = [each.title for each in news]
    assert titles == [f"Some.Show.S02E{n:03}.1080p" for n in range(150)] + [
        "Some.Show.S00E01.Special",
        "Daily.Show.2026.11.16",
    ]
    assert [each.published for each in news] == sorted((each.published for each in news), reverse=True)
    assert latest == news[:100]
    assert known in latest
    assert len({each.guid for each in news}) == len(news)


async def test_radarr_searches_by_id_and_by_title(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        radarr = here.app(FILMS, at="combined", key="key of radarr")
        abilities = await radarr.test("movie")
        news = await radarr.news("movie")
        by_id = await radarr.search("movie", ("imdbid", "0000005"))
        by_title = await radarr.search("search", ("q", "Some Film 1985"))
        beyond = await radarr.search("search", ("q", "Some Film 1985"), offset=100)

    assert "imdbid" in abilities.searching["movie-search"]
    assert [each.title for each in news] == [f"Some.Film.{1980 + n}.1080p" for n in range(40)]
    assert [each.title for each in by_id + by_title] == ["Some.Film.1985.1080p"] * 2
    assert beyond == []
    assert here.asked("movie")[-1] == {"imdbid": "0000005", "cat": FILMS}
    assert "/torznab/all" not in f"{radarr.url} {by_id[0].link}"


async def test_lidarr_finds_artist_and_album_exactly_spelled_and_sends_an_empty_q(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        lidarr = here.app(MUSIC)
        abilities = await lidarr.test("music")
        album = await lidarr.search("music", ("q", ""), ("artist", "Artist"), ("album", "Album 3"))
        words = await lidarr.search("search", ("q", "Artist Album 3 FLAC"))
        news = await lidarr.news("music")

    for element in ("audio-search", "music-search"):
        assert {"q", "artist", "album"} <= set(abilities.searching[element])
    assert [each.title for each in album] == ["Artist - Album 3 FLAC"]
    assert "Artist - Album 3 FLAC" in [each.title for each in words]
    assert len(news) == 30
    assert "album=Album+3" in lidarr.asked[2]
    assert "&q=&artist=Artist" in lidarr.asked[2]


async def test_prowlarr_and_cross_seed_read_what_they_need(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        prowlarr, cross_seed = here.app("", at="attic"), here.app("", key="key of radarr")
        await prowlarr.test("search")
        await cross_seed.caps()
        answer = await cross_seed.get("search", ("q", "Some Show S02E003"))
        wrong = await here.app("", key="nobody's").get("search", ("q", "x"))

    [found] = six_fields(answer.content)
    assert found["title"] == "Some.Show.S02E003.1080p"
    assert found["size"] == 1_000_000
    assert all(found.values())
    assert (wrong.status_code, b'code="100"' in wrong.content) == (200, True)


async def test_usenet_comes_as_newznab(tmp_path: Path) -> None:
    async with scene(tmp_path, kind="newznab") as here:
        sonarr = here.app(TV, space=NEWZNAB)
        await sonarr.test("tvsearch")
        [found] = await sonarr.search("tvsearch", ("tvdbid", "121361"), ("season", "2"), ("ep", "7"))
        grabbed = await sonarr.grab(found)

    assert (found.categories, found.seeders) == ((5040,), None)
    assert grabbed == (200, "application/x-nzb", NZB)


@pytest.mark.parametrize("kind", ["torznab", "newznab"])
async def test_a_site_that_has_nothing_yet_can_be_added_and_its_placeholder_is_never_fetched(
    tmp_path: Path, kind: str
) -> None:
    async with scene(tmp_path, kind=kind, is_empty=True) as here:
        more: dict[str, Any] = {"space": NEWZNAB} if kind == "newznab" else {}
        apps = [here.app(TV, **more), here.app(FILMS, at="combined", **more), here.app(MUSIC, **more)]
        for app, function in zip(apps, ("tvsearch", "movie", "music"), strict=True):
            await app.test(function)
        [made_up] = await apps[0].search("tvsearch")
        nothing = await apps[0].search("tvsearch", ("q", "x"))
        grabbed = await apps[0].grab(made_up)
        asked = len(here.server.asked)
        here.site.releases = a_library()
        real = await here.app("5000", **more).news("tvsearch")

    assert made_up.title.startswith("Nothing is here yet")
    assert made_up.categories == (5030, 5040)
    assert nothing == []
    assert grabbed[0] == 404
    assert asked < len(here.server.asked)
    assert made_up.title not in [each.title for each in real]
    assert made_up.published < min(each.published for each in real)


async def test_what_goes_wrong_is_told_as_apps_understand_it(tmp_path: Path) -> None:
    async def complaint(app: App, function: str = "tvsearch", *specific: tuple[str, str]) -> tuple[str, int | None]:
        with pytest.raises(Complaint) as caught:
            await app.search(function, *specific)
        return str(caught.value), caught.value.retry_after_s

    async with scene(tmp_path, per_day=1, grabs_per_day=1) as here:
        sonarr = here.app(TV)
        [found] = await sonarr.search("tvsearch", ("q", "S02E007"))
        told = {
            "limit": await complaint(sonarr, "tvsearch", ("q", "more")),
            "wrong key": await complaint(here.app(TV, key="wrong")),
            "no key": await complaint(here.app(TV, key="")),
            "no such source": await complaint(here.app(TV, at="cellar")),
            "no such function": await complaint(sonarr, "register"),
            "bad category": await complaint(here.app("tv")),
            "bad id": await complaint(sonarr, "movie", ("imdbid", "x")),
        }
        grabs = [await sonarr.grab(found), await sonarr.grab(found)]
        gone = await sonarr.grab(attrs.evolve(found, link=f"{found.link}x"))
        caps = await sonarr.caps()  # the quota is used up: what any site can do

    words, retry_after_s = told.pop("limit")
    assert words == "too many requests"
    assert retry_after_s is not None
    assert 86_000 < retry_after_s <= 86_400
    assert told == {
        "wrong key": ("invalid API key: Incorrect user credentials", None),
        "no key": ("indexer requires an API key", None),
        "no such source": ("error 201: there is no source called cellar", None),
        "no such function": ("error 202: No such function (register)", None),
        "bad category": ("error 201: Incorrect parameter (cat: numbers with commas between them)", None),
        "bad id": ("error 201: Incorrect parameter (imdbid: digits, with or without tt before them)", None),
    }
    assert [status for status, *_ in (*grabs, gone)] == [200, 429, 404]
    assert caps.page_size == 100


async def test_odd_limits_offsets_and_categories_are_answered_in_the_right_form(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        sonarr = here.app(TV)

        async def count(**params: str) -> int | str:
            answer = await here.http.get(f"{sonarr.url}/api", params={"apikey": sonarr.key, "t": "tvsearch", **params})
            try:
                return len(sonarr.read(answer))
            except Complaint as complaint:
                return str(complaint)

        counts = {
            "none": await count(),
            "zero": await count(limit="0"),
            "seven": await count(limit="7"),
            "huge": await count(limit="5000"),
            "beyond": await count(offset="5000"),
            "unknown category": await count(cat="1234567"),
            "unknown and known": await count(cat="1234567,2040"),
            "search beyond": await count(q="Some", offset="5000"),
            "search, unknown category": await count(q="Some", cat="1234567"),
        }
        wrong = {
            "letters": await count(limit="many"),
            "below": await count(limit="-1"),
            "far": await count(offset="100001"),
        }

    assert counts == {
        "none": 100,
        "zero": 100,
        "seven": 7,
        "huge": 100,
        "beyond": 0,
        "unknown category": 0,
        "unknown and known": 40,
        "search beyond": 0,
        "search, unknown category": 0,
    }
    assert wrong == {
        "letters": "error 201: Incorrect parameter (limit: a number from 0 to 1000000000)",
        "below": "error 201: Incorrect parameter (limit: a number from 0 to 1000000000)",
        "far": "error 201: Incorrect parameter (offset: a number from 0 to 100000)",
    }
