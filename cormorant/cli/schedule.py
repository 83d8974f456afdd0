"""`cormorant schedule`: what runs when in the hours to come?"""

from __future__ import annotations

import sys

import click

from cormorant.cli.watch_options import EXIT_CODES, LIMIT, options

__all__ = ["schedule"]


@click.command(short_help="What runs when in the next hours.", epilog=EXIT_CODES)
@options
@click.option(
    "--hours",
    type=click.FloatRange(0, 24 * 366, min_open=True),
    default=24.0,
    show_default=True,
    help="So far is looked ahead.",
)
@click.option("--limit", type=LIMIT, default=200, show_default=True, help="So many times at most.")
def schedule(config: str, *, as_json: bool, hours: float, limit: int) -> None:
    """What runs when: subscriptions, saved searches, artists and prices, soonest first, each in its turn at its host.

    As far as it is known now: what fails, or waits for the limits of a source, comes later.
    """
    from cormorant.cli.actions.feeds import at_subscription_desk  # noqa: PLC0415 - `--help` need not wait for it

    sys.exit(at_subscription_desk(config, lambda desk: desk.schedule(hours=hours, limit=limit), as_json=as_json))
