"""`cormorant prices`: what things are worth, and alerts when that crosses a limit."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import click
from typing_extensions import override

from cormorant.cli.console.command_line import EXIT_CODES, HintingGroup, options
from cormorant.cli.jobs import Duration
from cormorant.cli.watch_options import LIMIT, NameList
from cormorant.rules.watch.prices import BadPrice, read_price

if TYPE_CHECKING:
    from cormorant.cli.actions.prices import PriceActions

__all__ = ["prices"]

_NAME = click.argument("name", metavar="NAME")


class Amount(click.ParamType[int]):
    """A price, in cents."""

    name = "amount"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else read_price(value).cents
        except BadPrice as error:
            self.fail(str(error), param, ctx)


@click.group(
    cls=HintingGroup,
    short_help="Watch prices: add, import, list, show, history, check, pause, remove.",
    epilog=EXIT_CODES,
)
def prices() -> None:
    """Watch prices: sources of kind prices are asked again and again, and the median of what was sold is the value.

    Works beside a running service, which does the asking, and without one. Those of the settings file are shown and paused
    here too; to change one, edit the file. One that was taken out of it stays, with all that was collected, until it is removed.
    """


@prices.command(short_help="Watch a price.", epilog=EXIT_CODES)
@options
@_NAME
@click.argument("title", metavar="TITLE")
@click.option("--year", default="", help="Its year.")
@click.option("--mintmark", default="", help="Its mintmark.")
@click.option("--denomination", default="", help="Its denomination.")
@click.option("--series", default="", help="Its series.")
@click.option("--search", "sources", type=NameList(), default="", metavar="A,B", help="Only these sources.")
@click.option("--every", "every_s", type=Duration(), metavar="DURATION", help="How often.  [default: 1d]")
@click.option("--currency", default="EUR", show_default=True, help="The currency that counts.")
@click.option("--below", "below_cents", type=Amount(), metavar="AMOUNT", help="Tell when it is worth less.")
@click.option("--above", "above_cents", type=Amount(), metavar="AMOUNT", help="Tell when it is worth more.")
def add(config: str, *, as_json: bool, name: str, title: str, every_s: float | None, **words: Any) -> None:
    """Watch a price under a NAME of your choice; all words of TITLE must be in the title of what is sold."""
    _run(
        config,
        lambda actions: actions.add(name, title, every_s=86_400.0 if every_s is None else every_s, **words),
        as_json=as_json,
        may_make=True,
    )


@prices.command("import", short_help="Take in a table: things to watch, or prices.", epilog=EXIT_CODES)
@options
@click.argument("file", metavar="FILE.csv", type=click.File("rb"))
def import_file(config: str, *, as_json: bool, file: BinaryIO) -> None:
    """Take in a table in CSV: things to watch, or prices of things that are watched. - is standard input.

    \b
    The first line names the columns.
    Things:  name, title  and, if you like,  year, mintmark, denomination, series, search, every, currency, below, above
    Prices:  name, price  and, if you like,  date, type, currency, title, url, id

    All lines are taken in or none, and every wrong one is told. What is there already is left as it is, so that the same file can
    be imported again.
    """  # noqa: D301  # click reads the backspace: do not wrap
    _run(config, lambda actions: actions.import_table(file), as_json=as_json, may_make=True)


@prices.command("list", short_help="All prices.", epilog=EXIT_CODES)
@options
def list_prices(config: str, *, as_json: bool) -> None:
    """All prices that are watched, each with its value."""
    _run(config, lambda actions: actions.list_prices(), as_json=as_json)


@prices.command(short_help="One price, with what sources state of it.", epilog=EXIT_CODES)
@options
@_NAME
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many points.")
def show(config: str, *, as_json: bool, name: str, limit: int) -> None:
    """One price with its newest points and alerts."""
    _run(config, lambda actions: actions.show(name, limit), as_json=as_json)


@prices.command(short_help="The values that a price had.", epilog=EXIT_CODES)
@options
@_NAME
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many values.")
def history(config: str, *, as_json: bool, name: str, limit: int) -> None:
    """The values that a price had, newest first, one for each change."""
    _run(config, lambda actions: actions.history(name, limit), as_json=as_json)


@prices.command(short_help="Ask its sources now.", epilog=EXIT_CODES)
@options
@_NAME
def check(config: str, *, as_json: bool, name: str) -> None:
    """Ask its sources as soon as they may be asked; what one has answered lately is not asked again."""
    _run(config, lambda actions: actions.check(name), as_json=as_json)


@prices.command(short_help="Leave a price alone for now.", epilog=EXIT_CODES)
@options
@_NAME
def pause(config: str, *, as_json: bool, name: str) -> None:
    """Ask nobody about a price until it is resumed, also after a restart. `check` asks all the same."""
    _run(config, lambda actions: actions.pause(name), as_json=as_json)


@prices.command(short_help="End a pause.", epilog=EXIT_CODES)
@options
@_NAME
def resume(config: str, *, as_json: bool, name: str) -> None:
    """Go on with a price: at its time, and soon if that has passed."""
    _run(config, lambda actions: actions.resume(name), as_json=as_json)


@prices.command(short_help="Watch a price no more.", epilog=EXIT_CODES)
@options
@_NAME
def remove(config: str, *, as_json: bool, name: str) -> None:
    """Watch a price no more, and forget what was collected."""
    _run(config, lambda actions: actions.remove(name), as_json=as_json)


def _run(
    config: str, action: Callable[[PriceActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> NoReturn:
    from cormorant.cli.actions.prices import run_price_action  # noqa: PLC0415  # `--help` need not wait for the database's driver

    sys.exit(run_price_action(config, action, as_json=as_json, may_make=may_make))
