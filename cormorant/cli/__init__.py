"""The command line: parses words, prints answers, returns exit codes. What it does is done by the rooms below."""

from __future__ import annotations

import time
from importlib import import_module

import click
from typing_extensions import override

from cormorant import __version__
from cormorant.cli.console.command_line import HintingGroup

__all__ = ["STARTED_AT", "main"]

STARTED_AT = time.perf_counter()
"""When the program began, for "ready in …"."""

_COMMANDS = {
    name: name
    for name in (
        "run",
        "doctor",
        "init",
        "sources",
        "import",
        "clients",
        "connect",
        "disconnect",
        "search",
        "explain",
        "watchlist",
        "saved",
        "subscriptions",
        "schedule",
        "wants",
        "downloads",
        "targets",
        "notify",
        "prices",
        "jobs",
        "migrate",
    )
}
_COMMANDS["import"] = "adopt"  # no module can be called like the word that loads it
_MODULES = {"run": "service", "adopt": "import_indexers", "watchlist": "watches", "subscriptions": "feeds"}


class Commands(HintingGroup):
    """Loads a command when it is asked for: nobody waits for the imports of the others."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"cormorant.cli.{_MODULES.get(name, name)}"), name)
        return command


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Settings are in config.toml; docs/settings.md lists them all.",
)
@click.version_option(__version__, message="cormorant %(version)s")
def main() -> None:
    """One gate between your apps and the sites that can ban them.

    New here? `cormorant init` writes a settings file, `cormorant doctor` looks whether everything is in order,
    `cormorant run` starts the service.
    """
