"""What does each command of prices do? Looks or changes, tells what came of it, and returns the exit code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import attrs
import click
from attrs import frozen

from cormorant.cli.job_json import as_text
from cormorant.cli.preflight import load_or_refuse
from cormorant.cli.tables import pairs, printable, table
from cormorant.cli.visit import visit
from cormorant.cli.watch_desk import assembly_of
from cormorant.cli.words import EXIT_OK, Interrupted, NotDone, Refused
from cormorant.rules.ages import clock_time
from cormorant.rules.errors import CommitUnknown, CormorantError
from cormorant.rules.money import as_money
from cormorant.rules.prices import Valuation
from cormorant.rules.quantities import format_duration
from cormorant.rules.times_of_day import zone_of
from cormorant.web.price_models import price_out, price_shown_out, value_out
from storage.database import Database
from storage.intakes import IntakeConfigured, IntakeExists, UnknownIntake
from storage.prices import PriceView
from supervisors.pricing import Prices

__all__ = ["PriceDesk", "at_price_desk"]

_NOT_DONE = (UnknownIntake, IntakeExists, IntakeConfigured)


@frozen(kw_only=True)
class PriceDesk:
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
        if not found:
            return self._tell({"prices": facts}, ["no price is watched; cormorant prices add NAME TITLE adds one"])
        rows = [(each.intake.name, _value(each.valuation), self._next(each), each.intake.title) for each in found]
        return self._tell({"prices": facts}, table(("NAME", "VALUE", "NEXT", "TITLE"), rows, right=("VALUE",)))

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
        told = f"{asked} of its sources are asked by a running service as soon as they may be"
        return self._tell({"price": name, "sources": asked}, [f"{name}: {told}"])

    async def remove(self, name: str) -> int:
        """Watch a price no more."""
        await self.prices.unwatch(name)
        return self._tell({"removed": name}, [f"{name} is no longer watched, and what was collected is forgotten"])

    def _lines(self, view: PriceView) -> Iterable[str]:
        intake, value = view.intake, view.valuation
        said = {part: getattr(intake, part) for part in ("title", "year", "mintmark", "denomination", "series")}
        rows = [(part, text) for part, text in said.items() if text]
        rows += [("sources", ", ".join(self.prices.sources_of(intake))), ("next", self._next(view))]
        limits = (("below", intake.below_cents), ("above", intake.above_cents))
        rows += [(f"tell {part}", as_money(cents, intake.currency)) for part, cents in limits if cents is not None]
        about = "" if value is None else f", of {value.points} sold, match {value.match.name.lower()}"
        yield printable(f"{intake.name}: {_value(value)}{about}")
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

    def _next(self, view: PriceView) -> str:
        return self._time(view.intake.next_attempt_at)

    def _time(self, moment: datetime) -> str:
        return clock_time(moment, datetime.now(UTC), zone_of(self.prices.settings.time_zone))

    def _tell(self, facts: dict[str, Any], lines: Iterable[str]) -> int:
        click.echo(as_text(facts) if self.as_json else "\n".join(lines))
        return EXIT_OK


def _value(value: Valuation | None) -> str:
    return "not known" if value is None else as_money(value.cents, value.currency)


def at_price_desk(
    config: str, errand: Callable[[PriceDesk], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> int:
    """Run a command at the database of a settings file. Returns its exit code."""
    settings = load_or_refuse(config)

    async def run(database: Database) -> int:
        return await errand(PriceDesk(prices=assembly_of(settings, database).prices_by_hand(), as_json=as_json))

    try:
        return visit(settings, run, may_make=may_make)
    except _NOT_DONE as error:
        raise NotDone(str(error)) from None
    except CommitUnknown as unknown:
        raise NotDone(f"{unknown}; look whether it happened before you repeat it") from None
    except CormorantError as error:
        raise Refused(str(error)) from None
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was changed") from None
