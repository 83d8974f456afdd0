"""Searching through slskd against a stand-in: to the end, within the time-out, and nothing is left behind."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cormorant.clients.http.transport import Transport
from cormorant.clients.slskd import SlskdClient
from cormorant.clients.slskd_replies import BUSY_S, OFFLINE_S
from cormorant.playground.http import StandInRequest, StandInResponse
from cormorant.playground.slskd import SlskdStandIn
from cormorant.rules.search.outcomes import CredentialsRefused, SourceError, SourceRefused, SourceUnavailable
from cormorant.rules.secrets import Secret
from cormorant.rules.watch.soulseek import PeerFile, PeerQuery, PeerResponse, rank_albums
from cormorant.testing import in_line
from tests.clients.mounted import Mounted
from tests.clients.raw_server import page, raw_server
from tests.clients.wired import wired
from tests.environments import environment_of

KEY = "playground-key-of-slskd"
FOLDER = "@@x\\Music\\Artist\\Album"


def audio(number: int, *, folder: str = FOLDER) -> PeerFile:
    return PeerFile(filename=f"{folder}\\{number:02} - Song.flac", size_bytes=100, bit_rate=900, length_s=200)


PEERS = [
    PeerResponse(username="open", files=(audio(1), audio(2)), has_free_slot=True, speed_bytes_s=9),
    PeerResponse(username="locked", locked_files=(audio(1), audio(2)), has_free_slot=True, speed_bytes_s=99),
    PeerResponse(username="half/open peer", files=(audio(1),), locked_files=(audio(2),), queue_length=4),
    PeerResponse(username="other", files=(PeerFile(filename="y\\else.mp3", size_bytes=1),)),
]


OTHER_SEARCH = StandInRequest(
    method="POST",
    path="/api/v0/searches",
    headers={"x-api-key": KEY, "content-type": "application/json"},
    body=b'{"id": "other", "searchText": "else"}',
)
"""A search of another program."""


def crowd(count: int) -> list[PeerResponse]:
    return [PeerResponse(username=f"peer {number}", files=(audio(number),)) for number in range(count)]


@asynccontextmanager
async def playing(**habits: Any) -> AsyncIterator[tuple[SlskdClient, SlskdStandIn, Mounted]]:
    """A stand-in that takes as long as slskd does, and a client of it. No test with it may run on the real clock."""
    stand_in = SlskdStandIn(**{"peers": PEERS, **habits})
    async with wired(stand_in.answer) as wire:
        yield client_of(wire.server), stand_in, wire.server


def client_of(server: Mounted, *, key: str = KEY) -> SlskdClient:
    environment = environment_of(offload=in_line, chance=random.Random(1))
    return SlskdClient(server.url, Secret(key), server.transport, environment)


async def test_a_search_is_followed_through_all_its_states_to_the_end(clock: MockClock) -> None:
    async with playing() as (client, slskd, _):
        found = await client.search("artist ALBUM")

        assert trio.current_time() == 14.0  # three peers answer until 1.6 s, then 12 s of silence
    assert not found.was_cut
    assert [response.username for response in found.responses] == ["open", "locked", "half/open peer"]
    assert found.responses[0] == PEERS[0]
    assert found.responses[1].files == ()
    assert slskd.searches == {}
    assert slskd.asked[0].line == "POST /api/v0/searches"
    assert slskd.asked[-2].line.endswith("/responses")
    assert slskd.asked[-1].line.startswith("DELETE /api/v0/searches/")


async def test_the_results_are_waited_for_until_slskd_has_written_them(clock: MockClock) -> None:
    async with playing(writing_takes_s=2.0) as (client, _, _):
        found = await client.search("artist album")

        assert trio.current_time() == 16.0
    assert len(found.responses) == 3


async def test_a_search_that_finds_nothing_is_no_search_whose_results_are_late(clock: MockClock) -> None:
    async with playing() as (client, slskd, _):
        found = await client.search("nothing of this")

        assert trio.current_time() == 12.5
    assert found.responses == ()
    assert len([each for each in slskd.asked if each.line.endswith("/responses")]) == 1


async def test_what_is_found_can_be_ranked_and_no_locked_file_is_among_it(clock: MockClock) -> None:
    async with playing() as (client, _, _):
        found = await client.search("album")

    ranking = rank_albums(found.responses, PeerQuery(artist="Artist", title="Album", tracks_total=2))
    assert [candidate.username for candidate in ranking] == ["open"]


@pytest.mark.parametrize(("timeout_s", "quiet_ms"), [(None, 12000), (300, 12000), (30, 10000), (1, 333)])
async def test_what_is_asked_of_a_search_is_said_in_its_units(
    clock: MockClock, timeout_s: float | None, quiet_ms: int
) -> None:
    wanted: list[bytes] = []
    slskd = SlskdStandIn(peers=PEERS)

    async def listening(asked: StandInRequest) -> StandInResponse:
        wanted.extend([asked.body] if asked.method == "POST" else [])
        return await slskd.answer(asked)

    async with wired(listening) as wire:
        with trio.fail_after(math.inf if timeout_s is None else timeout_s):
            await client_of(wire.server).search("album")

    assert f'"searchTimeout": {quiet_ms}, "responseLimit": 250, "fileLimit": 10000'.encode() in wanted[0]
    assert b"null" not in wanted[0]


@pytest.mark.parametrize(("timeout_s", "ended_at", "count"), [(None, 55.5, 9), (30, 25.5, 8), (1, 0.816667, 6)])
async def test_a_busy_search_is_cut_before_the_time_out_and_what_was_found_counts(
    clock: MockClock, timeout_s: float | None, ended_at: float, count: int
) -> None:
    every_s = (timeout_s or 60) / 10
    async with playing(peers=crowd(20), answers_every_s=every_s) as (client, slskd, _):
        with trio.fail_after(math.inf if timeout_s is None else timeout_s):
            found = await client.search("album")

        assert round(trio.current_time(), 6) == ended_at
    assert found.was_cut
    assert len(found.responses) == count
    assert slskd.searches == {}


async def test_a_search_that_ends_by_itself_at_the_moment_of_the_cut_was_not_cut(clock: MockClock) -> None:
    # The last answer comes at 43.05 s, so that it ends at 55.05 s. It is cancelled at 55 s, which takes longer.
    async with playing(peers=crowd(20), answers_every_s=42.95 / 20) as (client, _, _):
        found = await client.search("album")

        assert trio.current_time() == 55.5
    assert not found.was_cut
    assert len(found.responses) == 20


@pytest.mark.parametrize("answered_after_s", [3.0, 100.0])
async def test_what_was_found_is_fetched_although_slskd_is_slow_to_answer_the_cancellation(
    clock: MockClock, answered_after_s: float
) -> None:
    async with playing(answers_every_s=10.0) as (client, slskd, server):
        server.slow_s["PUT"] = answered_after_s
        with trio.fail_after(30):
            found = await client.search("album")

        assert trio.current_time() == 26.875  # the answer is waited for until half of the time for it is over
    assert (found.was_cut, len(found.responses)) == (True, 2)
    assert slskd.searches == {}


@pytest.mark.parametrize(
    ("habits", "why"),
    [
        (
            {"cancel_takes_s": 100.0},
            "slskd was told to end the search after 25 s and did not within 28.8 s; responses lost: 2",
        ),
        (
            {"writing_takes_s": 100.0},
            "slskd ended the search and did not hand over its responses within 28.8 s; responses lost: 2",
        ),
    ],
)
async def test_a_search_whose_results_cannot_be_had_in_time_says_what_happened(
    clock: MockClock, habits: dict[str, float], why: str
) -> None:
    async with playing(answers_every_s=10.0, **habits) as (client, slskd, _):
        with trio.fail_after(30), pytest.raises(SourceUnavailable) as caught:
            await client.search("album")

    assert str(caught.value) == why
    assert slskd.searches == {}


async def test_a_start_that_is_not_confirmed_in_time_says_so(clock: MockClock) -> None:
    async with playing() as (client, slskd, server):
        server.slow_s["POST"] = 9.0
        with (
            trio.fail_after(9),
            pytest.raises(SourceUnavailable, match="did not confirm within 8.25 s that it started"),
        ):
            await client.search("album")

    assert slskd.searches == {}


async def test_a_cancelled_search_is_ended_and_removed_in_slskd(clock: MockClock) -> None:
    async with playing() as (client, slskd, _), trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel_at, scope, 5.2)
            await client.search("album")

        assert trio.current_time() == pytest.approx(5.7)  # slskd was seen to have ended it
    assert scope.cancelled_caught
    assert slskd.searches == {}
    assert [each.method for each in slskd.asked if each.method != "GET"] == ["POST", "PUT", "DELETE"]


async def _cancel_at(scope: trio.CancelScope, seconds: float) -> None:
    await trio.sleep_until(seconds)
    scope.cancel()


async def test_a_search_whose_start_was_not_confirmed_is_removed(clock: MockClock) -> None:
    async with playing() as (client, slskd, server):
        server.cuts["/api/v0/searches"] = "after"
        with pytest.raises(SourceUnavailable, match="does not speak HTTP"):
            await client.search("album")

    assert slskd.searches == {}


@pytest.mark.parametrize(("timeout_s", "left_at", "ended_at"), [(60, 5.2, 8.2), (3, 0.2, 1.2), (3, 1.8, 2.4)])
async def test_tidying_up_has_an_end_within_the_time_out(
    clock: MockClock, timeout_s: float, left_at: float, ended_at: float
) -> None:
    async with playing() as (client, slskd, server), trio.open_nursery() as nursery:

        async def silent(asked: StandInRequest) -> StandInResponse:
            server.cuts[asked.path] = "silent"
            return await slskd.answer(asked)

        with trio.fail_after(timeout_s), trio.CancelScope() as scope:
            nursery.start_soon(_cancel_at, scope, left_at)
            server.answer = silent
            await client.search("album")

        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(ended_at)


async def test_while_slskd_starts_another_search_it_is_asked_again(clock: MockClock) -> None:
    async with playing(starting_takes_s=3.0) as (client, slskd, _):
        await slskd.answer(OTHER_SEARCH)
        found = await client.search("album")

        # Asked at 0, 0.5, 1.5 and 3.5 s; it runs from 6.5 s on, and the last of three peers answers at 8 s.
        assert trio.current_time() == 20.5
    assert len(found.responses) == 3
    assert [each.line for each in slskd.asked].count("POST /api/v0/searches") == 5


async def test_a_slskd_that_never_starts_the_search_says_that_it_is_busy(clock: MockClock) -> None:
    async with playing(starting_takes_s=1000.0) as (client, slskd, _):
        await slskd.answer(OTHER_SEARCH)
        with pytest.raises(SourceUnavailable, match="starting another search .HTTP 429, Only one concurrent") as caught:
            await client.search("album")

        assert trio.current_time() == 31.5  # after 0.5, 1, 2, 4, 8 and 16 s; 32 s more are too late
    assert caught.value.retry_after_s == BUSY_S
    assert list(slskd.searches) == ["other"]


async def test_without_soulseek_it_says_so(clock: MockClock) -> None:
    async with playing(is_connected=False) as (client, _, _):
        with pytest.raises(SourceUnavailable, match="not connected to Soulseek") as caught:
            await client.search("album")

    assert caught.value.retry_after_s == OFFLINE_S


async def test_a_wrong_key_is_never_shown_and_stops_it(clock: MockClock) -> None:
    async with playing() as (_, slskd, server):
        with pytest.raises(CredentialsRefused, match="check the key") as caught:
            await client_of(server, key="wrong-key-of-mine").search("album")

    assert "wrong-key-of-mine" not in str(caught.value)
    assert len(slskd.asked) == 1


async def test_a_search_that_vanished_is_told(clock: MockClock) -> None:
    async with playing() as (client, slskd, _), trio.open_nursery() as nursery:

        async def forget() -> None:
            await trio.sleep(3)
            slskd.searches.clear()

        nursery.start_soon(forget)
        with pytest.raises(SourceUnavailable, match="no longer knows the search"):
            await client.search("album")


async def test_a_search_that_failed_in_slskd_is_no_empty_answer(clock: MockClock) -> None:
    async with playing() as (client, slskd, _), trio.open_nursery() as nursery:

        async def spoil() -> None:
            await trio.sleep(3)
            for search in slskd.searches.values():
                search.end = "Errored"

        nursery.start_soon(spoil)
        with pytest.raises(SourceUnavailable, match="failed in slskd .Completed, Errored"):
            await client.search("album")

    assert slskd.searches == {}


@pytest.mark.parametrize("text", ["", "  ", "x" * 201])
async def test_what_cannot_be_searched_is_not_asked(clock: MockClock, text: str) -> None:
    async with playing() as (client, slskd, _):
        with pytest.raises(SourceRefused, match="1 to 200 characters"):
            await client.search(text)

    assert slskd.asked == []


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (page('"Bad text"', status="400 Bad Request"), SourceRefused, "refused the search .HTTP 400, Bad text"),
        (page(status="404 Not Found"), SourceRefused, "check the address"),
        (page("boom", status="500 Oops"), SourceUnavailable, "cannot search now .HTTP 500, boom"),
        (page("<html>"), SourceUnavailable, "no JSON"),
        (page("[]"), SourceUnavailable, "another kind"),
        (page(status="302 Found", headers={"Location": "http://evil.example/"}), SourceRefused, "redirects"),
        (page(b"x" * 10, length=10**12), SourceUnavailable, "more than 50,000,000 bytes"),
    ],
)
async def test_every_refusal_says_what_it_means(answer: bytes, kind: type[SourceError], message: str) -> None:
    async with raw_server({"*": answer}) as server:
        transport = Transport(written=[server.url])
        client = SlskdClient(
            f"{server.url}/base/", Secret(KEY), transport, environment_of(offload=in_line, chance=random.Random(1))
        )
        with pytest.raises(kind, match=message):
            await client.search("album")

    assert server.asked[0].path == "/base/api/v0/searches"
    assert server.asked[0].headers["x-api-key"] == KEY
    assert {asked.headers["content-type"] for asked in server.asked} == {"application/json"}
