"""Searching through slskd against a stand-in on loopback: to the end, within bounds, and nothing is left behind."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from cormorant.clients.slskd import SlskdClient, SlskdOptions
from cormorant.clients.transport import Transport
from cormorant.playground.slskd_stand_in import Answered, SlskdStandIn
from cormorant.rules.secrets import Secret
from cormorant.rules.slskd_replies import BUSY_S, OFFLINE_S
from cormorant.rules.soulseek import File, Response, Wish, rank_albums
from cormorant.rules.source_errors import CredentialsRefused, SourceError, SourceRefused, SourceUnavailable
from cormorant.testing import in_line
from tests.clients.mounted import Mounted, mounted
from tests.clients.raw_server import page, raw_server

KEY = "playground-key-of-slskd"
FOLDER = "@@x\\Music\\Artist\\Album"


def audio(number: int, *, folder: str = FOLDER) -> File:
    return File(filename=f"{folder}\\{number:02} - Song.flac", size_bytes=100, bit_rate=900, length_s=200)


PEERS = [
    Response(username="open", files=(audio(1), audio(2)), has_free_slot=True, speed_bytes_s=9),
    Response(username="locked", locked_files=(audio(1), audio(2)), has_free_slot=True, speed_bytes_s=99),
    Response(username="half/open peer", files=(audio(1),), locked_files=(audio(2),), queue_length=4),
    Response(username="other", files=(File(filename="y\\else.mp3", size_bytes=1),)),
]


@asynccontextmanager
async def playing(**habits: Any) -> AsyncIterator[tuple[SlskdClient, SlskdStandIn, Mounted]]:
    options = {"search_s": 5.0, "poll_s": 0.01, **habits.pop("options", {})}
    stand_in = SlskdStandIn(now_s=trio.current_time, peers=PEERS, **{"search_takes_s": 0.05, **habits})
    async with mounted(stand_in.handle) as server:
        yield client_of(server, **options), stand_in, server


def client_of(server: Mounted, *, key: str = KEY, **options: Any) -> SlskdClient:
    return SlskdClient(
        server.url,
        Secret(key),
        server.transport,
        offload=in_line,
        chance=random.Random(1),
        options=SlskdOptions(**options),
    )


async def test_a_search_is_followed_through_all_its_states_to_the_end() -> None:
    async with playing() as (client, slskd, _):
        found = await client.search("artist ALBUM")

    assert (found.state, found.was_cut) == ("Completed, TimedOut", False)
    assert [response.username for response in found.responses] == ["open", "locked", "half/open peer"]
    assert found.responses[0] == PEERS[0]
    assert found.responses[1].files == ()
    assert slskd.searches == {}
    assert slskd.asked[0] == "POST /api/v0/searches"
    assert slskd.asked[-2].endswith("/responses")
    assert slskd.asked[-1].startswith("DELETE /api/v0/searches/")


async def test_what_is_found_can_be_ranked_and_no_locked_file_is_among_it() -> None:
    async with playing() as (client, _, _):
        found = await client.search("album")

    ranking = rank_albums(found.responses, Wish(artist="Artist", title="Album", tracks_total=2))
    assert [candidate.username for candidate in ranking.candidates] == ["open"]
    assert [(one.username, one.because) for one in ranking.rejected] == [("half/open peer", "1 flac track, wanted 2")]


async def test_what_is_asked_of_a_search_is_said_in_its_units() -> None:
    wanted: list[bytes] = []
    slskd = SlskdStandIn(now_s=trio.current_time, peers=PEERS, search_takes_s=0)

    def listening(method: str, path: str, query: Any, headers: Any, body: bytes) -> Answered:
        wanted.extend([body] if method == "POST" else [])
        return slskd.handle(method, path, query, headers, body)

    async with mounted(listening) as server:
        await client_of(server, quiet_s=12, responses_max=100, files_max=1000).search("album")

    assert b'"searchTimeout": 12000, "responseLimit": 100, "fileLimit": 1000' in wanted[0]
    assert b"null" not in wanted[0]


async def test_a_search_that_does_not_end_is_ended_and_what_was_found_counts() -> None:
    async with playing(search_takes_s=1000, options={"search_s": 0.1, "settle_s": 1.0}) as (client, slskd, _):
        found = await client.search("album")

    assert (found.state, found.was_cut) == ("Completed, Cancelled", True)
    assert len(found.responses) == 3
    assert slskd.searches == {}


async def test_a_cancelled_search_is_ended_and_removed_in_slskd() -> None:
    async with playing(search_takes_s=1000) as (client, slskd, _):
        with trio.move_on_after(0.1) as scope:
            await client.search("album")

    assert scope.cancelled_caught
    assert slskd.searches == {}
    assert [line.split()[0] for line in slskd.asked if not line.startswith("GET")] == ["POST", "PUT", "DELETE"]


async def test_a_search_whose_start_was_not_confirmed_is_removed() -> None:
    async with playing(options={"timeout_s": 0.2}) as (client, slskd, server):
        server.cuts["/api/v0/searches"] = "after"
        with pytest.raises(SourceUnavailable, match="does not speak HTTP"):
            await client.search("album")

    assert slskd.searches == {}


async def test_tidying_up_has_an_end() -> None:
    async with playing(search_takes_s=1000, options={"tidy_s": 0.1, "timeout_s": 60}) as (client, slskd, server):

        def silent(method: str, path: str, query: Any, headers: Any, body: bytes) -> Answered:
            server.cuts[path] = "silent"
            return slskd.handle(method, path, query, headers, body)

        with trio.fail_after(5), trio.move_on_after(0.1) as scope:
            server.handler = silent
            await client.search("album")

    assert scope.cancelled_caught


async def test_only_one_search_is_started_at_a_time() -> None:
    async with playing(starting_takes_s=1000) as (client, slskd, _):
        await client.search("album")
        asked = len(slskd.asked)
        with pytest.raises(SourceUnavailable, match="starting another search .HTTP 429, Only one concurrent") as caught:
            await client.search("album")

    assert caught.value.retry_after_s == BUSY_S
    assert len(slskd.asked) == asked + 1


async def test_without_soulseek_it_says_so() -> None:
    async with playing(is_connected=False) as (client, _, _):
        with pytest.raises(SourceUnavailable, match="not connected to Soulseek") as caught:
            await client.search("album")

    assert caught.value.retry_after_s == OFFLINE_S


async def test_a_wrong_key_is_never_shown_and_stops_it() -> None:
    async with playing() as (_, slskd, server):
        with pytest.raises(CredentialsRefused, match="check the key") as caught:
            await client_of(server, key="wrong-key-of-mine").search("album")

    assert "wrong-key-of-mine" not in str(caught.value)
    assert len(slskd.asked) == 1


async def test_a_search_that_vanished_is_told() -> None:
    async with playing(search_takes_s=1000) as (client, slskd, _), trio.open_nursery() as nursery:

        async def forget() -> None:
            while not slskd.searches:
                await trio.sleep(0.005)
            slskd.searches.clear()

        nursery.start_soon(forget)
        with pytest.raises(SourceUnavailable, match="no longer knows the search"):
            await client.search("album")


async def test_a_search_that_failed_in_slskd_is_no_empty_answer() -> None:
    async with playing() as (client, slskd, _), trio.open_nursery() as nursery:

        async def spoil() -> None:
            while not slskd.searches:
                await trio.sleep(0.005)
            for search in slskd.searches.values():
                search.end = "Errored"

        nursery.start_soon(spoil)
        with pytest.raises(SourceUnavailable, match="failed in slskd .Completed, Errored"):
            await client.search("album")

    assert slskd.searches == {}


@pytest.mark.parametrize("text", ["", "  ", "x" * 201])
async def test_what_cannot_be_searched_is_not_asked(text: str) -> None:
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
    async with raw_server({"*": answer}) as server, Transport(written=[server.url]) as transport:
        client = SlskdClient(f"{server.url}/base/", Secret(KEY), transport, offload=in_line, chance=random.Random(1))
        with pytest.raises(kind, match=message):
            await client.search("album")

    assert server.asked[0].path == "/base/api/v0/searches"
    assert server.asked[0].headers["x-api-key"] == KEY
    assert {asked.headers["content-type"] for asked in server.asked} == {"application/json"}
