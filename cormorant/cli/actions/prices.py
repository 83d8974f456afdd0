"""What the commands of `cormorant prices` do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any, BinaryIO

import attrs
import click
from attrs import frozen

from actors.watch.watch_jobs import price_sources
from cormorant.cli.actions.job_text import as_text
from cormorant.cli.actions.watches import assembly_of
from cormorant.cli.console.command_line import EXIT_OK, CommandFailed, CommandInterrupted, UsageRefused
from cormorant.cli.console.database_session import with_database
from cormorant.cli.console.output import pairs, printable, table
from cormorant.cli.console.preflight import load_or_refuse
from cormorant.rules.errors import CommitUnknown, CormorantError
from cormorant.rules.units import clock_time, format_duration, zone_of
from cormorant.rules.watch.price_import import (
    BYTES_MAX,
    CsvTable,
    NotATable,
    WrongLines,
    points_in,
    read_table,
    things_in,
)
from cormorant.rules.watch.prices import TAKEN_OUT, MatchStrength, PointType, Valuation, as_money
from cormorant.services.watch.price_views import price_out, price_shown_out, value_out
from cormorant.services.watch.prices import Prices
from storage.database import Database
from storage.watch.price_watches import IntakeTakenOut, PriceWatchConfigured, PriceWatchExists, UnknownPriceWatch
from storage.watch.prices import PriceView

__all__ = ["PriceActions", "run_price_action"]

_NOT_DONE = (UnknownPriceWatch, PriceWatchExists, PriceWatchConfigured, IntakeTakenOut)


@frozen(kw_only=True)
class PriceActions:
    """Where the commands meet the database."""

    prices: Prices
    as_json: bool

    async def add(self, name: str, title: str, **words: Any) -> int:
        """Watch a price."""
        intake = await self.prices.watch(name, title, **words)
        told = f"{name} is watched every {format_duration(intake.every_s)}; a running service asks its sources at once"
        return self._tell({"added": attrs.asdict(price_out(intake, None))}, [told])

    async def list_prices(self) -> int:
        """All prices."""
        found = await self.prices.all()
        facts = [attrs.asdict(price_out(each.intake, each.valuation)) for each in found]
        waiting = [
            f"{name} is in the settings file, and watched from the next start on" for name in self._unseen(found)
        ]
        if not found:
            return self._tell(
                {"prices": facts}, waiting or ["no price is watched; cormorant prices add NAME TITLE adds one"]
            )
        rows = [(each.intake.name, _value(each.valuation), self._next(each), each.intake.title) for each in found]
        lines = table(("NAME", "VALUE", "NEXT", "TITLE"), rows, right=("VALUE",))
        return self._tell({"prices": facts}, [*lines, *waiting])

    async def show(self, name: str, limit: int) -> int:
        """One price with its points and alerts."""
        view = await self.prices.show(name, limit=limit)
        return self._tell(attrs.asdict(price_shown_out(view)), self._lines(view))

    async def history(self, name: str, limit: int) -> int:
        """The values that it had."""
        found = await self.prices.history(name, limit=limit)
        rows = [(self._time(each.valued_at), _value(each), str(each.points), each.match.name.lower()) for each in found]
        lines = table(("SINCE", "VALUE", "SOLD", "MATCH"), rows, right=("VALUE", "SOLD")) if rows else [_value(None)]
        return self._tell({"history": [attrs.asdict(value_out(each)) for each in found]}, lines)

    async def check(self, name: str) -> int:
        """Ask its sources now."""
        asked = await self.prices.check(name)
        told = f"{_of(asked, 'source')} {'is' if asked == 1 else 'are'} asked by a running service as soon as allowed"
        return self._tell({"price": name, "sources": asked}, [f"{name}: {told}"])

    async def remove(self, name: str) -> int:
        """Watch a price no more."""
        await self.prices.unwatch(name)
        return self._tell({"removed": name}, [f"{name} is no longer watched, and what was collected is forgotten"])

    async def pause(self, name: str) -> int:
        """Ask nobody about it for now."""
        await self.prices.pause(name)
        told = f"{name} is left alone until cormorant prices resume {name}; what was collected stays"
        return self._tell({"price": name, "paused": True}, [told])

    async def resume(self, name: str) -> int:
        """Go on with it."""
        intake = await self.prices.resume(name)
        is_overdue = intake.next_attempt_at <= datetime.now(UTC)
        when = "soon, by a running service" if is_overdue else self._time(intake.next_attempt_at)
        return self._tell({"price": name, "paused": False}, [f"{name} goes on; its sources are asked {when}"])

    async def import_table(self, file: BinaryIO) -> int:
        """Take in all of a file, or nothing."""
        try:
            table = read_table(file.read(BYTES_MAX + 1))
            return await (self._import_points(table) if table.has_prices else self._import_things(table))
        except NotATable as problem:
            raise UsageRefused(f"FILE: {problem}; nothing was imported") from None
        except WrongLines as wrong:
            raise UsageRefused(
                f"FILE: {_of(wrong.count, 'line')} cannot be used, nothing was imported", wrong.problems
            ) from None

    async def _import_things(self, table: CsvTable) -> int:
        added, known = await self.prices.watch_all(things_in(table, self.prices.wanted))
        told = [f"{_of(len(added), 'thing')} added, {len(known)} known already and left as they are"]
        if added:
            told += ["a running service asks their sources, two seconds apart"]
        return self._tell({"added": [each.name for each in added], "known": known}, told)

    async def _import_points(self, table: CsvTable) -> int:
        views = await self.prices.all()
        things, unseen = {each.intake.name: each.intake for each in views}, self._unseen(views)
        if unseen and any(row.cells["name"] in unseen for row in table.rows):
            raise UsageRefused(f"FILE: {', '.join(unseen)} is watched after the next start; run `cormorant run` first")
        points = points_in(table, things, now=self.prices.environment.now())
        done = await self.prices.write_down(points)
        written, given = sum(each.written for each in done), len(table.rows)
        facts = [
            {"price": each.intake.name, "written": each.written, "value": _value_facts(each.valuation)} for each in done
        ]
        told = [f"{_of(written, 'price')} imported, {given - written} known already"]
        told += [f"  {each.intake.name}: {_value(each.valuation)}" for each in done]
        for each in done:
            if each.alert:
                limit = as_money(each.alert.limit_cents, each.alert.currency)
                told += [f"  {each.intake.name} is {each.alert.side} {limit}; nobody is told of what was imported"]
        return self._tell({"written": written, "known": given - written, "prices": facts}, told)

    def _lines(self, view: PriceView) -> Iterable[str]:
        intake, value = view.intake, view.valuation
        said = {part: getattr(intake, part) for part in ("title", "year", "mintmark", "denomination", "series")}
        rows = [(part, text) for part, text in said.items() if text]
        rows += [("sources", ", ".join(price_sources(self.prices.environment, intake))), ("next", self._next(view))]
        if intake.origin == TAKEN_OUT:
            rows += [("idle", f"{intake.idle_because}; cormorant prices remove {intake.name} forgets it")]
        elif intake.is_paused:
            rows += [("idle", f"it is paused; cormorant prices resume {intake.name} goes on")]
        limits = (("below", intake.below_cents), ("above", intake.above_cents))
        rows += [(f"tell {part}", as_money(cents, intake.currency)) for part, cents in limits if cents is not None]
        yield printable(f"{intake.name}: {_value(value)}{_about(view)}")
        yield from pairs(rows, indent="  ")
        if view.points:
            yield ""
            shown = [
                (
                    str(each.day),
                    as_money(each.cents, each.currency),
                    each.type.value,
                    each.match.name.lower(),
                    each.source,
                    each.title,
                )
                for each in view.points
            ]
            yield from table(("DAY", "PRICE", "TYPE", "MATCH", "SOURCE", "TITLE"), shown, right=("PRICE",))
        for alert in view.alerts:
            limit = as_money(alert.limit_cents, alert.currency)
            yield f"alert {self._time(alert.raised_at)}: {as_money(alert.cents, alert.currency)} is {alert.side} {limit}"

    def _unseen(self, views: Iterable[PriceView]) -> list[str]:
        """Those of the settings file that no service has seen yet."""
        return sorted(set(self.prices.environment.settings.prices) - {each.intake.name for each in views})

    def _next(self, view: PriceView) -> str:
        if view.intake.origin == TAKEN_OUT:
            return "never"
        return "paused" if view.intake.is_paused else self._time(view.intake.next_attempt_at)

    def _time(self, moment: datetime) -> str:
        return clock_time(moment, datetime.now(UTC), zone_of(self.prices.environment.settings.time_zone))

    def _tell(self, facts: dict[str, Any], lines: Iterable[str]) -> int:
        click.echo(as_text(facts) if self.as_json else "\n".join(lines))
        return EXIT_OK


def _value(value: Valuation | None) -> str:
    return "not known" if value is None else as_money(value.cents, value.currency)


def _value_facts(value: Valuation | None) -> Any:
    return None if value is None else attrs.asdict(value_out(value))


def _about(view: PriceView) -> str:
    """What the value is made of, and what is not in it."""
    value, own = view.valuation, view.intake.currency
    if value is not None:
        apart = f"; {_of(value.others, 'sold price')} in other currencies left out" if value.others else ""
        return f", of {value.points} sold, match {value.match.name.lower()}{apart}"
    sold = [each for each in view.points if each.type is PointType.SOLD and each.match is not MatchStrength.NONE]
    others = sorted({each.currency for each in sold if each.currency != own})
    if others:
        return f": {own} counts, and what was sold is in {', '.join(others)}"
    return ": nothing that was sold matches its title" if view.points else ": no source has stated a price yet"


def _of(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def run_price_action(
    config: str, action: Callable[[PriceActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> int:
    """Run a command at the database of a settings file. Returns its exit code."""
    settings = load_or_refuse(config)

    async def run(database: Database) -> int:
        return await action(PriceActions(prices=assembly_of(settings, database).watching.prices, as_json=as_json))

    try:
        return with_database(settings, run, may_make=may_make)
    except _NOT_DONE as error:
        raise CommandFailed(str(error)) from None
    except CommitUnknown as unknown:
        raise CommandFailed(f"{unknown}; look whether it happened before you repeat it") from None
    except CormorantError as error:
        raise UsageRefused(str(error)) from None
    except KeyboardInterrupt:
        raise CommandInterrupted("interrupted; nothing was changed") from None
