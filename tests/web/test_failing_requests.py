"""Requests that fail because of what they hold, on real sockets: refused by a document, and reported once a minute in all."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import define
from hypercorn.config import Config
from trio.testing import MockClock
from typing_extensions import override

from cormorant.rules.events import Event, WebBodyTooDeep, WebConnectionCrashed, WebRequestCrashed
from cormorant.rules.json_documents import DEPTH_MAX
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.settings.watch import TargetSettings
from cormorant.scripted import ScriptedTarget
from cormorant.web.listener import ConnectionListener, bound
from cormorant.web.problems import PROBLEM_TYPE
from tests.bounds import WAIT_S
from tests.web.raw_client import RawAnswer, say
from tests.web.web_place import KEY, WebPlace, web_place

pytestmark = pytest.mark.slow("a real server")

LEVELS: Final = 100_000
DEEP: Final = {
    "arrays": b"[" * LEVELS,
    "arrays that are closed": b"[" * LEVELS + b"]" * LEVELS,
    "objects": b'{"a":' * LEVELS,
    "an unknown field": b'{"key": "x", "more": ' + b"[" * LEVELS,
    "one too many": b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
}
REFUSED: Final = {
    "title": "Bad Request",
    "status": 400,
    "detail": "the JSON has more than 100 arrays and objects within each other",
    "errors": [],
}


async def posted(place: WebPlace, path: str, body: bytes, *, key: str = "") -> RawAnswer:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    sent = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return await say(place, sent, within_s=WAIT_S)


async def test_a_stranger_gets_400_and_fills_no_log(tmp_path: Path, mock_clock: MockClock) -> None:
    with web_place(tmp_path) as place:
        async with place.service():
            answers = [await posted(place, "/api/v1/session", body) for body in DEEP.values()]
            reported = list(place.events.of(WebBodyTooDeep))
            mock_clock.jump(60.0)
            answers.append(await posted(place, "/api/v1/session", DEEP["objects"]))

    assert [answer.status for answer in answers] == [400] * len(answers)
    assert {answer.header("content-type") for answer in answers} == {PROBLEM_TYPE}
    assert [answer.document for answer in answers] == [REFUSED] * len(answers)
    assert [event.left_out for event in reported] == [0]
    assert [event.left_out for event in place.events.of(WebBodyTooDeep)] == [0, len(DEEP) - 1]
    assert place.events.of(WebRequestCrashed) == []
    assert place.events.of(WebConnectionCrashed) == []


async def test_every_route_that_takes_a_body_answers_400(tmp_path: Path, mock_clock: MockClock) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            paths = (await client.get("/api/v1/openapi.json")).json()["paths"]
            routes = [path for path, each in paths.items() if "requestBody" in each.get("post", {})]
            filled = [path.replace("{want_id}", "1").replace("{subscription}", "a") for path in routes]
            answers = [
                await posted(place, path, body, key=KEY)
                for path in filled
                for body in (DEEP["arrays"], DEEP["objects"])
            ]

    assert len(routes) >= 8
    assert [answer.document for answer in answers] == [REFUSED] * len(answers)
    assert len(place.events.of(WebBodyTooDeep)) == 1
    assert place.events.of(WebRequestCrashed) == []


async def test_a_body_at_the_limit_is_read(tmp_path: Path) -> None:
    inner = "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)
    with web_place(tmp_path) as place:
        async with place.service():
            answer = await posted(place, "/api/v1/session", f'{{"key": "wrong", "more": {inner}}}'.encode())

    assert answer.status == 401


@define
class BrokenTarget(ScriptedTarget):
    """A target of the program's own that has two mistakes, one after the other."""

    tried: int = 0

    @override
    async def test(self) -> str:
        await trio.lowlevel.checkpoint()
        self.tried += 1
        if self.tried % 2:
            raise KeyError(f"try {self.tried}")
        raise LookupError(f"try {self.tried}")


async def test_each_kind_of_crash_is_reported_once_a_minute_with_the_number_of_the_others(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    given = {"targets": {"box": BrokenTarget()}}
    settings = {"targets": {"box": TargetSettings(url="http://box.test")}}
    with web_place(tmp_path) as place:
        async with place.service(given=given, **settings):
            answers = [await posted(place, "/api/v1/targets/box/test", b"", key=KEY) for _ in range(6)]
            mock_clock.jump(60.0)
            answers += [await posted(place, "/api/v1/targets/box/test", b"", key=KEY) for _ in range(4)]

    assert [answer.status for answer in answers] == [500] * 10
    told = [(str(event.error), event.left_out) for event in place.events.of(WebRequestCrashed)]
    assert told == [("'try 1'", 0), ("try 2", 0), ("'try 7'", 2), ("try 8", 2)]


class BrokenConfig(Config):
    """Settings of the protocol that crash every connection."""

    @property
    def h11_max_incomplete_size(self) -> int:  # type: ignore[override]  # it is a plain attribute there
        raise KeyError("size")


async def test_connections_that_crash_alike_are_reported_once_a_minute(mock_clock: MockClock) -> None:
    heard: list[Event] = []
    web = WebSettings(listen="127.0.0.1:0")
    doors = ConnectionListener(web, app=_never, emit=heard.append, config=BrokenConfig())
    listening, told = bound(web.address), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(doors.serve, listening, told, answers_s=1.0))
        for _ in range(5):
            await _until_closed(listening.getsockname())
        mock_clock.jump(60.0)
        await _until_closed(listening.getsockname())
        told.set()

    assert [(type(event), getattr(event, "left_out", None)) for event in heard] == [
        (WebConnectionCrashed, 0),
        (WebConnectionCrashed, 4),
    ]


async def _until_closed(address: tuple[str, int]) -> None:
    stream = await trio.open_tcp_stream(*address)
    async with stream:
        with suppress(trio.BrokenResourceError):
            assert await stream.receive_some(1) == b""


_never: Any = None
"""An application that no request reaches."""
