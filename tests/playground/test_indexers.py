"""The stand-in indexers behave as sites do: they find, count, refuse, fail and hand out real files."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from actors import SystemClock
from cormorant.clients.http.transport import Answer, Transport
from cormorant.clients.torznab import TorznabClient
from cormorant.playground import open_playground
from cormorant.playground.catalogue import PlayedCatalogue
from cormorant.playground.indexer import Habits, Indexer
from cormorant.playground.world import KEY, playground_sites
from cormorant.rules.errors import PlaygroundClosed
from cormorant.rules.search.outcomes import CredentialsRefused, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.search.requests import SearchPage, SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.testing import START, in_line
from tests.environments import environment_of

CATALOGUE = PlayedCatalogue(START)


def indexer(**habits: Any) -> Indexer:
    return Indexer(name="attic", habits=Habits(**habits), catalogue=CATALOGUE, clock=SystemClock())


async def ask(site: Indexer, *requests: SearchRequest, key: str = "") -> list[SearchPage]:
    async with open_playground(site) as playground:
        url = playground.url_of("attic", "/api")
        transport = Transport(written=[url])
        client = TorznabClient(url, Secret(key), transport, environment_of(offload=in_line, clock=SystemClock()))
        return [await client.search(request) for request in requests]


async def get(site: Indexer, path: str) -> Answer:
    async with open_playground(site) as playground:
        transport = Transport(written=[playground.address])
        return await transport.get(playground.url_of("attic", path))


async def test_words_categories_and_ids_find_what_they_name() -> None:
    artist, show, film, nothing = await ask(
        indexer(),
        SearchRequest(kind="music", params={"artist": "Glass Tramway"}, categories=(3040,)),
        SearchRequest(kind="tv", params={"tvdbid": 910_004, "season": "02", "ep": 5}),
        SearchRequest(kind="movie", params={"imdbid": "tt9900004"}),
        SearchRequest(query="nothing of the kind"),
    )

    assert {result.categories for result in artist.results} == {("3040",)}
    assert all(result.title.startswith("Glass Tramway - ") for result in artist.results)
    assert {result.title.split(".WEB")[0] for result in show.results} <= {
        f"Cold.Ferry.S02E05.{quality}" for quality in ("1080p", "720p", "480p")
    }
    assert {result.attributes["imdbid"] for result in film.results} == {("tt9900004",)}
    assert nothing.results == ()


async def test_what_is_new_comes_newest_first_and_in_pages() -> None:
    first, second = await ask(indexer(), SearchRequest(limit=20), SearchRequest(limit=20, offset=20))

    dates = [result.published for page in (first, second) for result in page.results]
    assert len(dates) == 40
    assert dates == sorted(dates, reverse=True)  # type: ignore[type-var]  # every find of it has a date


def test_the_catalogue_is_the_same_every_time_and_plausible() -> None:
    releases = PlayedCatalogue(START).out(START)

    assert releases == CATALOGUE.out(START)
    assert all(50e6 < release.size_bytes < 25e9 and release.published <= START for release in releases)
    assert len({release.title for release in releases}) > 300


@pytest.mark.parametrize(("kind", "ending"), [("torznab", "torrent"), ("newznab", "nzb")])
async def test_a_download_is_a_real_file_that_its_key_opens(kind: Any, ending: str) -> None:
    site = indexer(kind=kind, key="k3y")
    async with open_playground(site) as playground:
        url = playground.url_of("attic", "/api")
        transport = Transport(written=[url])
        client = TorznabClient(url, Secret("k3y"), transport, environment_of(offload=in_line, clock=SystemClock()))
        [found, *_] = (await client.search(SearchRequest(query="cold ferry"))).results
        fetched = await client.download(found.link)
        with pytest.raises(CredentialsRefused):
            await client.download(found.link.replace("k3y", "other"))

    assert fetched.kind == ending
    assert found.link.endswith(f".{ending}?apikey=k3y")
    assert fetched.infohash == found.infohash


async def test_a_site_that_allows_so_many_a_minute_says_when_to_come_back_or_does_not() -> None:
    waits = []
    for says_retry_after in (True, False):
        site = indexer(per_minute=2, says_retry_after=says_retry_after)
        with pytest.raises(SourceLimited) as limited:
            await ask(site, *[SearchRequest(query="ferry", offset=offset) for offset in range(3)])
        waits.append(limited.value.retry_after_s)
        assert len(site.asked) == 3

    assert waits == [60.0, None]


async def test_a_limit_may_also_be_told_with_status_200() -> None:
    site = indexer(per_day=1, limit_status=200, says_retry_after=False)

    with pytest.raises(SourceLimited, match="HTTP 200, code 500, Request limit reached"):
        await ask(site, SearchRequest(query="a"), SearchRequest(query="b"))


async def test_what_was_spent_is_stated_with_the_answer() -> None:
    pages = await ask(
        indexer(per_day=200, grabs_per_day=20, states_quota=True), SearchRequest(query="a"), SearchRequest(query="b")
    )

    stated = pages[-1].limits
    assert stated is not None
    assert (stated.api_current, stated.api_max, stated.grab_max) == (2, 200, 20)


async def test_moods_are_plain_data() -> None:
    with pytest.raises(CredentialsRefused, match="code 100"):
        await ask(indexer(refuses_every_key=True), SearchRequest(query="x"), key="any")
    with pytest.raises(SourceUnavailable, match="HTTP 503"):
        await ask(indexer(fails_every=2), SearchRequest(query="x"), SearchRequest(query="y"))
    with pytest.raises(SourceRefused, match="API Disabled"):
        await ask(indexer(states_error=(200, "API Disabled")), SearchRequest(query="x"), key="any")

    began = trio.current_time()
    await ask(indexer(answers_after_s=0.05), SearchRequest(query="x"))
    assert trio.current_time() - began >= 0.05


@pytest.mark.parametrize(
    ("path", "told"),
    [("/api", b'code="200"'), ("/api?t=dance", b'code="202"'), ("/api?t=search&limit=x", b'code="201"')],
)
async def test_nonsense_is_refused_with_an_error_document(path: str, told: bytes) -> None:
    assert told in (await get(indexer(), path)).body


async def test_what_is_no_request_is_answered_and_hurts_nobody() -> None:
    async with open_playground(indexer()) as playground:
        host, port = "127.0.0.1", int(playground.address.rpartition(":")[2])
        stream = await trio.open_tcp_stream(host, port)
        await stream.send_all(b"GET /\x00 what\r\n\r\n")
        refused = await stream.receive_some()
        await stream.aclose()
        transport = Transport(written=[playground.address])
        after = await transport.get(playground.url_of("attic", "/api?t=caps"))

    assert refused.startswith(b"HTTP/1.1 400 ")
    assert after.status == 200


async def test_a_port_that_is_taken_is_told_with_the_remedy() -> None:
    async with open_playground() as playground:
        listen = playground.address.removeprefix("http://")
        with pytest.raises(PlaygroundClosed, match="something else listens there; stop that, or set playground.listen"):
            async with open_playground(listen=listen):
                pass


async def test_the_whole_town_opens_and_has_a_page_full_of_finds() -> None:
    async with open_playground(*playground_sites(SystemClock())) as playground:
        transport = Transport(written=[playground.address])
        answer = await transport.get(playground.url_of("attic", "/api"), params=[("t", "search"), ("apikey", KEY)])

    assert answer.body.count(b"<item>") == 100
