"""Streams that are closed, full or stuck: words may get lost, the service and its exit code do not."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cormorant.cli.console.output import attempt, write
from tests.bounds import WAIT_S
from tests.cli.program import Program, environment

ODD_TREE = str(Path(__file__).parents[1] / "odd_tree.py")
STARTS = pytest.mark.slow("starts the program, which loads everything")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a settings file that changes nothing."""
    (tmp_path / "config.toml").write_text("")
    return tmp_path


@contextmanager
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[io.BufferedReader, int]]:
    """Standard output that goes into a pipe: the end to read from, and the number of the other."""
    # Not a fixture: pytest puts a stream of its own in place before the test itself.
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "w", encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        yield read, writer


def fill(writer: int) -> None:
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)


def test_what_is_said_is_written_at_once_in_any_alphabet(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped(monkeypatch) as (read, _):
        write("zur\u00fcck in caf\udce9")

        assert read.readline() == rb"zur\xfcck in caf\udce9" + b"\n"


def test_a_reader_that_is_gone_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped(monkeypatch) as (read, _):
        read.close()

        write("nobody hears this")


def test_a_stream_that_takes_nothing_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped(monkeypatch) as (read, writer):
        fill(writer)

        write("there is no room for this", within_s=0.02)

        read.close()  # lets the thread go


def test_without_a_stream_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    write("nobody hears this", err=True)


def test_a_stream_in_memory_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)

    write("two\nlines")

    assert stream.getvalue() == "two\nlines\n"


def test_an_attempt_that_succeeds_is_over_when_it_returns() -> None:
    done = threading.Event()

    attempt(done.set, within_s=WAIT_S)

    assert done.is_set()


OPEN_A_FILE = """
import os, sys
from cormorant.cli.console.output import open_missing
open_missing()
print("lost", flush=True)
print("lost", file=sys.stderr, flush=True)
number = os.open("file", os.O_WRONLY | os.O_CREAT)
os.write(number, f"{number}".encode())
"""


@pytest.mark.slow("starts Python")
def test_a_file_does_not_get_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", OPEN_A_FILE],
        cwd=tmp_path,
        env=environment(),
        timeout=WAIT_S,
        check=True,
    )

    assert int((tmp_path / "file").read_text()) > 2


@STARTS
@pytest.mark.parametrize("redirect", [">&-", ">/dev/full", "2>&-", "2>/dev/full", ">&- 2>&- <&-"])
def test_the_service_lives_and_stops_in_good_order_whatever_its_streams_are(folder: Path, redirect: str) -> None:
    with Program(ODD_TREE, "none", cwd=folder, redirect=redirect) as program:
        program.line_with("spoke")
        program.send(signal.SIGTERM)
        program.line_with("spoke")
        ended = program.end()

    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    assert (folder / "data" / "cormorant.db").exists()


@STARTS
@pytest.mark.parametrize("lines", [0, 1])
def test_a_reader_of_standard_output_that_leaves_ends_nothing(folder: Path, lines: int) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as read, Program("-m", "cormorant", "run", cwd=folder, out=writer) as program:
        os.close(writer)
        for _ in range(lines):
            read.readline()
        read.close()
        program.line_with("event=service.ready")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert ended.code == 0, ended.err
    assert "event=service.stopping why=asked" in ended.err
    assert "Traceback" not in ended.err


@STARTS
def test_one_pipe_for_all_that_nobody_reads_holds_up_nothing(folder: Path) -> None:
    reader, writer = os.pipe()
    with Program(ODD_TREE, "chatter", cwd=folder, out=writer, err=writer) as program:
        os.close(writer)
        program.line_with("said it all")
        program.send(signal.SIGTERM)
        program.line_with("draining")
        ended = program.end()
    os.close(reader)

    assert ended.code == 0


@STARTS
def test_a_log_that_nobody_reads_does_not_hold_up_the_end(folder: Path) -> None:
    with Program(ODD_TREE, "chatter", cwd=folder, reads_log=False) as program:
        program.line_with("said it all")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert ended.code == 0
    assert "stopped in good order" in ended.out


@STARTS
def test_a_refusal_that_cannot_be_told_still_has_its_exit_code(folder: Path) -> None:
    (folder / "config.toml").write_text("data = = 3")

    with Program("-m", "cormorant", "run", cwd=folder, redirect="2>/dev/full") as program:
        ended = program.end()

    assert ended.code == 2
