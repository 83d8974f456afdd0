"""The stand-ins behave as the services do where clients must take care."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
import trio

from cormorant.playground.http import StandInRequest
from cormorant.playground.slskd import SlskdStandIn
from cormorant.rules.watch.soulseek import PeerFile, PeerResponse


class Now:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def asked(slskd: SlskdStandIn, method: str, path: str, value: Any = None) -> tuple[int, Any]:
    headers = {"x-api-key": slskd.key, "content-type": "application/json"}
    body = b"" if value is None else json.dumps(value).encode()
    request = StandInRequest(method=method, path=f"/api/v0{path}", headers=headers, body=body)
    answer = trio.run(slskd.answer, request)
    return answer.status, json.loads(answer.body) if answer.body else None


def peer(name: str, path: str = "x\\song.flac") -> PeerResponse:
    return PeerResponse(username=name, files=(PeerFile(filename=path, size_bytes=1),))


def seen(slskd: SlskdStandIn, now: Now, seconds: float, search: str = "s") -> tuple[str, int, int]:
    """What slskd shows of a search at a time: its state, how many responses it counts, how many it hands over."""
    now.seconds = seconds
    shown = asked(slskd, "GET", f"/searches/{search}")[1]
    assert shown["isComplete"] == shown["state"].startswith("Completed")
    return shown["state"], shown["responseCount"], len(asked(slskd, "GET", f"/searches/{search}/responses")[1])


def test_a_search_ends_after_its_silence_and_shows_what_was_found_a_moment_later() -> None:
    now = Now()
    slskd = SlskdStandIn(now_s=now, peers=[peer("one"), peer("two"), peer("late")], answers_after_s={"late": 16.0})
    asked(slskd, "POST", "/searches", {"id": "s", "searchText": "song", "searchTimeout": 12_000})

    assert [seen(slskd, now, at) for at in (0.0, 0.1, 0.6, 1.1, 13.09, 13.1, 13.14)] == [
        ("Requested", 0, 0),
        ("InProgress", 0, 0),
        ("InProgress", 1, 0),
        ("InProgress", 2, 0),
        ("InProgress", 2, 0),
        ("Completed, TimedOut", 2, 0),
        ("Completed, TimedOut", 2, 2),
    ]


def test_each_answer_of_a_peer_begins_the_silence_anew_and_it_is_fifteen_seconds_if_nothing_is_said() -> None:
    now = Now()
    slskd = SlskdStandIn(now_s=now, peers=[peer("one"), peer("late")], answers_after_s={"late": 15.0})
    asked(slskd, "POST", "/searches", {"id": "s", "searchText": "song"})

    assert [seen(slskd, now, at)[:2] for at in (15.09, 15.1, 30.09, 30.1)] == [
        ("InProgress", 1),
        ("InProgress", 2),
        ("InProgress", 2),
        ("Completed, TimedOut", 2),
    ]


def test_a_cancelled_search_takes_a_moment_to_end_and_keeps_what_it_had() -> None:
    now = Now()
    slskd = SlskdStandIn(now_s=now, peers=[peer("one"), peer("two")], answers_every_s=5.0)
    asked(slskd, "POST", "/searches", {"id": "s", "searchText": "song"})
    now.seconds = 6.0

    assert asked(slskd, "PUT", "/searches/s")[0] == 200
    assert [seen(slskd, now, at) for at in (6.0, 6.1, 6.14, 99.0)] == [
        ("InProgress", 1, 0),
        ("Completed, Cancelled", 1, 0),
        ("Completed, Cancelled", 1, 1),
        ("Completed, Cancelled", 1, 1),
    ]


@pytest.mark.parametrize(
    ("limit", "end"), [("responseLimit", "ResponseLimitReached"), ("fileLimit", "FileLimitReached")]
)
def test_a_search_ends_at_its_limit(limit: str, end: str) -> None:
    now = Now()
    slskd = SlskdStandIn(now_s=now, peers=[peer("one"), peer("two"), peer("three")])
    asked(slskd, "POST", "/searches", {"id": "s", "searchText": "song", limit: 2})

    assert [seen(slskd, now, at)[:2] for at in (1.0, 1.1, 9.0)] == [
        ("InProgress", 1),
        (f"Completed, {end}", 2),
        (f"Completed, {end}", 2),
    ]


def test_two_searches_run_and_the_third_waits_until_one_of_them_has_ended() -> None:
    now = Now()
    slskd = SlskdStandIn(now_s=now, peers=[peer("one")], starting_takes_s=0.0)
    for name in ("a", "b", "c", "d"):
        asked(slskd, "POST", "/searches", {"id": name, "searchText": "song", "searchTimeout": 1_000})
    now.seconds = 0.5
    asked(slskd, "PUT", "/searches/d")

    assert [seen(slskd, now, at, "c")[:2] for at in (1.0, 1.5, 2.0, 3.0)] == [
        ("Queued", 0),
        ("InProgress", 0),
        ("InProgress", 1),
        ("Completed, TimedOut", 1),
    ]
    assert seen(slskd, now, 3.0, "d") == ("Completed, Cancelled", 0, 0)


def test_a_second_search_must_wait_until_the_first_has_started() -> None:
    now = Now()
    slskd = SlskdStandIn(now_s=now, starting_takes_s=1)

    statuses = []
    for name, seconds in (("a", 0.0), ("b", 0.5), ("c", 1.0)):
        now.seconds = seconds
        statuses.append(asked(slskd, "POST", "/searches", {"id": name, "searchText": "xx"})[0])

    assert statuses == [200, 429, 200]
    assert set(slskd.searches) == {"a", "c"}


@pytest.mark.parametrize(
    "wanted", [{"searchText": "x"}, {"searchText": "-song"}, {"searchText": "song", "searchTimeout": 4}]
)
def test_what_slskd_cannot_search_for_is_refused(wanted: dict[str, Any]) -> None:
    assert asked(SlskdStandIn(now_s=Now()), "POST", "/searches", {"id": "s", **wanted})[0] == 400


def test_words_of_one_letter_are_left_out_and_excluded_ones_are_not_found() -> None:
    now = Now()
    slskd = SlskdStandIn(now_s=now, peers=[peer("one", "x\\song.flac"), peer("two", "x\\song live.flac")])
    asked(slskd, "POST", "/searches", {"id": "s", "searchText": "a Song -live"})

    assert seen(slskd, now, 99.0) == ("Completed, TimedOut", 1, 1)


@pytest.mark.parametrize(("method", "path"), [("POST", "/searches"), ("PUT", "/searches/x")])
async def test_what_does_not_say_that_it_is_json_is_refused(method: str, path: str) -> None:
    slskd = SlskdStandIn()
    request = StandInRequest(method=method, path=f"/api/v0{path}", headers={"x-api-key": slskd.key}, body=b"{}")

    assert (await slskd.answer(request)).status == 415


def test_a_transfer_that_is_cancelled_ends_so_and_an_unknown_one_is_not_found() -> None:
    slskd = SlskdStandIn(now_s=Now(), lag_s=0.0)
    batch = {"id": str(UUID(int=9)), "username": "one", "files": [{"filename": "x\\song.flac", "size": 1}]}
    asked(slskd, "POST", "/transfers/downloads/batches", batch)

    cancelled = asked(slskd, "DELETE", f"/transfers/downloads/one/{slskd.transfers[0].id}")[0]
    unknown = asked(slskd, "DELETE", f"/transfers/downloads/one/{UUID(int=9)}")[0]

    assert (cancelled, unknown) == (204, 404)
    shown = asked(slskd, "GET", "/transfers/downloads/one")[1]
    assert [file["state"] for folder in shown["directories"] for file in folder["files"]] == ["Completed, Cancelled"]
