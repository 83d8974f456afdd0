"""Signals at every moment of the program's life: the first asks, the second ends it, whatever the streams do."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.bounds import WAIT_S
from tests.cli.program import Program

pytestmark = pytest.mark.slow("starts the program, which loads everything")

ODD_TREE = str(Path(__file__).parents[1] / "odd_tree.py")

STOPPED_WHILE_LOADING = """
import os, signal, sys
from importlib.abc import MetaPathFinder
from cormorant.cli import main

class Alarm(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "trio":
            os.kill(os.getpid(), signal.SIG{name})

sys.meta_path.insert(0, Alarm())
main(["run"])
"""

STOPPED_WHILE_LOGGING = """
import os, signal, sys
from functools import partial
from cormorant.cli.console.signals import StopSignals
from cormorant.rules.settings.settings import LogSettings
from cormorant.log import LogWriter

signals = StopSignals()
signals.install()
signals.ask = lambda: None
with LogWriter(LogSettings(), stream=sys.stderr) as log:
    signals.last_words = partial(log.close, 0.5)
    with log._lock, log._waiting._cond:  # as it is in the midst of taking an event
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a settings file that changes nothing."""
    (tmp_path / "config.toml").write_text("")
    return tmp_path


def test_a_second_signal_ends_it_at_once_with_code_1(folder: Path) -> None:
    with Program(ODD_TREE, "dawdle", cwd=folder) as program:
        program.line_with("event=service.ready")  # from here on the log is written at once
        program.send(signal.SIGTERM)
        program.line_with("asked to stop")
        program.send(signal.SIGINT)
        ended = program.end()

    assert ended.code == 1
    assert "stopped at once by a second signal" in ended.err
    assert "event=service.stopping" in ended.err


def test_a_second_signal_ends_it_even_when_the_loop_is_stuck(folder: Path) -> None:
    with Program(ODD_TREE, "freeze", cwd=folder) as program:
        program.line_with("frozen")
        program.send(signal.SIGTERM)
        program.send(signal.SIGINT)
        ended = program.end()

    assert ended.code == 1


def test_a_second_signal_ends_it_although_nobody_reads_standard_error(folder: Path) -> None:
    with Program(ODD_TREE, "chatter and dawdle", cwd=folder, reads_log=False) as program:
        program.line_with("said it all")
        program.line_with(" ready in ")
        program.send(signal.SIGTERM)
        program.line_with("asked to stop")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert ended.code == 1
    assert "by force" not in ended.out  # the report of an orderly stop, which would have waited for the grace


def test_a_second_signal_ends_it_although_the_reader_of_standard_error_is_gone(folder: Path) -> None:
    reader, writer = os.pipe()
    with Program(ODD_TREE, "dawdle", cwd=folder, err=writer) as program:
        program.line_with(" ready in ")
        os.close(reader)
        os.close(writer)
        program.send(signal.SIGTERM)
        program.line_with("asked to stop")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert ended.code == 1
    assert "by force" not in ended.out  # it did not even try to stop in order


def test_a_second_signal_ends_it_in_the_midst_of_taking_an_event(folder: Path) -> None:
    with Program("-c", STOPPED_WHILE_LOGGING, cwd=folder) as program:
        ended = program.end()

    assert ended.code == 1
    assert "stopped at once by a second signal" in ended.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_last_of_the_log_is_written_ends_it_at_once(folder: Path, number: signal.Signals) -> None:
    with Program(ODD_TREE, "chatter for ever", cwd=folder, reads_log=False) as program:
        program.line_with("said it all")
        program.send(signal.SIGTERM)
        program.line_with("draining")
        program.send(number)
        ended = program.end()

    assert ended.code == 1
    assert "stopped in good order" not in ended.out


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_told_to_stop_while_it_loads_it_leaves_with_one_line(folder: Path, name: str) -> None:
    with Program("-c", STOPPED_WHILE_LOADING.replace("{name}", name), cwd=folder) as program:
        ended = program.end()

    assert (ended.code, ended.out, ended.err) == (0, "stopped before it was ready\n", "")
    assert [path.name for path in folder.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_it_looks_at_the_database_it_leaves_with_one_line(
    folder: Path, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WAIT_S)
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/x"
        with Program("-m", "cormorant", "run", cwd=folder, CORMORANT_STORAGE__URL=url) as program:
            caller, _ = silent.accept()
            program.send(number)
            ended = program.end()
            caller.close()

    assert (ended.code, ended.out, ended.err) == (0, "stopped before it was ready\n", "")
    assert [path.name for path in folder.iterdir()] == ["config.toml"]
