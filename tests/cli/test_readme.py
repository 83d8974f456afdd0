"""Every command and every snippet of the README runs, in order, in an empty folder, with stand-ins behind the host names."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field, frozen

from cormorant.cli import main
from tests.bounds import WAIT_S
from tests.cli.app_place import free_port
from tests.cli.program import ROOT, Program, environment
from tests.cli.stand_ins import KEY, hosts, running

README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMED_HOSTS = Path(__file__).parent / "named_hosts"
NOT_OURS = ("make run", ". .venv/bin/activate")
"""Commands that are not `cormorant`. The tests of the playground start it as `make run` does."""
PLAYGROUND = "Try it"


@frozen
class Block:
    """A code block of the README."""

    section: str
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for section in re.split(r"^## ", README, flags=re.MULTILINE):
        for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
            yield Block(section.partition("\n")[0], language, text)


def spotify_id() -> str:
    [settings] = [block.text for block in blocks() if block.language == "toml"]
    return str(tomllib.loads(settings)["sources"]["spotify"]["id"])


@define
class Reader:
    """Types what the README says."""

    folder: Path
    env: dict[str, str]
    typed: list[str] = field(factory=list)
    service: Program | None = None

    def read(self, block: Block) -> None:
        """Do what one block says."""
        if block.language == "toml":
            self.stop()
            with (self.folder / "config.toml").open("a", encoding="utf-8") as file:
                file.write(f"\n{block.text}")
        elif block.language == "python":
            subprocess.run([sys.executable, "-c", block.text], cwd=self.folder, env=self.env, check=True)
        elif block.language == "sh":
            for line in block.text.splitlines():
                self.type(line)

    def type(self, line: str) -> None:
        """Run one command."""
        if line in NOT_OURS:
            return
        program, *words = shlex.split(line, comments=True)
        assert program == "cormorant", f"the README has a command that no test runs: {line}"
        self.typed.append(" ".join(words))
        if words == ["run"]:
            self.start()
        elif words[0] == "init":
            self.press_enter(*words)
        else:
            done = subprocess.run(
                [sys.executable, "-m", "cormorant", *words],
                cwd=self.folder,
                env=self.env,
                input=f"{KEY}\n",
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"

    def start(self) -> None:
        """Start the service and wait until it is ready."""
        assert self.service is None, "the service is running already"
        self.service = Program("-m", "cormorant", "run", cwd=self.folder, **self.env)  # type: ignore[arg-type]  # only strings
        self.service.line_with(" ready in ")

    def press_enter(self, *words: str) -> None:
        """Run a command that asks, at a terminal, and take every default."""
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "cormorant", *words]
        with subprocess.Popen(command, cwd=self.folder, env=self.env, stdin=theirs, stdout=theirs) as asking:
            os.close(theirs)
            os.write(ours, b"\n" * 10)
            assert asking.wait(WAIT_S) == 0
        os.close(ours)

    def stop(self) -> None:
        """Press Ctrl-C, if there is something to stop."""
        if self.service is not None:
            self.service.send(signal.SIGINT)
            assert self.service.end().code == 0
            self.close()

    def close(self) -> None:
        """Leave nothing running."""
        if self.service is not None:
            self.service.__exit__(None, None, None)
            self.service = None


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """The environment of the reader: host names lead to stand-ins, and ports are free ones."""
    port = free_port()
    with running(hosts(spotify_id()), gate_port=port) as addresses:
        more = {
            "NAMED_HOSTS": json.dumps(addresses),
            "PYTHONPATH": f"{NAMED_HOSTS}{os.pathsep}{ROOT}",
            "SPOTIFY_SECRET": KEY,
            "QBITTORRENT_PASSWORD": KEY,
            "CORMORANT_WEB__ENABLED": "true",
            "CORMORANT_WEB__LISTEN": f"0.0.0.0:{port}",
        }
        yield environment() | more


@pytest.mark.slow("starts the program for every command")
def test_the_commands_for_the_playground_run_beside_it(env: dict[str, str], tmp_path: Path) -> None:
    shutil.copyfile(ROOT / "config.toml", tmp_path / "config.toml")
    ports = {"CORMORANT_PLAYGROUND__LISTEN": free_port(), "CORMORANT_WEB__LISTEN": free_port()}
    reader = Reader(tmp_path, env | {name: f"127.0.0.1:{port}" for name, port in ports.items()})
    wanted = [block for block in blocks() if block.section == PLAYGROUND]

    with closing(reader):
        reader.start()
        for block in wanted:
            reader.read(block)
        reader.stop()

    assert len(reader.typed) == 6


@pytest.mark.slow("starts the program for every command")
def test_everything_after_it_runs_in_an_empty_folder(env: dict[str, str], tmp_path: Path) -> None:
    spotify = {"CORMORANT_SOURCES__SPOTIFY__URL": "http://spotify:8000/v1"}
    reader = Reader(tmp_path, env)

    with closing(reader):
        for block in blocks():
            if block.section != PLAYGROUND:
                reader.read(block)
                reader.env |= spotify if block.language == "toml" else {}
        reader.stop()

    commands = {typed.split()[0] for typed in reader.typed}
    assert {"init", "import", "connect", "disconnect", "search", "watchlist", "saved", "subscriptions"} <= commands
    assert (tmp_path / "data" / "cormorant.db").exists()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`cormorant ([^`]+)`", README))))
def test_commands_in_the_text_exist(command: str) -> None:
    context: Any = main.make_context("cormorant", [], resilient_parsing=True)
    group: Any = main
    for word in command.split():
        if not hasattr(group, "get_command"):
            break
        group = group.get_command(context, word)
        assert group is not None, command
