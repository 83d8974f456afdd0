"""The Spotify client against a stand-in on loopback: pages, tokens, limits, and what it says of every refusal."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
from trio.testing import MockClock

from cormorant.clients.spotify import SpotifyClient, SpotifyOptions, all_pages, read_tracks
from cormorant.playground.http import StandInRequest, StandInResponse, as_json, as_text
from cormorant.playground.spotify import (
    PlayedAlbum,
    PlayedArtist,
    failed,
)
from cormorant.rules.json_documents import Json
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.secrets import Secret
from cormorant.rules.watch.releases import OWN_GROUPS, Album, CatalogueArtist, Group
from cormorant.testing import SimulatedClock, in_line
from tests.bounds import WAIT_S
from tests.clients.mounted import Answer, Mounted, mounted
from tests.environments import environment_of
from tests.stand_ins.spotify import TroubledSpotify, busy_artist, limited, out_of_quota

SECRET = "playground-secret"  # noqa: S105 - the stand-in's own, no secret
ALBUMS = (
    PlayedAlbum(id="a1", name="Kid A", date="2000-10-02", tracks=("Everything", "Idioteque")),
    PlayedAlbum(id="a2", name="Old", date="1981"),
    PlayedAlbum(id="a3", name="Older", date="1980-12"),
    PlayedAlbum(id="a4", name="Of others", date="2020-01-01", group="appears_on", artist=("x", "Others")),
    PlayedAlbum(id="a5", name="Single", date="2021-01-01", kind="single", group="single"),
    PlayedAlbum(id="a6", name="Best of", date="2022-01-01", kind="compilation", group="compilation"),
    PlayedAlbum(id="a7", name="Last", date="2023-01-01"),
)
ARTIST = PlayedArtist(id="one", name="Röyksopp", albums=ALBUMS)


def stand_in(*artists: PlayedArtist, **more: Any) -> TroubledSpotify:
    known = {artist.id: artist for artist in artists or (ARTIST,)}
    return TroubledSpotify(artists=known, **more)


@asynccontextmanager
async def client_of(
    spotify: TroubledSpotify, *, secret: str = SECRET, answer: Answer | None = None, **options: Any
) -> AsyncIterator[SpotifyClient]:
    async with mounted(answer or spotify.answer) as server:
        where = SpotifyOptions(api_url=f"{server.url}/v1", token_url=f"{server.url}/api/token", **options)
        yield client_at(server, secret, where)


def client_at(server: Mounted, secret: str, options: SpotifyOptions) -> SpotifyClient:
    return SpotifyClient(
        "playground",
        Secret(secret),
        server.transport,
        environment_of(offload=in_line, clock=SimulatedClock()),
        options=options,
    )


async def albums_of(client: SpotifyClient, artist_id: str, *groups: Group) -> list[Album]:
    """All albums of an artist, page by page."""
    albums: list[Album] = []
    following: str | None = None
    while True:
        page = await client.albums_page(artist_id, after=following, groups=groups or OWN_GROUPS)
        albums += page.albums
        following = page.next
        if following is None:
            return albums


async def test_albums_come_page_by_page_with_dates_of_every_precision() -> None:
    spotify = stand_in(page_size=2)
    async with client_of(spotify) as client:
        albums = await albums_of(client, "one")

    assert [album.id for album in albums] == ["a1", "a2", "a3", "a5", "a6", "a7"]
    assert [str(album.released) for album in albums[:3]] == ["2000-10-02", "1981", "1980-12"]
    assert albums[0].tracks_total == 2
    assert albums[3].kind == "single"
    pages = [each.line for each in spotify.asked if "/albums" in each.line]
    assert len(pages) == 3
    assert all("include_groups=album%2Csingle%2Ccompilation" in page for page in pages)


async def test_albums_of_others_come_when_they_are_asked_for() -> None:
    async with client_of(stand_in()) as client:
        albums = await albums_of(client, "one", "appears_on")

    assert [album.title for album in albums] == ["Of others"]


async def test_artists_and_tracks_are_found() -> None:
    async with client_of(stand_in()) as client:
        artist = await client.artist("one")
        by_name = await client.find_artist("röyksopp")
        nobody = await client.find_artist("R")
        items, following = await client.page(client.tracks_url("a1"), asked="tracks")

    assert artist == by_name == CatalogueArtist(id="one", name="Röyksopp")
    assert nobody is None
    assert following is None
    assert [(track.number, track.title) for track in read_tracks(items)] == [(1, "Everything"), (2, "Idioteque")]


async def test_a_list_that_was_cut_by_a_limit_goes_on_where_it_stopped() -> None:
    spotify = stand_in(page_size=2)
    async with client_of(spotify) as client:
        first = await client.albums_page("one")
        spotify.troubles.append(limited())
        with pytest.raises(SourceLimited):
            await client.albums_page("one", after=first.next)
        second = await client.albums_page("one", after=first.next)
        third = await client.albums_page("one", after=second.next)
        with pytest.raises(SourceRefused, match="another address"):
            await client.albums_page("one", after="https://evil.example/v1/artists/one/albums")

    pages = [first, second, third]
    assert [album.id for page in pages for album in page.albums] == ["a1", "a2", "a3", "a5", "a6", "a7"]
    assert third.next is None


@pytest.mark.slow("asks for 300 pages")
async def test_three_thousand_albums_are_all_found() -> None:
    spotify = stand_in(busy_artist("busy", "Busy", 3_000), page_size=10)
    async with client_of(spotify) as client:
        albums = await albums_of(client, "busy")

    assert len({album.id for album in albums}) == 3_000
    assert albums[-1].released is not None
    assert albums[-1].released.latest == date(1700, 1, 31)
    assert len([asked for asked in spotify.asked if "/albums" in asked.path]) == 300
    assert spotify.tokens_given == 1


@pytest.mark.parametrize(
    ("limits", "following", "message"),
    [
        ({"pages_max": 5}, "{url}?n={n}", "does not end; it was left after 5 pages"),
        ({"items_max": 3}, "{url}?n={n}", "does not end; it was left after 3 pages"),
        ({}, "{url}", "does not end; it was left after 1 pages"),
    ],
    ids=["pages", "items", "a circle"],
)
async def test_a_list_that_does_not_end_is_left(limits: Any, following: str, message: str) -> None:
    spotify = stand_in()
    answers = 0

    async def endless(asked: StandInRequest) -> StandInResponse:
        nonlocal answers
        if asked.path == "/api/token":
            return await spotify.answer(asked)
        answers += 1
        url = f"{asked.base}{asked.path}"
        # A circle: the page says that it is followed by itself.
        shown = following.format(url=f"{url}?{urlencode(asked.params)}" if following == "{url}" else url, n=answers)
        item = {"id": str(answers), "name": "x", "album_group": "album", "album_type": "album"}
        return as_json({"items": [item], "next": shown})

    async with client_of(spotify, answer=endless) as client:

        async def ask(following: str | None) -> tuple[list[Json], str | None]:
            return await client.page(following or client.tracks_url("a1"), asked="tracks")

        with pytest.raises(SourceUnavailable, match=message):
            await all_pages(ask, about="tracks", **limits)


@pytest.mark.parametrize(
    "following",
    ["http://evil.example/v1/x", "https://127.0.0.1/v1/x", "http://127.0.0.1:1/v1/x", "//evil.example/x", "file:///x"],
)
async def test_the_token_is_not_taken_to_another_address(following: str) -> None:
    spotify = stand_in()
    spotify.troubles.append(as_json({"items": [], "next": following}))
    async with client_of(spotify) as client:
        with pytest.raises(SourceRefused, match="next page at another address"):
            await albums_of(client, "one")

    assert len(spotify.asked) == 2


async def test_a_token_is_asked_for_once_however_many_want_it() -> None:
    spotify = stand_in()
    async with client_of(spotify) as client, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(client.artist, "one")

    assert spotify.tokens_given == 1


async def test_a_token_that_is_no_longer_accepted_is_renewed_once() -> None:
    spotify = stand_in()
    async with client_of(spotify) as client:
        await client.artist("one")
        spotify.tokens.clear()
        artist = await client.artist("one")

    assert artist.name == "Röyksopp"
    assert spotify.tokens_given == 2


async def test_a_new_token_that_is_not_accepted_either_stops_it() -> None:
    spotify = stand_in()

    async def strict(asked: StandInRequest) -> StandInResponse:
        answer = await spotify.answer(asked)
        return answer if asked.path == "/api/token" else failed(401, f"Bad {asked.headers['authorization']}")

    async with client_of(spotify, answer=strict) as client:
        with pytest.raises(CredentialsRefused) as caught:
            await client.artist("one")

    assert len(spotify.asked) == 4
    assert "token-2" not in str(caught.value)


async def test_a_wrong_secret_is_tried_once_for_all_who_wait() -> None:
    spotify = stand_in()
    errors: list[SourceError] = []

    async def try_it(client: SpotifyClient) -> None:
        with pytest.raises(CredentialsRefused, match="client id and secret") as caught:
            await client.artist("one")
        errors.append(caught.value)

    async with client_of(spotify, secret=SECRET[::-1]) as client, trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(try_it, client)

    assert [each.line for each in spotify.asked] == ["POST /api/token"]
    assert len({id(error) for error in errors}) == 4
    assert SECRET[::-1] not in "".join(map(str, errors))


@pytest.mark.parametrize(
    ("trouble", "kind", "message", "wait_s"),
    [
        (limited(), SourceLimited, "wants to be asked less", 86_400.0),
        (limited(None), SourceLimited, "wants to be asked less", None),
        (out_of_quota(), SourceLimited, "quota of the developer account.*QUOTA_EXCEEDED", None),
        (failed(403, "Not in your country"), SourceRefused, "refused to give artist one .HTTP 403, Not in your", None),
        (failed(404, "Resource not found"), SourceRefused, "does not know artist one", None),
        (failed(502, "Bad gateway"), SourceUnavailable, "cannot serve us now .HTTP 502, Bad gateway", None),
        (StandInResponse(status=503, headers={"Retry-After": "7"}, body=b"<html>"), SourceUnavailable, "HTTP 503", 7.0),
        (as_text("<html>"), SourceUnavailable, "no JSON", None),
        (as_json([]), SourceUnavailable, "another kind of JSON", None),
        (as_text("[" * 100_000), SourceUnavailable, "no JSON", None),
        (as_json({}), SourceUnavailable, "without saying who", None),
        (StandInResponse(status=302, headers={"Location": "http://evil.example"}), SourceRefused, "redirects", None),
    ],
)
async def test_every_refusal_says_what_it_means(
    trouble: StandInResponse, kind: type[SourceError], message: str, wait_s: float | None
) -> None:
    spotify = stand_in()
    spotify.troubles.append(trouble)
    async with client_of(spotify) as client:
        with trio.fail_after(WAIT_S), pytest.raises(kind, match=message) as caught:
            await client.artist("one")

    assert type(caught.value) is kind
    assert caught.value.retry_after_s == wait_s
    assert len(spotify.asked) == 2


@pytest.mark.parametrize("artist_id", ["", "../me", "a b", "é", "x" * 65])
async def test_what_is_no_id_is_not_asked_for(artist_id: str) -> None:
    spotify = stand_in()
    async with client_of(spotify) as client:
        with pytest.raises(SourceRefused, match="no id of Spotify"):
            await albums_of(client, artist_id)

    assert spotify.asked == []


async def test_a_page_without_items_is_no_empty_list() -> None:
    spotify = stand_in()
    spotify.troubles.append(as_json({"next": None}))
    async with client_of(spotify) as client:
        with pytest.raises(SourceUnavailable, match="no items"):
            await albums_of(client, "one")


async def test_a_spotify_that_does_not_answer_has_its_time(mock_clock: MockClock) -> None:
    spotify = stand_in()
    async with mounted(spotify.answer) as server:
        server.cuts["/v1/artists/one"] = "silent"
        server.on_silence = partial(mock_clock.jump, 10)
        where = SpotifyOptions(api_url=f"{server.url}/v1", token_url=f"{server.url}/api/token", timeout_s=10)
        with pytest.raises(SourceUnavailable, match="within 10 s"):
            await client_at(server, SECRET, where).artist("one")


async def test_what_is_no_address_is_told() -> None:
    async with mounted(stand_in().answer) as server:
        with pytest.raises(SourceRefused, match="no address"):
            await client_at(server, SECRET, SpotifyOptions(token_url="http://[::1")).artist("one")  # noqa: S106 - an address


async def test_nothing_of_the_secret_is_seen_when_nobody_listens() -> None:
    spotify = stand_in()
    async with mounted(spotify.answer) as server:
        where = SpotifyOptions(api_url=f"{server.url}/v1", token_url="http://127.0.0.1:1/api/token")  # noqa: S106 - an address
        with pytest.raises(SourceError) as caught:
            await client_at(server, SECRET, where).artist("one")

    assert SECRET not in "".join(traceback.format_exception(caught.value))
