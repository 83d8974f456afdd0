"""The playground's server: one request per connection, its limits, faults of a stand-in, and the stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx2
import pytest
import trio
from attrs import frozen
from trio.testing import MockClock

from cormorant.playground.http import StandInRequest, StandInResponse, as_text
from cormorant.playground.server import BODY_BYTES_MAX, REQUEST_S, Playground, open_playground
from tests.bounds import WAIT_S

pytestmark = pytest.mark.slow("real sockets")


@frozen
class Site:
    reply: Callable[[StandInRequest], Awaitable[StandInResponse]]
    name: str = "site"

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        return await self.reply(asked)


async def echo(asked: StandInRequest) -> StandInResponse:
    await trio.lowlevel.checkpoint()
    return as_text(f"{asked.line} of {asked.base} with {len(asked.body)} bytes")


async def stream_to(playground: Playground) -> trio.SocketStream:
    host, _, port = playground.address.removeprefix("http://").rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


async def test_a_stand_in_is_asked_below_its_name_and_the_connection_ends_with_the_answer() -> None:
    async with open_playground(Site(echo)) as playground, await stream_to(playground) as stream:
        await stream.send_all(b"POST /site/a%20b?c=d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        answer = b"".join([piece async for piece in stream])

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"\r\nconnection: close\r\n" in answer.lower()
    assert answer.endswith(f"POST /a b?c=d of {playground.address}/site with 3 bytes".encode())


@pytest.mark.parametrize(("size", "status"), [(BODY_BYTES_MAX, 200), (BODY_BYTES_MAX + 1, 413), (5_000_000, 413)])
async def test_a_body_has_a_limit(size: int, status: int) -> None:
    async with open_playground(Site(echo)) as playground, httpx2.AsyncClient(timeout=WAIT_S) as client:
        answer = await client.post(playground.url_of("site"), content=b"x" * size)

    assert answer.status_code == status


async def test_parameters_have_a_limit() -> None:
    async with open_playground(Site(echo)) as playground, httpx2.AsyncClient(timeout=WAIT_S) as client:
        answer = await client.get(f"{playground.url_of('site')}?{'a=1&' * 100}b=1")

    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("fault", "status"), [(ValueError("what?"), 400), (KeyError("id"), 400), (RuntimeError("a mistake"), 500)]
)
async def test_a_fault_of_a_stand_in_ends_one_answer_alone(fault: Exception, status: int) -> None:
    faults = [fault]

    async def fail_once(asked: StandInRequest) -> StandInResponse:
        if faults:
            raise faults.pop()
        return await echo(asked)

    async with open_playground(Site(fail_once)) as playground, httpx2.AsyncClient(timeout=WAIT_S) as client:
        answers = [await client.get(playground.url_of("site")) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [status, 200]


async def test_a_client_that_leaves_before_its_request_is_() -> None:
    asked: list[StandInRequest] = []

    async def note(request: StandInRequest) -> StandInResponse:
        asked.append(request)
        return await echo(request)

    async with open_playground(Site(note)) as playground, await stream_to(playground) as stream:
        await stream.send_all(b"POST /site HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
        await stream.send_eof()
        answer = b"".join([piece async for piece in stream])

    assert answer.startswith(b"HTTP/1.1 400")
    assert asked == []


async def test_a_stand_in_that_never_answers_is_left(mock_clock: MockClock) -> None:
    is_asked = trio.Event()

    async def never(_asked: StandInRequest) -> StandInResponse:
        is_asked.set()
        await trio.sleep_forever()
        raise AssertionError

    async with open_playground(Site(never)) as playground, await stream_to(playground) as stream:
        await stream.send_all(b"GET /site HTTP/1.1\r\nHost: x\r\n\r\n")
        await is_asked.wait()
        mock_clock.jump(REQUEST_S)
        answer = b"".join([piece async for piece in stream])

    assert answer.startswith(b"HTTP/1.1 500")


async def test_a_client_that_takes_nothing_does_not_hold_up_the_stop(socket_clock: MockClock) -> None:
    async def endless(_asked: StandInRequest) -> StandInResponse:
        await trio.lowlevel.checkpoint()
        return StandInResponse(body=b" " * 50_000_000)

    async with open_playground(Site(endless)) as playground:
        stream = await stream_to(playground)
        await stream.send_all(b"GET /site HTTP/1.1\r\nHost: x\r\n\r\n")
        await stream.receive_some(1)
        told_at = trio.current_time()

    assert trio.current_time() == told_at
    await stream.aclose()
