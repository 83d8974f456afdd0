"""Calling targets: what is sent, what is never shown, and whether a request can have arrived."""

from __future__ import annotations

import gzip
import logging
import traceback
from typing import Any

import pytest
import trio

from cormorant.clients.http.transport import Transport
from cormorant.clients.targets.caller import TargetCaller, TargetRequest, form, multipart
from cormorant.playground.http import StandInRequest, StandInResponse, as_text
from cormorant.rules.secrets import Secret
from cormorant.rules.watch.handovers import TargetInDoubt, TargetMisconfigured, TargetUnavailable
from cormorant.testing import SimulatedClock
from tests.clients.mounted import Mounted, always, mounted
from tests.clients.raw_server import Asked, raw_server

BROKEN_KEY = "hunter2\r\nX-Other: y"
GIVING = TargetRequest(path="/give", content=form({"a": "b"}), gives=True)


def caller(server: Mounted, url: str | None = None, **options: Any) -> TargetCaller:
    return TargetCaller("the target", url or server.url, server.transport, SimulatedClock(), **options)


async def test_user_and_password_in_the_address_are_sent_and_never_shown() -> None:
    heard: list[str] = []

    async def answer_it(asked: StandInRequest) -> StandInResponse:
        heard.append(f"{asked.path} {asked.headers.get('authorization')}")
        return as_text("hunter2 is wrong", status=401)

    async with mounted(answer_it) as server:
        given = caller(server, server.url.replace("http://", "http://me:hunter2@") + "/base/")
        answer = await given.call(GIVING)
        with pytest.raises(TargetMisconfigured) as caught:
            given.refuse_status(answer)

    assert heard == ["/base/give Basic bWU6aHVudGVyMg=="]
    assert "hunter2" not in "".join(traceback.format_exception(caught.value)) + repr(answer)


async def test_a_form_is_read_as_it_was_written() -> None:
    fields = {"name": 'ü & = "quoted"\r\nx', "empty": ""}
    files = {"torrents": ("x.torrent", bytes(range(256)), "application/x-bittorrent")}

    plain, mixed = form(fields), multipart(fields, files)
    read = StandInRequest(headers={"content-type": mixed.type}, body=mixed.body).form()

    assert StandInRequest(headers={"content-type": plain.type}, body=plain.body).form().fields == fields
    assert read.fields == fields
    assert read.files == {"torrents": ("x.torrent", bytes(range(256)))}


async def test_a_compressed_answer_is_read_and_an_endless_one_left() -> None:
    async def pour(stream: trio.SocketStream, _asked: Asked) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")

    packed = StandInResponse(headers={"Content-Encoding": "gzip"}, body=gzip.compress(b"Ok."))
    async with mounted(always(packed)) as server:
        assert (await caller(server).call(GIVING)).body == b"Ok."
    async with raw_server({"*": pour}) as raw:
        transport = Transport(written=[raw.url])
        with pytest.raises(TargetInDoubt, match="more than 10,000,000 bytes"):
            await TargetCaller("it", raw.url, transport, SimulatedClock()).call(GIVING)


@pytest.mark.parametrize("gives", [True, False])
async def test_what_speaks_no_http_may_have_got_it(*, gives: bool) -> None:
    async def babble(stream: trio.SocketStream, _asked: Asked) -> None:
        await stream.send_all(b"220 mail.example.org\r\n\r\n")

    async with raw_server({"*": babble}) as raw:
        transport = Transport(written=[raw.url])
        with pytest.raises(TargetInDoubt if gives else TargetUnavailable, match="was lost"):
            await TargetCaller("it", raw.url, transport, SimulatedClock()).call(TargetRequest(path="/", gives=gives))


async def test_a_name_that_does_not_resolve_surely_got_nothing() -> None:
    url = "http://no-such-host.invalid/"
    transport = Transport(written=[url])
    with pytest.raises(TargetUnavailable, match="cannot be reached"):
        await TargetCaller("it", url, transport, SimulatedClock()).call(GIVING)


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://me:hunter2@x", "http://", "http://me:hunter2@x:port"])
async def test_an_address_that_is_none_is_told_without_showing_it(url: str) -> None:
    transport = Transport()
    with pytest.raises(TargetMisconfigured, match="write http://host:port") as caught:
        TargetCaller("it", url, transport, SimulatedClock())

    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


async def test_a_header_that_cannot_be_sent_does_not_show_its_value() -> None:
    async with mounted(always(StandInResponse())) as server:
        with pytest.raises(TargetMisconfigured, match="check the key") as caught:
            await caller(server).call(TargetRequest(path="/", headers={"X-Key": BROKEN_KEY}))

    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


async def test_nothing_that_is_sent_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with mounted(always(StandInResponse())) as server:
        given = caller(server)
        given.keep_secret([Secret("hunter2")])
        await given.call(TargetRequest(path="/", params=[("key", "hunter2")], headers={"Cookie": "hunter2"}))

    assert "hunter2" not in caplog.text
