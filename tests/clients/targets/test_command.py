"""Handing over to a command: arguments and no shell, bounded, and ended with all that it started."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cormorant.clients.targets.command import Command
from cormorant.rules.watch.handovers import (
    ParcelKind,
    ParcelState,
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)
from cormorant.testing import in_line
from tests.bounds import WAIT_S
from tests.clients.parcel_samples import HTML, TITLES, TORRENT, parcel
from tests.waiting import until_deadline_in, wait_until


def script(folder: Path, *lines: str, mode: int = 0o700) -> str:
    path = folder / "take"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(mode)
    return str(path)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def command(program: str, *arguments: str, timeout_s: float = 60.0) -> Command:
    return Command((program, *arguments), timeout_s=timeout_s, offload=in_line)


def pipe(folder: Path) -> Path:
    path = folder / "pids"
    os.mkfifo(path)
    return path


async def pids_from(path: Path) -> list[int]:
    """The numbers that a script writes into the pipe. It waits until they are read."""
    return [int(number) for number in (await trio.to_thread.run_sync(read, path, abandon_on_cancel=True)).split()]


async def until_gone(pid: int) -> None:
    """Wait until a process has ended."""
    await trio.to_thread.run_sync(wait_until, lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    """Whether a process runs. A zombie, for which no parent waits, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_parcel_becomes_arguments(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = script(tmp_path, f'printf "%s|" "$@" > {out}', "echo took it")
    target = command(program, "--name={title}", "{artist}", "{kind}", "{key}")

    receipt = await target.submit(parcel(title="$(rm -rf /) `x` ; 'y' *", folder_parts={"artist": "-rf\nBjörk"}))

    assert (receipt.standing, receipt.reason) == (ParcelState.DONE, "took it")
    assert read(out) == "--name=$(rm -rf /) `x` ; 'y' *|_rf Björk|torrent|want-7-1|"


async def test_a_file_is_there_while_it_runs_and_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    receipt = await command(script(tmp_path, f'cat "$1" > {out}', 'echo "$1"'), "{file}").submit(parcel())

    assert out.read_bytes() == TORRENT
    assert (receipt.reason or "").endswith("/want-7-1.torrent")
    assert list(scratch.iterdir()) == []


async def test_nothing_of_our_environment_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORMORANT_WEB__KEY", "hunter2")

    assert (await command("/usr/bin/env").submit(parcel())).reason is None


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("echo full; exit 3", TargetRefused, r"refused it \(exit code 3\), and said: full"),
        (
            "echo busy >&2; exit 75",
            TargetUnavailable,
            r"cannot take it now \(exit code 75\), and said: busy",
        ),
        ("kill -9 $$", TargetInDoubt, "signal 9"),
    ],
)
async def test_its_end_says_what_follows(tmp_path: Path, line: str, error: type[TargetError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        await command(script(tmp_path, line)).submit(parcel())

    assert type(caught.value) is error


async def test_it_cannot_be_asked(tmp_path: Path) -> None:
    target = command(script(tmp_path))

    assert not target.can_be_asked
    assert (await target.status(parcel(), None)).standing is ParcelState.UNKNOWN


async def test_at_the_time_out_all_that_it_started_is_ended(tmp_path: Path, mock_clock: MockClock) -> None:
    pids, started = pipe(tmp_path), list[int]()
    program = script(tmp_path, "trap '' TERM", "(trap '' TERM; sleep 1000) &", f'echo "$$ $!" > {pids}', "wait")

    async def let_time_pass() -> None:
        started.extend(await pids_from(pids))
        for wait_s in (60, 2):  # the time-out, then the grace
            await until_deadline_in(wait_s)
            assert [is_running(pid) for pid in started] == [True, True]
            mock_clock.jump(wait_s)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_time_pass)
        with pytest.raises(TargetInDoubt, match="took longer than 60 s and was ended"):
            await command(program, timeout_s=60).submit(parcel())

    for pid in started:
        await until_gone(pid)


async def test_when_cancelled_all_that_it_started_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = pipe(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    target = command(script(tmp_path, "sleep 1000 &", f'echo "$$ $!" > {pids}', "wait"), "{file}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(target.submit, parcel())
        started = await pids_from(pids)
        nursery.cancel_scope.cancel()

    assert len(started) == 2
    for pid in started:
        await until_gone(pid)
    assert list(tmp_path.glob("cormorant-*")) == []  # noqa: ASYNC240 - an empty answer


@pytest.mark.slow("reads on for half a second after its end")
async def test_what_it_leaves_running_does_not_hold_it_up(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = script(tmp_path, "sleep 1000 &", f'echo "$!" > {pids}', "echo took it")

    with trio.fail_after(WAIT_S):
        receipt = await command(program, timeout_s=2 * WAIT_S).submit(parcel())
    pid = int(read(pids))
    was_running = is_running(pid)
    os.kill(pid, 9)

    assert receipt.reason == "took it"
    assert was_running


async def test_of_endless_words_the_last_are_kept(tmp_path: Path) -> None:
    program = script(tmp_path, "head -c 5000000 /dev/zero | tr '\\0' x", "echo", "echo the end", "exit 1")

    with pytest.raises(TargetRefused) as caught:
        await command(program).submit(parcel())

    assert str(caught.value).endswith("xxx the end")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("title", TITLES.values(), ids=TITLES)
async def test_any_title_is_one_argument(tmp_path: Path, title: str) -> None:
    receipt = await command(script(tmp_path, 'echo "$#"'), "{title}").submit(parcel(title=title + "\0\ud800"))

    assert receipt.reason == "1"


@pytest.mark.parametrize(
    "arguments", [(), ("",), ("{title}",), ("x", "{tilte}"), ("x", "{file}", "{link}"), ("x", "\0")]
)
def test_what_is_no_command_is_told_at_once(arguments: tuple[str, ...]) -> None:
    with pytest.raises(TargetMisconfigured, match="cannot be used"):
        Command(arguments, timeout_s=60.0, offload=in_line)


async def test_a_link_that_is_too_long_for_an_argument_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetRefused, match="as long as this"):
        await command(script(tmp_path), "{link}").submit(parcel(ParcelKind.URL, link="https://x.org/" + "x" * 200_000))


async def test_a_program_in_a_folder_of_path_is_found_by_the_test_and_by_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    take = command("take")

    assert await take.test() == f"{tmp_path / 'take'} can be run"
    assert (await take.submit(parcel())).standing is ParcelState.DONE


async def test_a_program_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    for target, words in (
        (command("no-such-program"), "there is no program no-such-program"),
        (command(script(tmp_path, mode=0o600)), "make it executable"),
    ):
        with pytest.raises(TargetMisconfigured, match=words):
            await target.submit(parcel())
    with pytest.raises(TargetMisconfigured, match="there is no program"):
        await command("no-such-program").test()
    assert await command("/bin/true").test() == "/bin/true can be run"


async def test_a_parcel_without_what_the_command_names_is_refused(tmp_path: Path) -> None:
    program = script(tmp_path)
    with pytest.raises(TargetRefused, match="takes no magnet, only nzb, torrent"):
        await command(program, "{file}").submit(parcel(ParcelKind.MAGNET))
    with pytest.raises(TargetRefused, match="takes no torrent, only magnet, url"):
        await command(program, "{link}").submit(parcel())
    with pytest.raises(TargetRefused, match="should be a torrent is none"):
        await command(program, "{file}").submit(parcel(body=HTML))
