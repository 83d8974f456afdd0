"""Handing over to qBittorrent: both generations, in doubt, and nothing twice."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cormorant.clients.targets.qbittorrent import Qbittorrent
from cormorant.playground.http import StandInRequest, StandInResponse
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import (
    ParcelKind,
    ParcelState,
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)
from cormorant.testing import SimulatedClock, in_line
from tests.clients.mounted import Mounted, always, mounted
from tests.clients.parcel_samples import HTML, HYBRID, TITLES, parcel
from tests.environments import environment_of
from tests.stand_ins.qbittorrent import OddQbittorrent

ADD = "/api/v2/torrents/add"
WORD = "hunter2&hunter2"


@asynccontextmanager
async def playing(
    stand_in: OddQbittorrent | None = None, **options: Any
) -> AsyncIterator[tuple[Qbittorrent, OddQbittorrent, Mounted]]:
    stand_in = stand_in or OddQbittorrent()
    stand_in.password = WORD
    usual: dict[str, Any] = {"username": "admin", "password": Secret(WORD)}
    async with mounted(stand_in.answer) as server:
        yield client_of(server, **usual | options), stand_in, server


def client_of(server: Mounted, **options: Any) -> Qbittorrent:
    settings = TargetSettings(url=server.url, **options)
    client = Qbittorrent(settings, server.transport, environment_of(offload=in_line, clock=SimulatedClock()))
    client.SETTLE_S = 0.0
    return client


def called(stand_in: OddQbittorrent) -> list[str]:
    return [f"{each.method} {each.path}" for each in stand_in.asked]


@pytest.fixture(params=["old", "new"])
def generation(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("kind", [ParcelKind.TORRENT, ParcelKind.MAGNET])
async def test_what_is_given_is_there_and_followed_to_its_end(generation: Any, kind: ParcelKind) -> None:
    async with playing(OddQbittorrent(generation=generation)) as (client, stand_in, _):
        given = await client.submit(parcel(kind))
        running = await client.status(parcel(kind), given)
        [held] = stand_in.held.values()
        held.state = "stalledUP"
        done = await client.status(parcel(kind), None)

    assert (given.standing, running.standing, done.standing) == (
        ParcelState.PRESENT,
        ParcelState.RUNNING,
        ParcelState.DONE,
    )
    assert given.target_id == running.target_id == held.torrent_id


async def test_given_twice_it_is_there_once(generation: Any) -> None:
    async with playing(OddQbittorrent(generation=generation)) as (client, stand_in, _):
        await client.submit(parcel())
        again = await client.submit(parcel())

    assert (again.standing, again.reason, len(stand_in.held)) == (ParcelState.RUNNING, "it was already there", 1)


async def test_a_hybrid_torrent_is_found_under_the_name_of_its_second_version(generation: Any) -> None:
    async with playing(OddQbittorrent(generation=generation)) as (client, _, _):
        await client.submit(parcel(body=HYBRID))

        assert (await client.status(parcel(body=HYBRID), None)).standing is ParcelState.RUNNING


async def test_a_torrent_that_shows_up_late_is_not_taken_for_refused(generation: Any) -> None:
    stand_in = OddQbittorrent(generation=generation, lag_s=5.0, now_s=lambda: 0.0)
    async with playing(stand_in) as (client, _, _):
        first = await client.submit(parcel())
        early = await client.status(parcel(), first)
        seconds = iter(range(0, 100, 5))
        stand_in.now_s = lambda: float(next(seconds))
        again = await client.submit(parcel())

    assert (first.standing, early.standing, again.standing) == (
        ParcelState.PRESENT,
        ParcelState.ABSENT,
        ParcelState.RUNNING,
    )


async def test_what_it_neither_adds_nor_has_is_refused(generation: Any) -> None:
    async with playing(OddQbittorrent(generation=generation, refuses=True)) as (client, _, _):
        with pytest.raises(TargetRefused, match="did not add it and does not have it"):
            await client.submit(parcel())


async def test_category_tags_path_and_stopped_are_sent_by_both_names() -> None:
    chosen: dict[str, Any] = {"category": "music", "tags": ("a", "b"), "folder": "/data/ü", "paused": True}
    async with playing(**chosen) as (client, stand_in, _):
        await client.submit(parcel())
        receipt = await client.status(parcel(), None)

    [held] = stand_in.held.values()
    assert held.fields == {
        "category": "music",
        "tags": "a,b",
        "savepath": "/data/ü",
        "autoTMM": "false",
        "stopped": "true",
        "paused": "true",
    }
    assert (receipt.standing, receipt.reason) == (ParcelState.PRESENT, "it is stopped in qBittorrent")


async def test_a_lost_session_is_renewed_once_and_the_call_repeated(generation: Any) -> None:
    async with playing(OddQbittorrent(generation=generation)) as (client, stand_in, _):
        await client.status(parcel(), None)
        stand_in.lose_sessions()
        await client.submit(parcel())

    login = "POST /api/v2/auth/login"
    listing, adding = "GET /api/v2/torrents/info", f"POST {ADD}"
    assert called(stand_in) == [login, listing, adding, login, adding]


async def test_two_tasks_that_lose_their_session_log_in_once() -> None:
    async with playing() as (client, stand_in, _):
        await client.status(parcel(), None)
        stand_in.lose_sessions()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.status, parcel(), None)
            nursery.start_soon(client.status, parcel(), None)

    assert called(stand_in).count("POST /api/v2/auth/login") == 2


async def test_a_wrong_password_is_tried_once_and_again_only_when_tested(generation: Any) -> None:
    stand_in = OddQbittorrent(generation=generation)
    async with playing(stand_in, password=Secret("wrong")) as (client, _, _):
        for _ in range(3):
            with pytest.raises(TargetMisconfigured, match="password"):
                await client.submit(parcel())
        assert called(stand_in) == ["POST /api/v2/auth/login"]

        with pytest.raises(TargetMisconfigured):
            await client.test()
        assert len(stand_in.asked) == 2


async def test_a_banned_address_is_told() -> None:
    async with playing(OddQbittorrent(is_banning=True)) as (client, _, _):
        with pytest.raises(TargetMisconfigured, match="has banned this address"):
            await client.test()


async def test_an_api_key_needs_no_session() -> None:
    stand_in = OddQbittorrent(api_key="qbt_hunter2")
    async with playing(stand_in, key=Secret("qbt_hunter2")) as (client, _, server):
        await client.submit(parcel())
        wrong = client_of(server, key=Secret("qbt_other"))
        with pytest.raises(TargetMisconfigured, match="check the key"):
            await wrong.submit(parcel())

    assert called(stand_in) == [f"POST {ADD}", f"POST {ADD}"]


async def test_the_test_tells_the_version(generation: Any) -> None:
    async with playing(OddQbittorrent(generation=generation)) as (client, _, _):
        told = await client.test()

    versions = {"old": "qBittorrent v4.6.7, Web API 2.9.3", "new": "qBittorrent v5.2.0, Web API 2.15.1"}
    assert told == versions[generation]


@pytest.mark.parametrize("cut", ["after", "silent"])
async def test_in_doubt_after_it_was_taken_the_look_finds_it(mock_clock: MockClock, generation: Any, cut: Any) -> None:
    stand_in = OddQbittorrent(generation=generation)
    async with playing(stand_in, timeout_s=10) as (client, _, server):
        server.cuts[ADD] = cut
        server.on_silence = partial(mock_clock.jump, 10)
        with pytest.raises(TargetInDoubt, match="it may have arrived"):
            await client.submit(parcel())

        assert (await client.status(parcel(), None)).standing is ParcelState.RUNNING


async def test_in_doubt_before_it_was_taken_the_look_says_absent() -> None:
    async with playing() as (client, _, server):
        server.cuts[ADD] = "before"
        with pytest.raises(TargetInDoubt):
            await client.submit(parcel())

        assert (await client.status(parcel(), None)).standing is ParcelState.ABSENT


async def test_what_cannot_be_connected_to_surely_got_nothing() -> None:
    async with playing() as (client, _, server):
        settings, environment = TargetSettings(url="http://127.0.0.1:1"), environment_of(offload=in_line)
        dead = Qbittorrent(settings, server.transport, environment)
        with pytest.raises(TargetMisconfigured, match="private network"):
            await dead.submit(parcel())
    async with mounted(OddQbittorrent().answer) as gone:
        client = client_of(gone)
    with pytest.raises(TargetUnavailable, match="cannot be reached"):
        await client.submit(parcel())


async def test_a_login_that_is_lost_gives_no_doubt() -> None:
    async with playing() as (client, _, server):
        server.cuts["/api/v2/auth/login"] = "before"
        with pytest.raises(TargetUnavailable):
            await client.submit(parcel())


@pytest.mark.parametrize(
    ("status", "error"),
    [(503, TargetUnavailable), (502, TargetInDoubt), (413, TargetRefused), (302, TargetMisconfigured)],
)
async def test_a_status_of_what_stands_before_it_says_what_follows(status: int, error: type[TargetError]) -> None:
    answer = StandInResponse(status=status, headers={"Retry-After": "7", "Location": "http://x/"}, body=b"no")
    async with mounted(always(answer)) as server:
        with pytest.raises(error) as caught:
            await client_of(server).submit(parcel())

    assert type(caught.value) is error
    assert caught.value.retry_after_s == (7.0 if status > 500 else None)


async def test_a_login_page_instead_of_an_answer_is_told_and_nothing_concluded_from_it() -> None:
    async with mounted(always(StandInResponse(body=HTML))) as server:
        client = client_of(server)
        with pytest.raises(TargetInDoubt, match="is not qBittorrent"):
            await client.submit(parcel())
        with pytest.raises(TargetUnavailable, match="a login page"):
            await client.status(parcel(), None)


@pytest.mark.parametrize("body", [HTML, b"", b"d4:info"])
async def test_what_is_no_torrent_is_never_given(body: bytes) -> None:
    async with playing() as (client, stand_in, _):
        with pytest.raises(TargetRefused, match="should be a torrent is none"):
            await client.submit(parcel(body=body))

    assert stand_in.asked == []


async def test_other_kinds_and_magnets_without_a_name_are_refused() -> None:
    async with playing() as (client, stand_in, _):
        with pytest.raises(TargetRefused, match="takes no nzb, only magnet, torrent"):
            await client.submit(parcel(ParcelKind.NZB))
        with pytest.raises(TargetRefused, match="names no infohash"):
            await client.submit(parcel(ParcelKind.MAGNET, link="magnet:?dn=x"))

    assert stand_in.asked == []


@pytest.mark.parametrize("title", TITLES.values(), ids=TITLES)
async def test_any_title_will_do(title: str) -> None:
    async with playing() as (client, stand_in, _):
        await client.submit(parcel(title=title))

    assert len(stand_in.held) == 1


@pytest.mark.parametrize(
    ("state", "standing", "is_stalled"),
    [
        ("stalledDL", ParcelState.RUNNING, True),
        ("metaDL", ParcelState.RUNNING, False),
        ("pausedUP", ParcelState.DONE, False),
        ("missingFiles", ParcelState.FAILED, False),
        ("whatever comes next", ParcelState.UNKNOWN, False),
    ],
)
async def test_the_state_tells_the_standing(state: str, standing: ParcelState, *, is_stalled: bool) -> None:
    async with playing() as (client, stand_in, _):
        await client.submit(parcel())
        next(iter(stand_in.held.values())).state = state
        receipt = await client.status(parcel(), None)

    assert (receipt.standing, receipt.is_stalled) == (standing, is_stalled)


async def test_a_full_disk_there_is_a_failure() -> None:
    async with playing(OddQbittorrent(is_disk_full=True)) as (client, _, _):
        receipt = await client.status(parcel(), await client.submit(parcel()))

    assert receipt.standing is ParcelState.FAILED
    assert "full disk" in (receipt.reason or "")


async def test_secrets_are_never_shown() -> None:
    async def parrot(asked: StandInRequest) -> StandInResponse:
        return StandInResponse(status=400, body=asked.body + asked.headers.get("cookie", "").encode())

    async with mounted(parrot) as server:
        given: list[dict[str, Any]] = [
            {"username": "me", "password": Secret(WORD)},
            {"key": Secret("qbt hunter2")},
            {"key": Secret("hunter2\nhunter2")},
        ]
        for options in given:
            with pytest.raises(TargetError) as caught:
                await client_of(server, **options).submit(parcel())
            assert "hunter2" not in "".join(traceback.format_exception(caught.value))
