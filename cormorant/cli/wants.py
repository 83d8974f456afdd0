"""`cormorant wants`: what is wanted, where it is and why, what was found for it, and what a person decides."""

from __future__ import annotations

import click

from cormorant.cli.console.command_line import EXIT_CODES, HintingGroup, options
from cormorant.cli.watch_options import LIMIT, RowId, run_action
from cormorant.rules.watch.wants import WantState

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
    run_action(config, lambda actions: actions.list_wants(wanted, before, limit), as_json=as_json)


@wants.command(short_help="One want with all that was found for it.", epilog=EXIT_CODES)
@options
@_ID
def show(config: str, *, as_json: bool, want_id: int) -> None:
    """Everything about a want: each candidate with what speaks for and against it, and its downloads. Links are not shown."""
    run_action(config, lambda actions: actions.show_want(want_id), as_json=as_json)


@wants.command(short_help="Search again.", epilog=EXIT_CODES)
@options
@_ID
def retry(config: str, *, as_json: bool, want_id: int) -> None:
    """Search again now, also what was given up or ignored. Candidates that were tried in vain may be tried again."""
    run_action(config, lambda actions: actions.retry_want(want_id), as_json=as_json)


@wants.command(short_help="Want it no more.", epilog=EXIT_CODES)
@options
@_ID
def ignore(config: str, *, as_json: bool, want_id: int) -> None:
    """Want it no more, until it is retried."""
    run_action(config, lambda actions: actions.ignore_want(want_id), as_json=as_json)


@wants.command("hand-over", short_help="Hand a candidate over by hand.", epilog=EXIT_CODES)
@options
@_ID
@click.option(
    "--candidate", metavar="REF", help="Another one than is chosen, as `show` calls it; also one that does not fit."
)
def hand_over(config: str, *, as_json: bool, want_id: int, candidate: str | None) -> None:
    """Hand a candidate over by hand, also in observe mode. The service sends it."""
    run_action(config, lambda actions: actions.hand_over(want_id, candidate), as_json=as_json)


_DOWNLOAD = RowId("download")
_DOWNLOAD_ID = click.argument("number", metavar="ID", type=_DOWNLOAD)


@click.group(cls=HintingGroup, short_help="See what was handed over; decide what is held.", epilog=EXIT_CODES)
def downloads() -> None:
    """See what was handed over, to whom and how far it is; decide about what is held.

    Held is what may have arrived at a target that cannot be asked: look there, then say which it is.
    """


@downloads.command("list", short_help="The newest downloads, and how far each is.", epilog=EXIT_CODES)
@options
@click.option("--before", type=_DOWNLOAD, metavar="ID", help="Only older ones than this: the next page.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
def list_downloads(config: str, *, as_json: bool, before: int | None, limit: int) -> None:
    """The newest first."""
    run_action(config, lambda actions: actions.list_downloads(before, limit), as_json=as_json)


@downloads.command("show", short_help="Everything about one download.", epilog=EXIT_CODES)
@options
@_DOWNLOAD_ID
def show_download(config: str, *, as_json: bool, number: int) -> None:
    """Its target, state and reason, how often it was sent, and its want."""
    run_action(config, lambda actions: actions.show_download(number), as_json=as_json)


@downloads.command(short_help="What is held has arrived.", epilog=EXIT_CODES)
@options
@_DOWNLOAD_ID
def arrived(config: str, *, as_json: bool, number: int) -> None:
    """Say that a download that is held has arrived: its want is done."""
    run_action(config, lambda actions: actions.settle(number, has_arrived=True), as_json=as_json)


@downloads.command("send-again", short_help="What is held has not arrived.", epilog=EXIT_CODES)
@options
@_DOWNLOAD_ID
def send_again(config: str, *, as_json: bool, number: int) -> None:
    """Say that a download that is held has not arrived: it is sent once more, under the same key."""
    run_action(config, lambda actions: actions.settle(number, has_arrived=False), as_json=as_json)


@click.group(cls=HintingGroup, short_help="List and test those that take finds.", epilog=EXIT_CODES)
def targets() -> None:
    """List and test those that take finds: [targets.NAME] of the settings file."""


@targets.command("list", short_help="All targets, and what each takes.", epilog=EXIT_CODES)
@options
def list_targets(config: str, *, as_json: bool) -> None:
    """All targets: what each takes, whether it can be asked, and what happens in doubt. Addresses and keys are not shown."""
    run_action(config, lambda actions: actions.list_targets(), as_json=as_json, may_make=True)


@targets.command("test", short_help="Try a target out.", epilog=EXIT_CODES)
@options
@click.argument("name", metavar="NAME")
def test_target(config: str, *, as_json: bool, name: str) -> None:
    """Try address and credentials of a target. Nothing is given to it."""
    run_action(config, lambda actions: actions.test_target(name), as_json=as_json, may_make=True)
