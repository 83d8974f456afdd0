"""`cormorant downloads`: what was handed to which target, how far it is, and what to do about what is held."""

from __future__ import annotations

import click

from cormorant.cli.console.command_line import HintingGroup
from cormorant.cli.watch_options import EXIT_CODES, LIMIT, RowId, at_desk, options

__all__ = ["downloads"]

_DOWNLOAD = RowId("download")
_ID = click.argument("number", metavar="ID", type=_DOWNLOAD)


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
    at_desk(config, lambda desk: desk.list_downloads(before, limit), as_json=as_json)


@downloads.command(short_help="Everything about one download.", epilog=EXIT_CODES)
@options
@_ID
def show(config: str, *, as_json: bool, number: int) -> None:
    """Its target, state and reason, how often it was sent, and its want."""
    at_desk(config, lambda desk: desk.show_download(number), as_json=as_json)


@downloads.command(short_help="What is held has arrived.", epilog=EXIT_CODES)
@options
@_ID
def arrived(config: str, *, as_json: bool, number: int) -> None:
    """Say that a download that is held has arrived: its want is done."""
    at_desk(config, lambda desk: desk.settle(number, has_arrived=True), as_json=as_json)


@downloads.command("send-again", short_help="What is held has not arrived.", epilog=EXIT_CODES)
@options
@_ID
def send_again(config: str, *, as_json: bool, number: int) -> None:
    """Say that a download that is held has not arrived: it is sent once more, under the same key."""
    at_desk(config, lambda desk: desk.settle(number, has_arrived=False), as_json=as_json)
