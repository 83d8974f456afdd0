"""A folder with settings, for commands that talk to stand-ins in a playground that runs beside them."""

from __future__ import annotations

import json
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import trio
from attrs import define, field
from click.testing import CliRunner

from actors import SystemClock
from cormorant.cli import main
from cormorant.playground import Playground
from cormorant.playground.catalogue import PlayedCatalogue
from cormorant.playground.indexer import Habits, Indexer
from cormorant.testing import START
from tests.cli.program import Ended, environment

KEY = "the-key-of-the-app"
FAST = '[limits.private]\nspacing = "0s"\npace = "0s"\n[limits.default]\nspacing = "0s"\npace = "0s"\n'
CATALOGUE = PlayedCatalogue(START)


def indexer(name: str, **habits: Any) -> Indexer:
    """A site that answers at once."""
    return Indexer(name=name, habits=Habits(**habits), catalogue=CATALOGUE, clock=SystemClock())


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@define
class AppPlace:
    """Where the commands are run. `gate` is where the service listens, if it does."""

    folder: Path
    playground: Playground
    port: int = field(factory=free_port)

    def __attrs_post_init__(self) -> None:
        self.write("[clients.sonarr]\n")

    def write(self, more: str) -> Path:
        """Write the settings file."""
        file = self.folder / "config.toml"
        file.write_text(f'{FAST}[web]\nlisten = "127.0.0.1:{self.port}"\n{more}')
        return file

    @property
    def gate(self) -> str:
        """Our address as apps see it."""
        return f"http://127.0.0.1:{self.port}"

    async def run(self, *words: str, key: str = KEY) -> Ended:
        """Run `cormorant … --key-env …` in a thread, beside what runs here."""
        return await self.run_plain(*words, "--key-env", "APP_KEY", key=key)

    async def run_plain(self, *words: str, key: str = "") -> Ended:
        """Run `cormorant …` likewise."""
        return await trio.to_thread.run_sync(partial(self._run, *words, key=key))

    def _run(self, *words: str, key: str) -> Ended:
        config = str(self.folder / "config.toml")
        ours = environment(CORMORANT_CONFIG=config, APP_KEY=key, CORMORANT_WEB__ENABLED="true")
        others = dict.fromkeys(set(os.environ) - set(ours))
        ended = CliRunner(env=others | ours).invoke(main, list(words))
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return Ended(ended.exit_code, ended.stdout, ended.stderr)

    async def facts(self, *words: str, key: str = KEY) -> Any:
        """Run `cormorant … --json`, which must go well, and read what it says."""
        ended = await self.run(*words, "--json", key=key)
        assert ended.code == 0, ended.err + ended.out
        return json.loads(ended.out)
