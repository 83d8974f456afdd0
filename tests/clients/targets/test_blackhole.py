"""Handing over by a watched folder: whole files, inside the folder, recognised again."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio

from actors.environment import in_thread
from cormorant.clients.targets.blackhole import Blackhole
from cormorant.clients.targets.folders import SIDE
from cormorant.rules.watch.handovers import (
    ParcelKind,
    ParcelState,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)
from cormorant.testing import in_line
from tests.bounds import WAIT_S
from tests.clients.parcel_samples import HTML, MAGNET, NZB, TITLES, TORRENT, parcel, torrent_number


def blackhole(folder: Path, **options: Any) -> Blackhole:
    return Blackhole(folder, offload=in_line, **options)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def inside(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def half_done(folder: Path) -> list[str]:
    return [path.name for path in (folder / SIDE).iterdir() if path.suffix != ".json"]


def failing(code: int) -> Any:
    def fail(*_: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("kind", "name", "content"),
    [
        (ParcelKind.TORRENT, "A title.torrent", TORRENT),
        (ParcelKind.NZB, "A title.nzb", NZB),
        (ParcelKind.MAGNET, "A title.magnet", MAGNET.encode()),
    ],
)
async def test_a_file_lies_in_the_folder_until_it_is_taken(
    tmp_path: Path, kind: ParcelKind, name: str, content: bytes
) -> None:
    target = blackhole(tmp_path, allows_magnets=True)

    before = await target.status(parcel(kind), None)
    given = await target.submit(parcel(kind))
    lying = await target.status(parcel(kind), given)
    found = files(tmp_path)
    (tmp_path / name).unlink()
    taken = await target.status(parcel(kind), None)

    assert found == {name: content}
    assert [each.standing.value for each in (before, given, lying, taken)] == ["absent", "present", "present", "done"]
    assert half_done(tmp_path) == []


async def test_what_was_taken_is_not_given_again(tmp_path: Path) -> None:
    target = blackhole(tmp_path)
    await target.submit(parcel())
    (tmp_path / "A title.torrent").unlink()

    again = await target.submit(parcel())

    assert (again.standing, files(tmp_path)) == (ParcelState.DONE, {})


async def test_what_the_client_could_not_use_has_failed(tmp_path: Path) -> None:
    target = blackhole(tmp_path)
    await target.submit(parcel())
    (tmp_path / "A title.torrent").rename(tmp_path / "A title.torrent.qbt_rejected")

    assert (await target.status(parcel(), None)).standing is ParcelState.FAILED


async def test_magnets_are_refused_unless_allowed(tmp_path: Path) -> None:
    with pytest.raises(TargetRefused, match="takes no magnet"):
        await blackhole(tmp_path).submit(parcel(ParcelKind.MAGNET))


@pytest.mark.parametrize("title", [*TITLES.values(), "con.torrent", "a\0b\nc"], ids=[*TITLES, "reserved", "control"])
async def test_any_title_gives_a_file_inside_the_folder(tmp_path: Path, title: str) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()

    receipt = await blackhole(folder).submit(parcel(title=title))

    assert list(files(folder)) == [receipt.target_id]
    assert inside(tmp_path) == [folder]


async def test_equal_titles_do_not_overwrite_each_other(tmp_path: Path) -> None:
    target = blackhole(tmp_path)
    (tmp_path / "A title.torrent").write_bytes(b"not ours")

    await target.submit(parcel(key="one"))
    await target.submit(parcel(key="two", title="é" * 300, body=torrent_number(2)))
    await target.submit(parcel(key="three", title="é" * 300, body=torrent_number(3)))

    assert len(files(tmp_path)) == 4
    assert files(tmp_path)["A title.torrent"] == b"not ours"
    assert files(tmp_path)["A title (one).torrent"] == TORRENT


async def test_equal_titles_given_at_once_do_not_overwrite_each_other_either(tmp_path: Path) -> None:
    target = Blackhole(tmp_path, offload=in_thread)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(target.submit, parcel(key=f"key-{number}", body=torrent_number(number)))

    assert sorted(files(tmp_path).values()) == sorted(map(torrent_number, range(8)))


async def test_an_equal_file_of_the_same_name_counts_as_given(tmp_path: Path) -> None:
    target = blackhole(tmp_path)
    (tmp_path / "A title.torrent").write_bytes(TORRENT)

    given = await target.submit(parcel())
    (tmp_path / "A title.torrent").unlink()
    taken = await target.status(parcel(), None)

    assert (given.target_id, given.standing, taken.standing) == (
        "A title.torrent",
        ParcelState.PRESENT,
        ParcelState.DONE,
    )
    assert half_done(tmp_path) == []


@pytest.mark.parametrize("taken", ["a folder", "a pipe", "a link to nothing", "a link to itself"])
async def test_whatever_has_the_name_is_left_alone(tmp_path: Path, taken: str) -> None:
    path = tmp_path / "A title.torrent"
    if taken == "a folder":
        path.mkdir()
    elif taken == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if taken == "a link to itself" else tmp_path / "nothing")

    given = await blackhole(tmp_path).submit(parcel())

    assert given.target_id == "A title (want-7-1).torrent"
    assert (tmp_path / "A title (want-7-1).torrent").read_bytes() == TORRENT
    assert path in inside(tmp_path)


async def test_a_filesystem_without_links_overwrites_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    target = Blackhole(tmp_path, offload=in_thread)
    (tmp_path / "A title.torrent").write_bytes(b"not ours")

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(target.submit, parcel(key=f"key-{number}", body=torrent_number(number), title="Other"))
    await target.submit(parcel())

    assert sorted(files(tmp_path).values()) == sorted([b"not ours", TORRENT, *map(torrent_number, range(8))])
    assert half_done(tmp_path) == []


async def test_a_name_whose_mark_a_crash_has_left_is_not_told_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    target = blackhole(tmp_path)
    (tmp_path / "A title.torrent").write_bytes(b"not ours")
    keyed = os.fsencode(tmp_path / "A title (want-7-1).torrent")
    mark = tmp_path / SIDE / f"{hashlib.sha256(keyed).hexdigest()[:32]}.name"
    mark.parent.mkdir()
    mark.touch()

    with pytest.raises(TargetUnavailable, match=f"has left the mark {mark}; remove that file"):
        await target.submit(parcel())
    before = await target.status(parcel(), None)
    mark.unlink()
    await target.submit(parcel())

    assert before.standing is ParcelState.ABSENT
    assert files(tmp_path) == {"A title.torrent": b"not ours", "A title (want-7-1).torrent": TORRENT}


async def test_a_process_that_dies_right_after_the_name_was_given_has_given_it(tmp_path: Path) -> None:
    target = blackhole(tmp_path)
    await target.submit(parcel())
    note = json.loads((tmp_path / SIDE / "want-7-1.json").read_text())
    os.link(tmp_path / "A title.torrent", tmp_path / SIDE / note["part"])

    assert (await target.status(parcel(), None)).standing is ParcelState.PRESENT
    again = await target.submit(parcel())
    assert again.standing is ParcelState.PRESENT
    assert files(tmp_path) == {"A title.torrent": TORRENT}


GIVING = """
import sys, pathlib, trio
from cormorant.clients.targets.blackhole import Blackhole
from actors.environment import in_thread
from tests.clients.parcel_samples import parcel, torrent_number

async def give(folder, who):
    target = Blackhole(folder, offload=in_thread)
    async def one(number):
        await target.submit(parcel(key=f"{who}-{number}", title=f"Title {number}", body=torrent_number(2 * number + who)))
        await target.submit(parcel(key=f"both-{number}", title=f"Same {number}", body=torrent_number(number)))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(60):
        await one(number)

trio.run(give, pathlib.Path(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.mark.slow("two processes write into one folder")
def test_two_processes_that_share_a_folder_overwrite_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GIVING, str(tmp_path)]
    root = Path(__file__).parents[3]
    with ExitStack() as stack:
        givers = []
        for who in range(2):
            giver = stack.enter_context(
                subprocess.Popen([*command, str(who)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
            )
            stack.callback(giver.kill)
            givers.append(giver)
        for giver in givers:
            assert giver.stdout is not None
            assert giver.stdout.readline() == b"ready\n"
        for giver in givers:
            assert giver.stdin is not None
            giver.stdin.write(b"go\n")
            giver.stdin.flush()
        for giver in givers:
            giver.communicate(timeout=WAIT_S)

    assert [giver.returncode for giver in givers] == [0, 0]
    written = files(tmp_path)
    apart = sorted(body for name, body in written.items() if name.startswith("Title"))
    assert apart == sorted(map(torrent_number, range(120)))
    assert {name: written[name] for name in written if name.startswith("Same")} == {
        f"Same {number}.torrent": torrent_number(number) for number in range(60)
    }
    assert half_done(tmp_path) == []


@pytest.mark.parametrize("body", [HTML, b""])
async def test_what_is_no_torrent_is_never_written(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(TargetRefused, match="should be a torrent is none"):
        await blackhole(tmp_path).submit(parcel(body=body))

    assert inside(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "fsync"])
async def test_a_full_disk_leaves_nothing_behind_and_later_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    target = blackhole(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, call, failing(errno.ENOSPC))
        with pytest.raises(TargetUnavailable, match=r"is full .*; make room there"):
            await target.submit(parcel())
    left = half_done(tmp_path)

    assert (left, files(tmp_path)) == ([], {})
    assert (await target.status(parcel(), None)).standing is ParcelState.ABSENT
    assert (await target.submit(parcel())).standing is ParcelState.PRESENT


async def test_a_disk_that_fails_after_the_name_was_given_leaves_doubt_and_the_look_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, sync = blackhole(tmp_path), os.fsync
    synced: list[int] = []

    def fail_at_last(handle: int) -> None:
        synced.append(handle)
        # The file, the note, the folder of the note; then the folder itself.
        sync(handle) if len(synced) < 4 else failing(errno.EIO)()

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail_at_last)
        with pytest.raises(TargetInDoubt):
            await target.submit(parcel())

    assert (await target.status(parcel(), None)).standing is ParcelState.PRESENT


def die_before_the_name_is_given(folder: Path) -> None:
    (folder / SIDE).mkdir()
    part = folder / SIDE / "want-7-1.0f.part"
    part.write_bytes(TORRENT)
    note = {"path": "A title.torrent", "part": part.name}
    (folder / SIDE / "want-7-1.json").write_text(json.dumps(note))


async def test_a_process_that_dies_before_the_name_is_given_has_given_nothing(tmp_path: Path) -> None:
    die_before_the_name_is_given(tmp_path)
    target = blackhole(tmp_path)

    absent = await target.status(parcel(), None)
    await target.submit(parcel())

    assert absent.standing is ParcelState.ABSENT
    assert files(tmp_path) == {"A title.torrent": TORRENT}
    assert half_done(tmp_path) == []


async def test_a_second_try_that_fails_after_a_crash_has_given_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_before_the_name_is_given(tmp_path)
    target = blackhole(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, "write", failing(errno.ENOSPC))
        with pytest.raises(TargetUnavailable, match="is full"):
            await target.submit(parcel())

    assert (await target.status(parcel(), None)).standing is ParcelState.ABSENT
    await target.submit(parcel())
    assert files(tmp_path) == {"A title.torrent": TORRENT}


@pytest.mark.parametrize("note", ["", "{", "[]", '{"path": 7}', '{"path": "/etc/passwd"}', '{"path": "../x"}'])
async def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, note: str) -> None:
    (tmp_path / SIDE).mkdir()
    (tmp_path / SIDE / "want-7-1.json").write_text(note)

    assert (await blackhole(tmp_path).status(parcel(), None)).standing is ParcelState.ABSENT


async def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    target = blackhole(tmp_path / "unmounted")
    with pytest.raises(TargetMisconfigured, match="mount what belongs there"):
        await target.submit(parcel())
    with pytest.raises(TargetMisconfigured, match="unmounted is no folder"):
        await target.test()

    assert inside(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.EROFS, TargetMisconfigured), (errno.EFBIG, TargetRefused), (errno.EIO, TargetUnavailable)],
)
async def test_an_error_of_the_disk_says_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: Any
) -> None:
    monkeypatch.setattr(os, "write", failing(code))

    with pytest.raises(error) as caught:
        await blackhole(tmp_path).submit(parcel())

    assert type(caught.value) is error


async def test_the_test_writes_and_leaves_nothing(tmp_path: Path) -> None:
    assert await blackhole(tmp_path).test() == f"{tmp_path} can be written to"

    assert half_done(tmp_path) == []


async def test_a_name_that_cannot_be_given_leaves_no_note_that_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, given = blackhole(tmp_path), parcel()
    with monkeypatch.context() as broken:
        broken.setattr(os, "link", failing(errno.EACCES))
        with pytest.raises((TargetUnavailable, TargetMisconfigured, TargetInDoubt, TargetRefused)):
            await target.submit(given)

    assert (await target.status(given, None)).standing is ParcelState.ABSENT
    await target.submit(given)
    assert len(files(tmp_path)) == 1
