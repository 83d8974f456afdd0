"""`cormorant prices`: what things are worth, and alerts when that crosses a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from attrs import frozen

from cormorant.cli.console.command_line import EXIT_CODES, LIMIT, HintingGroup, UsageRefused
from cormorant.cli.console.output import counted, pairs, printable, table
from cormorant.cli.watches import WatchCommands, WatchText, watch_options
from cormorant.rules.settings.watch import PriceSettings, options_from
from cormorant.rules.units import format_duration
from cormorant.rules.watch.price_import import (
    BYTES_MAX,
    CsvTable,
    NotATable,
    WrongLines,
    points_in,
    read_table,
    things_in,
)
from cormorant.rules.watch.prices import (
    MatchStrength,
    PointType,
    Valuation,
    as_money,
)
from cormorant.rules.watch.watches import TAKEN_OUT
from cormorant.services.watch.views import (
    AlertOut,
    PointOut,
    PriceOut,
    PriceShownOut,
    ValueOut,
    price_out,
    price_shown_out,
    value_out,
)

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession
    from storage.watch.prices import Alert, Collected, PriceView


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


@prices.session_command("Watch a price.", may_make=True)
@click.argument("name", metavar="NAME")
@click.argument("title", metavar="TITLE")
@watch_options(PriceSettings, without=("title",))
async def add(session: CommandSession, name: str, **given: Any) -> int:
    """Watch a price under a NAME of your choice; all words of TITLE must be in the title of what is sold."""
    made = await session.assembly.watching.prices.add(name, options_from(PriceSettings, given))
    shown = price_out(made)
    told = f"{name} is watched every {format_duration(made.every_s)}; a running service asks its sources at once"
    return session.show({"added": shown}, [told])


@prices.session_command("Take in a table: things to watch, or prices.", name="import", may_make=True)
@click.argument("file", metavar="FILE.csv", type=click.File("rb"))
async def import_file(session: CommandSession, file: BinaryIO) -> int:
    """Take in a table in CSV: things to watch, or prices of things that are watched. - is standard input.

    \b
    The first line names the columns.
    Things:  name, title  and, if you like,  year, mintmark, denomination, series, search, every, currency, below, above
    Prices:  name, price  and, if you like,  date, type, currency, title, url, id

    All lines are taken in or none, and every wrong one is told. What is there already is left as it is, so that the same file can
    be imported again.
    """  # noqa: D301  # click reads the backspace: do not wrap
    try:
        table = read_table(file.read(BYTES_MAX + 1))
        return await (_import_points(session, table) if table.has_prices else _import_things(session, table))
    except NotATable as problem:
        raise UsageRefused(f"FILE: {problem}; nothing was imported") from None
    except WrongLines as wrong:
        raise UsageRefused(
            f"FILE: {counted(wrong.count, 'line')} cannot be used, nothing was imported", wrong.problems
        ) from None


async def _import_things(session: CommandSession, table: CsvTable) -> int:
    prices = session.assembly.watching.prices
    added, known = await prices.add_new(things_in(table, prices.wanted))
    told = [f"{counted(len(added), 'thing')} added, {len(known)} known already and left as they are"]
    if added:
        told += ["a running service asks their sources, two seconds apart"]
    return session.show({"added": [each.name for each in added], "known": known}, told)


async def _import_points(session: CommandSession, table: CsvTable) -> int:
    prices = session.assembly.watching.prices
    views = await prices.all_views()
    unseen = _unseen(session, views)
    if any(row.cells["name"] in unseen for row in table.rows):
        raise UsageRefused(f"FILE: {', '.join(unseen)} is watched after the next start; run `cormorant run` first")
    points = points_in(table, {each.intake.name: each.intake for each in views}, now=session.now)
    done = await prices.write_down(points)
    written = sum(each.written for each in done)
    known = len(table.rows) - written
    facts = {"written": written, "known": known, "prices": [_written_facts(each) for each in done]}
    told = [f"{counted(written, 'price')} imported, {known} known already"]
    return session.show(facts, [*told, *_written_lines(done)])


def _written_facts(done: Collected) -> dict[str, Any]:
    value = None if done.valuation is None else value_out(done.valuation)
    return {"price": done.intake.name, "written": done.written, "value": value}


def _written_lines(done: Sequence[Collected]) -> Iterator[str]:
    for each in done:
        yield f"  {each.intake.name}: {_worth(each.valuation)}"
    for each in done:
        if each.alert:
            yield f"  {each.intake.name} is {_crossed(each.alert)}; nobody is told of what was imported"


@prices.session_command("All prices.", name="list")
async def list_prices(session: CommandSession) -> int:
    """All prices that are watched, each with its value."""
    views = await session.assembly.watching.prices.all_views()
    found = [price_out(each.intake, each.valuation) for each in views]
    waiting = [
        f"{name} is in the settings file, and watched from the next start on" for name in _unseen(session, views)
    ]
    lines = [*_text(session).listed(found), *waiting]
    empty = "no price is watched; cormorant prices add NAME TITLE adds one"
    return session.show({"prices": found}, lines or [empty])


def _unseen(session: CommandSession, views: Iterable[PriceView]) -> list[str]:
    """Those of the settings file that no service has seen yet."""
    return sorted(set(session.settings.prices) - {each.intake.name for each in views})


@prices.session_command("One price, with what sources state of it.")
@click.argument("name", metavar="NAME")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many points.")
async def show(session: CommandSession, name: str, limit: int) -> int:
    """One price with its newest points and alerts."""
    prices = session.assembly.watching.prices
    view = await prices.show(name, limit=limit)
    shown = price_shown_out(view)
    return session.show(shown, _text(session).shown(shown, sources=prices.sources_of(view.intake)))


@prices.session_command("The values that a price had.")
@click.argument("name", metavar="NAME")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many values.")
async def history(session: CommandSession, name: str, limit: int) -> int:
    """The values that a price had, newest first, one for each change."""
    found = [value_out(each) for each in await session.assembly.watching.prices.history(name, limit=limit)]
    return session.show({"history": found}, _text(session).history(found))


PRICES = WatchCommands(
    group=prices,
    command="prices",
    key="price",
    what="a price",
    service=lambda session: session.assembly.watching.prices,
    after_check=lambda session, price: {"sources": len(session.assembly.watching.prices.sources_of(price))},
    after_removal="What was collected is deleted.",
)
PRICES.add()


def _text(session: CommandSession) -> PriceText:
    return PriceText(now=session.now, zone=session.zone)


@frozen(kw_only=True)
class PriceText(WatchText):
    """Prices as text."""

    def listed(self, found: Sequence[PriceOut]) -> Iterator[str]:
        """All of them; nothing if there are none."""
        if found:
            rows = [(each.name, _worth(each.value), self._next(each), each.title) for each in found]
            yield from table(("NAME", "VALUE", "NEXT", "TITLE"), rows, right=("VALUE",))

    def shown(self, shown: PriceShownOut, *, sources: Sequence[str]) -> Iterator[str]:
        """One of them with the sources that are asked, its points and its alerts."""
        yield printable(f"{shown.price.name}: {_worth(shown.price.value)}{_about(shown)}")
        yield from pairs(list(self._facts(shown.price, sources)), indent="  ")
        yield from _points(shown.points)
        for alert in shown.alerts:
            value = as_money(alert.cents, alert.currency)
            yield f"alert {self.at(alert.raised_at)}: {value} is {_crossed(alert)}"

    def history(self, found: Sequence[ValueOut]) -> Iterator[str]:
        """The values that it had."""
        rows = [(self.at(each.valued_at), _worth(each), each.points, each.match) for each in found]
        yield from table(("SINCE", "VALUE", "SOLD", "MATCH"), rows, empty=_worth(None), right=("VALUE", "SOLD"))

    def _facts(self, price: PriceOut, sources: Sequence[str]) -> Iterator[tuple[str, str]]:
        for part in ("title", "year", "mintmark", "denomination", "series"):
            if getattr(price, part):
                yield part, getattr(price, part)
        yield "sources", ", ".join(sources)
        yield "next", self._next(price)
        if price.origin == TAKEN_OUT:
            yield "idle", f"{price.idle_because}; cormorant prices remove {price.name} forgets it"
        elif price.is_paused:
            yield "idle", f"it is paused; cormorant prices resume {price.name} goes on"
        for part, cents in (("below", price.below_cents), ("above", price.above_cents)):
            if cents is not None:
                yield f"tell {part}", as_money(cents, price.currency)

    def _next(self, price: PriceOut) -> str:
        if price.origin == TAKEN_OUT:
            return "never"
        return "paused" if price.is_paused else self.at(price.next_check_at)


def _points(points: Sequence[PointOut]) -> Iterator[str]:
    if points:
        rows = [
            (str(each.day), as_money(each.cents, each.currency), each.type, each.match, each.source, each.title)
            for each in points
        ]
        yield ""
        yield from table(("DAY", "PRICE", "TYPE", "MATCH", "SOURCE", "TITLE"), rows, right=("PRICE",))


def _worth(value: ValueOut | Valuation | None) -> str:
    return "not known" if value is None else as_money(value.cents, value.currency)


def _crossed(alert: AlertOut | Alert) -> str:
    return f"{alert.side} {as_money(alert.limit_cents, alert.currency)}"


def _about(shown: PriceShownOut) -> str:
    """What the value is made of, and what is not in it."""
    value, own = shown.price.value, shown.price.currency
    if value is not None:
        left_out = value.other_currencies
        apart = f"; {counted(left_out, 'sold price')} in other currencies left out" if left_out else ""
        return f", of {value.points} sold, match {value.match}{apart}"
    others = sorted({each.currency for each in shown.points if _counts(each)} - {own})
    if others:
        return f": {own} counts, and what was sold is in {', '.join(others)}"
    return ": nothing that was sold matches its title" if shown.points else ": no source has stated a price yet"


def _counts(point: PointOut) -> bool:
    return point.type == PointType.SOLD.value and point.match != MatchStrength.NONE.name.lower()
