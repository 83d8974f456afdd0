"""`cormorant explain`: why does a site wait, and until when?"""

from __future__ import annotations

import sys

import click

from cormorant.cli.console.command_line import config_option, json_option
from cormorant.cli.sources import EXIT_CODES
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.priorities import Priority

__all__ = ["PRIORITIES", "explain"]

PRIORITIES = click.Choice([priority.name.lower() for priority in Priority])


@click.command(short_help="Why a site waits, gate by gate, and until when.", epilog=EXIT_CODES)
@config_option
@json_option
@click.argument("source", metavar="SOURCE")
@click.option("--priority", type=PRIORITIES, default="interactive", show_default=True, help="For whom it is asked.")
@click.option("--grab", is_flag=True, help="For a download instead of a search.")
def explain(config: str, *, as_json: bool, source: str, priority: str, grab: bool) -> None:
    """Every gate before a site in order: when it opens and why, what is spent, and when the next request can go."""
    from cormorant.cli.actions.sources import at_source_desk  # noqa: PLC0415  # `--help` need not wait for the database's driver

    lane, urgency = Lane.GRAB if grab else Lane.QUERY, Priority[priority.upper()]
    sys.exit(at_source_desk(config, lambda desk: desk.explain(source, urgency, lane), as_json=as_json))
