"""Fetching enclosures into a folder: media only, whole or not at all, from nowhere private."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.environment import in_thread
from cormorant.clients.http.transport import Transport
from cormorant.clients.targets.download_folder import DownloadFolder
from cormorant.rules.watch.handovers import (
    Parcel,
    ParcelKind,
    ParcelState,
    TargetError,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)
from cormorant.testing import SimulatedClock, in_line
from tests.clients.parcel_samples import HTML, TITLES
from tests.clients.parcel_samples import parcel as any_parcel
from tests.clients.raw_server import Asked, RawServer, page, raw_server, redirect
from tests.environments import environment_of
from tests.waiting import is_cancelled_when

MP3 = b"ID3\x04" + bytes(range(256)) * 20
AUDIO = {"Content-Type": "audio/mpeg"}


def parcel(server: RawServer, path: str = "/one.mp3", **fields: Any) -> Parcel:
    return any_parcel(ParcelKind.URL, link=f"{server.url}{path}", folder_parts={"feed": "A feed"}, **fields)


@asynccontextmanager
async def playing(
    folder: Path, routes: Any, *, template: str = "{feed}/{title}", size_max_bytes: int = 2_000_000_000
) -> AsyncIterator[tuple[DownloadFolder, RawServer]]:
    async with raw_server(routes) as server:
        transport = Transport(written=[server.url])
        environment = environment_of(offload=in_thread, clock=SimulatedClock())
        yield DownloadFolder(folder, template, transport, environment, size_max_bytes=size_max_bytes), server


def inside(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def found(folder: Path) -> list[str]:
    """All files but the notes."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"
    )


async def test_an_enclosure_is_fetched_under_the_name_of_the_template(tmp_path: Path) -> None:
    routes = {"/one.mp3": page(MP3, headers=AUDIO)}
    async with playing(tmp_path, routes, template="podcasts/{feed}/{title}") as (target, server):
        before = await target.status(parcel(server), None)
        given = await target.submit(parcel(server))
        again = await target.submit(parcel(server))

    assert (before.standing, given.standing, again) == (ParcelState.ABSENT, ParcelState.DONE, given)
    assert given.target_id == "podcasts/A feed/A title.mp3"
    assert (tmp_path / "podcasts/A feed/A title.mp3").read_bytes() == MP3
    assert len(server.asked) == 1


async def test_what_was_moved_away_is_not_fetched_again(tmp_path: Path) -> None:
    async with playing(tmp_path, {"*": page(MP3)}) as (target, server):
        await target.submit(parcel(server))
        (tmp_path / "A feed/A title.mp3").unlink()
        await target.submit(parcel(server))

    assert len(server.asked) == 1


async def test_a_large_file_is_written_piece_by_piece(tmp_path: Path) -> None:
    body = MP3 * 800
    async with playing(tmp_path, {"*": page(body)}) as (target, server):
        await target.submit(parcel(server))

    assert (tmp_path / "A feed/A title.mp3").read_bytes() == body


@pytest.mark.parametrize("title", TITLES.values(), ids=TITLES)
async def test_any_title_and_feed_stay_inside_the_folder(tmp_path: Path, title: str) -> None:
    folder = tmp_path / "media"
    folder.mkdir()
    async with playing(folder, {"*": page(MP3)}) as (target, server):
        link = f"{server.url}/x.mp3"
        await target.submit(any_parcel(ParcelKind.URL, title=title, link=link, folder_parts={"feed": title}))

    assert inside(tmp_path) == [folder]
    assert len(found(folder)) == 1


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (HTML, AUDIO),
        (b"\xef\xbb\xbf\n <HTML>" + bytes(2000), AUDIO),
        ("<html>Bitte anmelden".encode("utf-16"), AUDIO),
        (b'{"error": "login"}', AUDIO),
        (b"You must log in.", AUDIO),
        (b"", AUDIO),
        (b"\x01\x02\x03", {"Content-Type": "text/html; charset=utf-8"}),
    ],
    ids=["html", "mark", "utf-16", "json", "text", "empty", "type"],
)
async def test_what_is_no_media_file_is_never_kept(tmp_path: Path, body: bytes, headers: dict[str, str]) -> None:
    async with playing(tmp_path, {"*": page(body, headers=headers)}) as (target, server):
        with pytest.raises(TargetRefused, match="is not kept"):
            await target.submit(parcel(server))

    assert found(tmp_path) == []


async def test_a_link_into_a_private_network_is_refused(tmp_path: Path) -> None:
    async with raw_server({"*": page(MP3)}) as server:
        environment = environment_of(offload=in_line, clock=SimulatedClock())
        target = DownloadFolder(tmp_path, "{title}", Transport(), environment, size_max_bytes=1_000_000)
        with pytest.raises(TargetRefused, match="private network"):
            await target.submit(parcel(server))

    assert (server.asked, found(tmp_path)) == ([], [])


async def test_a_redirect_into_a_private_network_is_refused(tmp_path: Path) -> None:
    async with playing(tmp_path, {"*": redirect("http://127.0.0.1:9/x.mp3")}) as (target, server):
        with pytest.raises(TargetRefused, match="private network"):
            await target.submit(parcel(server))


@pytest.mark.parametrize("length", [None, "unsaid"])
async def test_one_byte_more_than_allowed_is_too_much(tmp_path: Path, length: str | None) -> None:
    answer = page(MP3) if length is None else b"HTTP/1.1 200 OK\r\n\r\n" + MP3
    async with playing(tmp_path, {"*": answer}, size_max_bytes=len(MP3) - 1) as (target, server):
        with pytest.raises(TargetRefused, match="has more than 5,123 bytes; allow larger ones"):
            await target.submit(parcel(server))
    async with playing(tmp_path, {"*": answer}, size_max_bytes=len(MP3)) as (target, server):
        await target.submit(parcel(server))

    assert found(tmp_path) == ["A feed/A title.mp3"]


@pytest.mark.parametrize(
    ("answer", "error", "wait_s"),
    [
        (page(status="404 Not Found"), TargetRefused, None),
        (page(status="403 Forbidden"), TargetRefused, None),
        (page(status="429 Slow", headers={"Retry-After": "60"}), TargetUnavailable, 60.0),
        (page(status="503 Down"), TargetUnavailable, None),
        (page(MP3, length=len(MP3) + 1), TargetUnavailable, None),
        (redirect("magnet:?xt=urn:btih:x"), TargetRefused, None),
    ],
    ids=["missing", "forbidden", "limited", "down", "cut off", "magnet"],
)
async def test_an_answer_without_the_file_says_what_follows(
    tmp_path: Path, answer: bytes, error: type[TargetError], wait_s: float | None
) -> None:
    async with playing(tmp_path, {"*": answer}) as (target, server):
        with pytest.raises(error) as caught:
            await target.submit(parcel(server, "/one.mp3?token=hunter2"))

    assert (type(caught.value), caught.value.retry_after_s) == (error, wait_s)
    assert "hunter2" not in str(caught.value)
    assert found(tmp_path) == []


async def drip(stream: trio.SocketStream, _asked: Asked) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n" + MP3)
    await trio.sleep_forever()


async def test_a_server_that_falls_silent_is_left(tmp_path: Path) -> None:
    async with playing(tmp_path, {"*": drip}) as (target, server):
        target.IDLE_S = 0.05
        with pytest.raises(TargetUnavailable):
            await target.submit(parcel(server))

    assert found(tmp_path) == []


async def test_being_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    async with playing(tmp_path, {"*": drip}) as (target, server):
        assert await is_cancelled_when(lambda: found(tmp_path) != [], partial(target.submit, parcel(server)))
        assert found(tmp_path) == []
        assert (await target.status(parcel(server), None)).standing is ParcelState.ABSENT


async def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with raw_server({"*": page(MP3)}) as server:
        transport, environment = (
            Transport(written=[server.url]),
            environment_of(offload=in_line, clock=SimulatedClock()),
        )
        target = DownloadFolder(tmp_path, "{title}", transport, environment, size_max_bytes=1_000_000)
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(TargetUnavailable, match="is full"):
            await target.submit(parcel(server))
        monkeypatch.undo()

        assert found(tmp_path) == []


async def test_a_folder_that_is_a_link_out_of_here_is_not_followed(tmp_path: Path) -> None:
    here, outside = tmp_path / "media", tmp_path / "outside"
    for folder in (here, outside):
        folder.mkdir()
    (here / "A feed").symlink_to(outside)
    async with playing(here, {"*": page(MP3)}, template="{feed}/x/{title}") as (target, server):
        with pytest.raises(TargetRefused, match="leads out of it"):
            await target.submit(parcel(server))

    assert inside(outside) == []
    assert found(here) == []


@pytest.mark.parametrize("template", ["../{title}", "/srv/{title}", "{tilte}", "", "{title"])
async def test_a_template_that_cannot_be_used_is_told_at_once(tmp_path: Path, template: str) -> None:
    environment = environment_of(offload=in_line, clock=SimulatedClock())
    with pytest.raises(TargetMisconfigured, match="cannot be used"):
        DownloadFolder(tmp_path, template, Transport(), environment, size_max_bytes=1)


async def test_a_link_that_is_none_and_other_kinds_are_refused(tmp_path: Path) -> None:
    async with playing(tmp_path, {}) as (target, _):
        for bad in (any_parcel(ParcelKind.URL, link="file:///etc/passwd"), any_parcel(ParcelKind.TORRENT)):
            with pytest.raises(TargetRefused):
                await target.submit(bad)
