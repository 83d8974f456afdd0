"""`cormorant run` on a fresh checkout: no account, no network, and something to see."""

from __future__ import annotations

import re
import shutil
import signal
import socket
from pathlib import Path

import pytest

from cormorant.cli.console.command_line import UsageRefused
from cormorant.cli.console.signals import StopSignals
from cormorant.cli.serve import serve
from tests.cli.program import ROOT, Program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the settings as they are shipped."""
    shutil.copy(ROOT / "config.toml", tmp_path)
    return tmp_path


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def line_after(program: Program, first: str, *others: str) -> str:
    """The first line with the first of these words, when all of them have come, in whatever order."""
    found: dict[str, str] = {}
    while len(found) < 1 + len(others):
        line = program.line_with("event=")
        found = {words: line for words in (first, *others) if words in line} | found
    return found[first]


@pytest.mark.slow("starts the program, which loads everything")
def test_the_shipped_settings_show_searches_and_their_reasons_by_themselves(folder: Path) -> None:
    listen = free_address()
    with Program("-m", "cormorant", "run", cwd=folder, CORMORANT_PLAYGROUND__LISTEN=listen) as program:
        ready = program.line_with(" ready in ")
        finished = line_after(program, "event=search.finished", "event=subscription.checked", "event=price.valued")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert "database data/playground/cormorant.db" in ready
    assert re.search(r" source=\w+ status=(found|failed) ", finished)
    assert ended.code == 0, ended.err
    assert "This is the playground: 7 invented sites on your machine, no account, no network." in ended.out
    assert re.search(r"  leave it +cormorant init ", ended.out)
    assert "  feeds        open-films, field-recordings, slow-news; " in ended.out
    assert "price.valued price=lantern cents=11850 currency=EUR points=11 match=exact" in ended.err
    assert f"level=warning event=playground.opened address=http://{listen} sites=7" in ended.err
    assert not (folder / "data" / "cormorant.db").exists()


@pytest.mark.slow("loads everything")
def test_a_playground_whose_port_is_taken_does_not_start_and_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("CORMORANT_PLAYGROUND__LISTEN", listen)
        with pytest.raises(UsageRefused) as refused:
            serve(str(folder / "config.toml"), StopSignals())

    assert refused.value.exit_code == 2
    assert str(refused.value).startswith(
        f"playground.listen: cannot listen on {listen}: address already in use; end what uses it, or set another"
    )
