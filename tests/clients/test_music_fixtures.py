"""Replies of Spotify and slskd as other projects recorded or documented them, and what each of them must yield."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from cormorant.clients.slskd_replies import newest, read_responses, read_transfers
from cormorant.clients.spotify import (
    SpotifyClient,
    SpotifyOptions,
    read_albums,
    read_artist,
    read_items,
    read_next,
    read_tracks,
)
from cormorant.playground.http import StandInRequest, as_json
from cormorant.playground.slskd import SlskdStandIn
from cormorant.rules.search.outcomes import CredentialsRefused, SourceError, SourceLimited
from cormorant.rules.secrets import Secret
from cormorant.rules.watch.handovers import ParcelState
from cormorant.rules.watch.releases import distinct_releases, is_by
from cormorant.rules.watch.soulseek import PeerQuery, rank_albums
from cormorant.testing import SimulatedClock, in_line
from tests.clients.mounted import always, mounted
from tests.environments import environment_of

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
SPOTIFY = FIXTURES / "spotify"
JAVA = SPOTIFY / "spotify-web-api-java__spotify-web-api-java"
SLSKD = FIXTURES / "slskd"

pytestmark = pytest.mark.skipif(
    not SPOTIFY.exists() or not SLSKD.exists(), reason=f"the folder {FIXTURES} with recorded replies is not here"
)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def pages() -> list[Any]:
    """The pages that the facts name, with the number of items and the next address that each must have."""
    if not SPOTIFY.exists():
        # Skipped below, with the reason.
        return [pytest.param("", "", {}, id="none")]
    return [
        pytest.param(name, where, page, id=f"{Path(name).stem}{where}")
        for name, fact in read(SPOTIFY / "facts.json").items()
        for where, page in fact.get("paging", {}).items()
    ]


@pytest.mark.parametrize(("name", "where", "facts"), pages())
def test_every_page_has_its_items_and_its_next(name: str, where: str, facts: dict[str, Any]) -> None:
    page = read(FIXTURES / name)
    for part in filter(None, where.split(".")):
        page = page[part]

    # Spotify really sends null for what it may not show.
    assert len(read_items(page)) == facts["items"] - page["items"].count(None)
    assert read_next(page) == facts["next"]


def test_albums_of_an_artist_are_read() -> None:
    albums = read_albums(read_items(read(JAVA / "data__artists__GetArtistsAlbumsRequest.json")))

    first, second = albums
    assert (first.title, first.kind, first.group) == ("Heaven (David Guetta & MORTEN Remix)", "single", "single")
    assert (str(first.released), first.tracks_total) == ("2019-08-23", 2)
    assert second.id != first.id
    assert all(is_by("1vCWHaC5f2uS3yhpwWbIA6", album) for album in albums)
    assert len(distinct_releases([*albums, *albums])) == 2


def test_tracks_and_artists_are_read() -> None:
    tracks = read_tracks(read_items(read(JAVA / "data__albums__GetAlbumsTracksRequest.json")))
    artist = read_artist(read(JAVA / "data__artists__GetArtistRequest.json"))

    assert len(tracks) == 2
    assert tracks[0].number == 1
    assert artist.id
    assert artist.name


@pytest.mark.parametrize(
    ("name", "kind", "wait_s"),
    [
        ("thelinmichael__spotify-web-api-node/error_429_http.json", SourceLimited, 5.0),
        ("developer.spotify.com/error_429_quota_http.json", SourceLimited, None),
        (
            "spotify-web-api-java__spotify-web-api-java/authorization__auth-invalid-client.json",
            CredentialsRefused,
            None,
        ),
    ],
)
async def test_errors_are_understood(name: str, kind: type[SourceError], wait_s: float | None) -> None:
    found = read(SPOTIFY / name)
    answer = as_json(found.get("body", found), status=found.get("status", 400), headers=found.get("headers"))

    async with mounted(always(answer)) as server:
        options = SpotifyOptions(api_url=server.url, token_url=f"{server.url}/api/token")
        client = SpotifyClient(
            "x",
            Secret("xxxx"),
            server.transport,
            environment_of(offload=in_line, clock=SimulatedClock()),
            options=options,
        )
        with pytest.raises(kind) as caught:
            await client.artist("one")

    assert caught.value.retry_after_s == wait_s
    assert ("QUOTA_EXCEEDED" in str(caught.value)) is ("quota" in name)


def test_answers_of_peers_are_read_and_ranked() -> None:
    responses = read_responses(read(SLSKD / "GeoffreyCoulaud__slskd-lidarr-bridge" / "search_responses_payload.json"))

    ranking = rank_albums(responses, PeerQuery(artist="Artist", title="Album", tracks_total=2))

    assert [len(response.files) for response in responses] == [2, 3]
    assert [(one.username, one.format, one.size_bytes) for one in ranking] == [
        ("peer1", "flac", 55_000_000),
        ("peer2", "mp3", 15_500_000),
    ]


def test_transfers_are_read_with_their_states() -> None:
    transfers = read_transfers(read(SLSKD / "GeoffreyCoulaud__slskd-lidarr-bridge" / "transfers_payload.json"))

    assert [one.standing for one in newest(transfers).values()] == [
        ParcelState.DONE,
        ParcelState.RUNNING,
        ParcelState.FAILED,
    ]
    assert transfers[2].why == "Connection timed out"


async def test_what_the_stand_in_shows_of_a_transfer_is_what_slskd_shows() -> None:
    schemas = read(SLSKD / "abl030__slskd-mcp" / "openapi.json")["components"]["schemas"]
    slskd = SlskdStandIn(now_s=lambda: 9.0, lag_s=0.0)
    asking = StandInRequest(
        path="/api/v0/transfers/downloads/peer",
        headers={"x-api-key": slskd.key, "content-type": "application/json"},
        body=json.dumps([{"filename": "a\\b.flac", "size": 1}]).encode(),
    )
    await slskd.answer(evolve(asking, method="POST"))

    listed = await slskd.answer(asking)

    [shown] = json.loads(listed.body)["directories"][0]["files"]
    # The captured document is of an older release: batches and the time of the request came later.
    assert set(shown) - set(schemas["Transfer"]["properties"]) <= {"batchId", "requestedAt"}
