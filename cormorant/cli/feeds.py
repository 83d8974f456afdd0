"""`cormorant subscriptions`: feeds that are checked again and again, and how the checks went."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar

import click

from cormorant.cli.console.command_line import EXIT_CODES, HintingGroup, options
from cormorant.cli.jobs import Duration
from cormorant.cli.watch_options import LIMIT, NameList
from cormorant.rules.addresses import FEED_LENGTH_MAX

if TYPE_CHECKING:
    from cormorant.cli.actions.feeds import FeedActions


F = TypeVar("F", bound=Callable[..., Any])

_NAME = click.argument("name", metavar="NAME")


def _run(
    config: str, action: Callable[[FeedActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> NoReturn:
    from cormorant.cli.actions.feeds import run_feed_action  # noqa: PLC0415 - `--help` need not wait for it

    sys.exit(run_feed_action(config, action, as_json=as_json, may_make=may_make))


def _order_options(command: F) -> F:
    """What can be said of a feed, or of all feeds of a file."""
    for option in (
        click.option(
            "--hand-to", type=NameList(), default="", metavar="T,U", help="Targets; the first that can takes it."
        ),
        click.option("--reject", multiple=True, metavar="PATTERN", help="None of these may be in the title."),
        click.option("--accept", multiple=True, metavar="PATTERN", help="One of these must be in the title."),
        click.option(
            "--take-all",
            is_flag=True,
            help="Also what is there already at the first check; otherwise only what is new.",
        ),
        click.option("--no-import", is_flag=True, help="Only count what is new, and hand nothing over."),
        click.option("--adaptive", is_flag=True, help="Busy feeds are checked more often, quiet ones less."),
        click.option("--zone", default="", metavar="ZONE", help="The zone of --cron, such as Europe/Berlin."),
        click.option("--cron", default="", metavar="TEXT", help='When it is checked, such as "0 */6 * * *".'),
        click.option(
            "--every", "every_s", type=Duration(), metavar="DURATION", help="How often it is checked.  [default: 6h]"
        ),
    ):
        command = option(command)
    return command


@click.group(cls=HintingGroup, short_help="Check feeds: add, list, show, pause, import, export.", epilog=EXIT_CODES)
def subscriptions() -> None:
    """Check feeds (RSS, Atom, JSON Feed) again and again: what is new and fits is wanted, and handed over.

    Works beside a running service, which does the checking, and without one. Those of the settings file are listed, paused
    and checked here too; to change or remove one, edit the file.
    """


@subscriptions.command(short_help="Subscribe to a feed.", epilog=EXIT_CODES)
@options
@_NAME
@click.argument("url", metavar="URL")
@_order_options
def add(config: str, *, as_json: bool, name: str, url: str, **order: Any) -> None:
    """Subscribe to the feed at URL under a NAME of your choice.

    With - instead of URL it is asked for, or read from standard input: then a key in it stands in no list of processes.
    """
    address = _asked() if url == "-" else url
    _run(config, lambda actions: actions.add(name, address, **order), as_json=as_json, may_make=True)


def _asked() -> str:
    if sys.stdin.isatty():
        found: str = click.prompt("Address of the feed (not shown)", hide_input=True, err=True)
        return found.strip()
    return sys.stdin.readline(FEED_LENGTH_MAX + 2).strip()


@subscriptions.command("list", short_help="All subscriptions.", epilog=EXIT_CODES)
@options
@click.option("--after", type=click.IntRange(0, 2**62), default=0, metavar="NO", help="Those after this number.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="So many at most.")
def list_subscriptions(config: str, *, as_json: bool, after: int, limit: int) -> None:
    """All subscriptions: how often, the next check, and what went wrong. Keys in addresses are hidden."""
    _run(config, lambda actions: actions.listed(after=after, limit=limit), as_json=as_json)


@subscriptions.command(short_help="One subscription and its last checks.", epilog=EXIT_CODES)
@options
@_NAME
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many checks at most.")
def show(config: str, *, as_json: bool, name: str, limit: int) -> None:
    """One subscription and how its last checks went. NAME may be a number, here and everywhere."""
    _run(config, lambda actions: actions.show(name, limit=limit), as_json=as_json)


@subscriptions.command(short_help="Subscribe no more.", epilog=EXIT_CODES)
@options
@_NAME
def remove(config: str, *, as_json: bool, name: str) -> None:
    """Subscribe no more. What was wanted stays."""
    _run(config, lambda actions: actions.remove(name), as_json=as_json)


@subscriptions.command(short_help="Leave a feed alone for now.", epilog=EXIT_CODES)
@options
@_NAME
def pause(config: str, *, as_json: bool, name: str) -> None:
    """Leave a feed alone until it is resumed, also after a restart."""
    _run(config, lambda actions: actions.pause(name), as_json=as_json)


@subscriptions.command(short_help="End a pause.", epilog=EXIT_CODES)
@options
@_NAME
def resume(config: str, *, as_json: bool, name: str) -> None:
    """Go on with a feed, whatever failed before."""
    _run(config, lambda actions: actions.resume(name), as_json=as_json)


@subscriptions.command(short_help="Check a feed now.", epilog=EXIT_CODES)
@options
@_NAME
def check(config: str, *, as_json: bool, name: str) -> None:
    """Let the running service check a feed at once."""
    _run(config, lambda actions: actions.check(name), as_json=as_json)


@subscriptions.command("next", short_help="Which feed is checked next.", epilog=EXIT_CODES)
@options
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many at most.")
def next_checks(config: str, *, as_json: bool, limit: int) -> None:
    """Which feeds are checked next, soonest first, as far as it is known now. `cormorant schedule` shows everything."""
    _run(config, lambda actions: actions.upcoming(limit=limit), as_json=as_json)


@subscriptions.command("import", short_help="Subscribe to all feeds of an OPML file.", epilog=EXIT_CODES)
@options
@click.argument("file", metavar="FILE.opml", type=click.File("rb"))
@_order_options
def import_file(config: str, *, as_json: bool, file: BinaryIO, **order: Any) -> None:
    """Subscribe to all feeds of an OPML file, as other readers export it. - is standard input.

    All are added or none. Feeds that are subscribed to already are left as they are; a name that is taken gets a number.
    The first checks are spread out. Folders are kept, and are in what `export` writes.
    """
    _run(config, lambda actions: actions.import_opml(file, **order), as_json=as_json, may_make=True)


@subscriptions.command("export", short_help="Write all feeds as OPML.", epilog=EXIT_CODES)
@options
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False, path_type=Path))
def export(config: str, *, as_json: bool, file: Path | None) -> None:
    """Write all feeds as OPML to a new file, or to standard output. Keys in addresses are in it: keep it to yourself."""
    _run(config, lambda actions: actions.export(file), as_json=as_json)


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
    from cormorant.cli.actions.feeds import run_feed_action  # noqa: PLC0415 - `--help` need not wait for it

    sys.exit(run_feed_action(config, lambda actions: actions.schedule(hours=hours, limit=limit), as_json=as_json))
