"""`cormorant targets`: whom finds can be handed to, and whether each answers."""

from __future__ import annotations

import click

from cormorant.cli.console.command_line import HintingGroup
from cormorant.cli.watch_options import EXIT_CODES, at_desk, options

__all__ = ["targets"]


@click.group(cls=HintingGroup, short_help="List and test those that take finds.", epilog=EXIT_CODES)
def targets() -> None:
    """List and test those that take finds: [targets.NAME] of the settings file."""


@targets.command("list", short_help="All targets, and what each takes.", epilog=EXIT_CODES)
@options
def list_targets(config: str, *, as_json: bool) -> None:
    """All targets: what each takes, whether it can be asked, and what happens in doubt. Addresses and keys are not shown."""
    at_desk(config, lambda desk: desk.list_targets(), as_json=as_json, may_make=True)


@targets.command(short_help="Try a target out.", epilog=EXIT_CODES)
@options
@click.argument("name", metavar="NAME")
def test(config: str, *, as_json: bool, name: str) -> None:
    """Try address and credentials of a target. Nothing is given to it."""
    at_desk(config, lambda desk: desk.test_target(name), as_json=as_json, may_make=True)
