"""The command line: commands, options, output and exit codes."""

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
    "run": "service.run",
    "doctor": "service.doctor",
    "init": "service.init",
    "sources": "sources.sources",
    "import": "import_indexers.adopt",
    "clients": "clients.clients",
    "connect": "connect.connect",
    "disconnect": "connect.disconnect",
    "search": "search.search",
    "explain": "sources.explain",
    "watchlist": "watches.watchlist",
    "saved": "watches.saved",
    "subscriptions": "feeds.subscriptions",
    "schedule": "feeds.schedule",
    "wants": "wants.wants",
    "downloads": "wants.downloads",
    "targets": "wants.targets",
    "notify": "service.notify",
    "prices": "prices.prices",
    "jobs": "jobs.jobs",
    "migrate": "service.migrate",
}
"""Each command, with the module and the name of its function."""


class Commands(HintingGroup):
    """Loads a command when it is asked for: nobody waits for the imports of the others."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(".")
        command: click.Command = getattr(import_module(f"cormorant.cli.{module}"), name)
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
