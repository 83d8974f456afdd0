"""The stand-ins behave as the services do where clients must take care."""

from __future__ import annotations

import json
from typing import Any

from cormorant.playground.slskd_stand_in import SlskdStandIn
from cormorant.rules.soulseek import File, Response


class Now:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def asked(slskd: SlskdStandIn, method: str, path: str, value: Any = None) -> tuple[int, Any]:
    headers = {"x-api-key": slskd.key, "content-type": "application/json"}
    body = b"" if value is None else json.dumps(value).encode()
    status, _, answer = slskd.handle(method, f"/api/v0{path}", {}, headers, body)
    return status, json.loads(answer) if answer else None


def test_what_was_found_is_shown_only_when_the_search_has_ended() -> None:
    now = Now()
    peer = Response(username="peer", files=(File(filename="x\\song.flac", size_bytes=1),))
    slskd = SlskdStandIn(now_s=now, peers=[peer], search_takes_s=10, starting_takes_s=1)
    asked(slskd, "POST", "/searches", {"id": "s", "searchText": "song"})

    seen = []
    for seconds in (1, 3, 9, 10):
        now.seconds = seconds
        search = asked(slskd, "GET", "/searches/s")[1]
        seen.append((search["state"], search["isComplete"], len(asked(slskd, "GET", "/searches/s/responses")[1])))

    assert seen == [
        ("Requested", False, 0),
        ("Queued", False, 0),
        ("InProgress", False, 0),
        ("Completed, TimedOut", True, 1),
    ]


def test_a_second_search_must_wait_until_the_first_has_started() -> None:
    now = Now()
    slskd = SlskdStandIn(now_s=now, starting_takes_s=1)

    statuses = []
    for name, seconds in (("a", 0.0), ("b", 0.5), ("c", 1.0)):
        now.seconds = seconds
        statuses.append(asked(slskd, "POST", "/searches", {"id": name, "searchText": "x"})[0])

    assert statuses == [200, 429, 200]
    assert set(slskd.searches) == {"a", "c"}


def test_what_does_not_say_that_it_is_json_is_refused() -> None:
    slskd = SlskdStandIn(now_s=Now())

    assert slskd.handle("POST", "/api/v0/searches", {}, {"x-api-key": slskd.key}, b"{}")[0] == 415
    assert slskd.handle("PUT", "/api/v0/searches/x", {}, {"x-api-key": slskd.key}, b"")[0] == 415
