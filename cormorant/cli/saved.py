"""`cormorant saved`: searches that are repeated, and what is new in them is wanted."""

from __future__ import annotations

from typing import Any

import click

from cormorant.cli.console.command_line import HintingGroup
from cormorant.cli.watch_options import EXIT_CODES, at_desk, options, order_options

__all__ = ["saved"]

_NAME = click.argument("name", metavar="NAME")


@click.group(cls=HintingGroup, short_help="Repeat searches: add, list, pause, check, remove.", epilog=EXIT_CODES)
def saved() -> None:
    """Repeat searches: what is new in them and fits is wanted, and handed over.

    Works beside a running service, which does the searching, and without one. Those of the settings file are listed, paused
    and checked here too; to change or remove one, edit the file.
    """


@saved.command(short_help="Repeat a search.", epilog=EXIT_CODES)
@options
@_NAME
@click.argument("words", metavar="[WORDS]", required=False, default="")
@click.option("--categories", metavar="N,M", default="", help="Only in these categories, such as 3040.")
@order_options(every="6h")
@click.option(
    "--take-all", is_flag=True, help="Also what is there already at the first check; otherwise only what is new."
)
def add(config: str, *, as_json: bool, name: str, words: str, categories: str, take_all: bool, **order: Any) -> None:
    """Repeat a search under a NAME of your choice. WORDS may be left out if there are categories: all that is new in them."""
    numbers = [part.strip() for part in categories.split(",") if part.strip()]
    if any(not part.isascii() or not part.isdecimal() or len(part) > len("1000000") for part in numbers):
        raise click.BadParameter("give numbers with commas between them, such as 3040,3010", param_hint="--categories")
    chosen = list(map(int, numbers))
    at_desk(
        config,
        lambda desk: desk.add_search(name, words, chosen, takes_all=take_all, **order),
        as_json=as_json,
        may_make=True,
    )


@saved.command("list", short_help="All saved searches.", epilog=EXIT_CODES)
@options
def list_saved(config: str, *, as_json: bool) -> None:
    """All saved searches: how often, the next check, and what went wrong."""
    at_desk(config, lambda desk: desk.list_searches(), as_json=as_json)


@saved.command(short_help="Repeat a search no more.", epilog=EXIT_CODES)
@options
@_NAME
def remove(config: str, *, as_json: bool, name: str) -> None:
    """Repeat a search no more. What was found stays."""
    at_desk(config, lambda desk: desk.remove_search(name), as_json=as_json)


@saved.command(short_help="Leave a search alone for now.", epilog=EXIT_CODES)
@options
@_NAME
def pause(config: str, *, as_json: bool, name: str) -> None:
    """Leave a search alone until it is resumed, also after a restart."""
    at_desk(config, lambda desk: desk.pause_search(name, is_paused=True), as_json=as_json)


@saved.command(short_help="End a pause.", epilog=EXIT_CODES)
@options
@_NAME
def resume(config: str, *, as_json: bool, name: str) -> None:
    """Go on with a search that was paused."""
    at_desk(config, lambda desk: desk.pause_search(name, is_paused=False), as_json=as_json)


@saved.command(short_help="Repeat a search at the next look.", epilog=EXIT_CODES)
@options
@_NAME
def check(config: str, *, as_json: bool, name: str) -> None:
    """Repeat a search at the next look of the service, as soon as its sources may be asked."""
    at_desk(config, lambda desk: desk.check_search(name), as_json=as_json)
