"""What comes out in the playground is the same for the same moment, and every kind of source lacks some of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import trio
from attrs import define

from cormorant.playground.catalogue import PlayedCatalogue
from cormorant.playground.http import ASKED_MAX, StandInRequest
from cormorant.playground.releases import SOON, TRACKS, WATCHED, GrowingArtists, peers_with, releases_since
from cormorant.playground.slskd import SlskdStandIn
from cormorant.playground.spotify import SpotifyStandIn

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@define
class Clock:
    at: datetime = NOON

    def now(self) -> datetime:
        return self.at

    def stopwatch(self) -> float:
        return 0.0


def test_a_catalogue_grows_while_one_looks_and_keeps_what_was_made_before() -> None:
    clock, news, catalogue = Clock(), releases_since(NOON), PlayedCatalogue(NOON)
    artists = GrowingArtists(news, catalogue, clock)
    third = list(WATCHED)[2]

    before = artists[third].albums
    clock.at = NOON + SOON
    after = artists[third].albums

    assert {album.name for album in before} == {title for title, _ in catalogue.albums_of(WATCHED[third])}
    assert [(album.name, album.date) for album in after[:1]] == [(news[2].title, "2026-01-01")]
    assert after[1:] == before
    assert dict.fromkeys(artists) == dict.fromkeys(WATCHED)


def test_the_first_two_are_out_at_once_one_everywhere_and_one_at_peers_alone() -> None:
    first, second, third, *_ = news = releases_since(NOON)

    assert [each.out_at - NOON for each in (first, second, third)] == [timedelta(0), timedelta(0), SOON]
    assert [(each.is_indexed, each.is_shared) for each in (first, second, third)] == [
        (True, True),
        (False, True),
        (True, False),
    ]
    assert {len(peer.files) for peer in peers_with(news)} == {len(TRACKS)}


def test_after_a_restart_other_things_come_out() -> None:
    now, later = ({each.title for each in releases_since(NOON + timedelta(hours=hour))} for hour in (0, 1))

    assert now == {each.title for each in releases_since(NOON)}
    assert not now & later


def test_links_of_a_stand_in_lead_back_to_where_it_is_mounted() -> None:
    clock = Clock()
    artists = GrowingArtists(releases_since(NOON), PlayedCatalogue(NOON), clock)
    spotify = SpotifyStandIn(artists=artists, now_s=lambda: 0.0, page_size=1, tokens={"t": 1.0})
    asked = StandInRequest(
        path=f"/v1/artists/{next(iter(WATCHED))}/albums",
        headers={"authorization": "Bearer t"},
        base="http://127.0.0.1:7980/spotify",
    )

    reply = trio.run(spotify.answer, asked)

    assert json.loads(reply.body)["next"].startswith(f"http://127.0.0.1:7980/spotify{asked.path}?")
    assert reply.kind.startswith("application/json")


async def test_a_stand_in_remembers_the_newest_requests_without_their_bodies() -> None:
    slskd = SlskdStandIn()

    for number in range(ASKED_MAX + 5):
        await slskd.answer(StandInRequest(path=f"/{number}", body=b"x"))

    assert [each.path for each in slskd.asked] == [f"/{number}" for number in range(5, ASKED_MAX + 5)]
    assert {each.body for each in slskd.asked} == {b""}
