"""`cormorant wants`: what is wanted, where it is and why, what was found for it, and what a person decides."""

from __future__ import annotations

import click

from cormorant.cli.console.command_line import HintingGroup
from cormorant.cli.watch_options import EXIT_CODES, LIMIT, RowId, at_desk, options
from cormorant.rules.watch.wants import WantState

__all__ = ["wants"]

_WANT = RowId("want")
_ID = click.argument("want_id", metavar="ID", type=_WANT)


@click.group(cls=HintingGroup, short_help="See what is wanted and why; retry, ignore, hand over.", epilog=EXIT_CODES)
def wants() -> None:
    """See what is wanted, where it is and why; search again, ignore, hand over by hand.

    Works beside a running service, which does the searching and sending, and without one.
    """


@wants.command("list", short_help="The newest wants, and where each is.", epilog=EXIT_CODES)
@options
@click.option("--state", type=click.Choice([state.value for state in WantState]), help="Only those in this state.")
@click.option("--before", type=_WANT, metavar="ID", help="Only older ones than this: the next page.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
def list_wants(config: str, *, as_json: bool, state: str | None, before: int | None, limit: int) -> None:
    """The newest wants first: their state, and why."""
    wanted = None if state is None else WantState(state)
    at_desk(config, lambda desk: desk.list_wants(wanted, before, limit), as_json=as_json)


@wants.command(short_help="One want with all that was found for it.", epilog=EXIT_CODES)
@options
@_ID
def show(config: str, *, as_json: bool, want_id: int) -> None:
    """Everything about a want: each candidate with what speaks for and against it, and its downloads. Links are not shown."""
    at_desk(config, lambda desk: desk.show_want(want_id), as_json=as_json)


@wants.command(short_help="Search again.", epilog=EXIT_CODES)
@options
@_ID
def retry(config: str, *, as_json: bool, want_id: int) -> None:
    """Search again now, also what was given up or ignored. Candidates that were tried in vain may be tried again."""
    at_desk(config, lambda desk: desk.retry_want(want_id), as_json=as_json)


@wants.command(short_help="Want it no more.", epilog=EXIT_CODES)
@options
@_ID
def ignore(config: str, *, as_json: bool, want_id: int) -> None:
    """Want it no more, until it is retried."""
    at_desk(config, lambda desk: desk.ignore_want(want_id), as_json=as_json)


@wants.command("hand-over", short_help="Hand a candidate over by hand.", epilog=EXIT_CODES)
@options
@_ID
@click.option(
    "--candidate", metavar="REF", help="Another one than is chosen, as `show` calls it; also one that does not fit."
)
def hand_over(config: str, *, as_json: bool, want_id: int, candidate: str | None) -> None:
    """Hand a candidate over by hand, also in observe mode. The service sends it."""
    at_desk(config, lambda desk: desk.hand_over(want_id, candidate), as_json=as_json)
