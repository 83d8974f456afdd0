"""A service that takes for ever to answer is given up in time, with the process that asked it; nothing goes on behind our back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cormorant.clients import apprise
from cormorant.clients.apprise import NotTold, send_in_subprocess
from cormorant.rules.notices import Message
from tests.bounds import WAIT_S
from tests.waiting import until_deadline_in

MESSAGE = Message(title="Cormorant: a test", body="Straße 😀")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


class Dripping:
    """A service that answers a byte now and then, each long before any time-out of a read."""

    def __init__(self) -> None:
        self.address = ""
        self.was_asked = trio.Event()
        self.was_left = trio.Event()

    async def __call__(self, stream: trio.SocketStream) -> None:
        await stream.receive_some()
        self.was_asked.set()
        with suppress(trio.BrokenResourceError):
            await stream.send_all(HEAD)
            while True:
                await stream.send_all(b"x")
                await trio.sleep(0.02)
        self.was_left.set()


@asynccontextmanager
async def dripping() -> AsyncIterator[Dripping]:
    served = Dripping()
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        served.address = f"json://me:hunter2hunter2@127.0.0.1:{listener.socket.getsockname()[1]}/hook-secret"
        nursery.start_soon(trio.serve_listeners, served, [listener])
        yield served
        nursery.cancel_scope.cancel()


def children() -> set[int]:
    """The processes that this one has started and that are not gone."""
    found: set[int] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended meanwhile
            found |= {int(number) for number in listed.read_text().split()}
    return found


@pytest.mark.slow("a real process that loads Apprise, a second")
async def test_sending_to_a_service_that_drips_for_ever_ends_when_nobody_waits_for_it_any_more() -> None:
    before = children()
    async with dripping() as service:
        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(send_in_subprocess, service.address, MESSAGE, within_s=10 * WAIT_S))
                await service.was_asked.wait()
                during = children() - before
                nursery.cancel_scope.cancel()
            await service.was_left.wait()

    assert len(during) == 1
    assert children() == before


@pytest.mark.slow("a real process that loads Apprise, a second")
async def test_when_its_time_is_up_the_process_that_sends_is_ended_whatever_it_does(mock_clock: MockClock) -> None:
    before = children()
    during: set[int] = set()

    async def let_time_pass() -> None:
        await service.was_asked.wait()
        during.update(children() - before)
        await until_deadline_in(10 * WAIT_S)
        mock_clock.jump(10 * WAIT_S)

    async with dripping() as service, trio.open_nursery() as nursery:
        nursery.start_soon(let_time_pass)
        with pytest.raises(NotTold, match="had not taken it after 3000 s") as caught:
            await send_in_subprocess(service.address, MESSAGE, within_s=10 * WAIT_S)

    assert len(during) == 1
    assert children() == before
    assert "hunter2" not in str(caught.value)


@pytest.mark.slow("a real process")
async def test_a_process_that_crashes_is_told_without_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise, "_SELF", "cormorant.no_such_module")

    with pytest.raises(NotTold, match="ended with 1 and did not say why") as caught:
        await send_in_subprocess("json://hunter2hunter2", MESSAGE)

    assert "hunter2" not in str(caught.value)
