"""What can a program do with prices? Watch, look, check now; and how collecting them is put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import trio
from attrs import define, field, frozen
from sqlalchemy import Connection

from actors.actor import Address
from actors.handlers import Handler
from actors.price_ticker import PriceTicker
from cormorant.rules.fields import name_problem
from cormorant.rules.ports import Clock, Emit
from cormorant.rules.price_settings import cents_of
from cormorant.rules.prices import COLLECT, STAGGER_S, Intake, Valuation, collect_key
from cormorant.rules.quantities import format_duration
from cormorant.rules.searches import BadRequest
from cormorant.rules.settings import Settings
from storage import intakes, jobs, prices
from storage.database import Database
from storage.intakes import CONFIGURED, IntakeConfigured
from storage.prices import PriceView
from storage.sources import UnknownSource
from supervisors.child import Runnable
from supervisors.collecting import SOURCE_KIND, Collector
from supervisors.jobs import Jobs
from supervisors.searches import Searches
from supervisors.timetable import Timetable

EVERY_S_MIN, EVERY_S_MAX = 60.0, 365 * 86_400.0
SHOWN_MAX = 500


class NoPriceSource(UnknownSource):
    """There is no source of prices of this name, or none at all."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        super().__init__(name, known)
        there = (
            f"there are {', '.join(sorted(known))}" if known else f'write [sources.NAME] with kind = "{SOURCE_KIND}"'
        )
        self.args = (f"there is no source of prices{f' {name[:40]!r}' if name else ''}; {there}",)


@define(eq=False, kw_only=True)
class Prices:
    """The prices of a service."""

    settings: Settings
    database: Database
    jobs: Jobs
    clock: Clock

    async def watch(  # noqa: PLR0913 - what can be said of a thing, all but two with a default
        self,
        name: str,
        title: str,
        *,
        year: str = "",
        mintmark: str = "",
        denomination: str = "",
        series: str = "",
        sources: Sequence[str] = (),
        every_s: float = 86_400.0,
        currency: str = "EUR",
        below_cents: int | None = None,
        above_cents: int | None = None,
    ) -> Intake:
        """Watch a price from now on. Raises `BadRequest`, `NoPriceSource` or `IntakeExists`."""
        self._check_sources(sources)
        now = self.clock.now()
        wanted = Intake(
            name=name,
            title=" ".join(title.split()),
            year=year,
            mintmark=mintmark,
            denomination=denomination,
            series=series,
            sources=tuple(dict.fromkeys(sources)),
            every_s=every_s,
            currency=currency,
            below_cents=below_cents,
            above_cents=above_cents,
            next_attempt_at=now,
            added_at=now,
        )
        self._check(wanted)
        intake = await self.database.run(self._add, wanted, now=now)
        self.jobs.bell.ring()
        return intake

    async def unwatch(self, name: str) -> None:
        """Watch a price no more, and forget what was collected. One of the settings file is taken out there."""
        await self.database.run(_remove, name)

    async def all(self) -> list[PriceView]:
        """All of them, by name."""
        return await self.database.read(prices.all_views)

    async def show(self, name: str, *, limit: int = 100) -> PriceView:
        """One of them with its newest points and alerts, or `UnknownIntake`."""
        return await self.database.read(prices.view, name, limit=min(limit, SHOWN_MAX))

    async def history(self, name: str, *, limit: int = 100) -> list[Valuation]:
        """The values that it had, newest first, or `UnknownIntake`."""
        return await self.database.read(_history, name, limit=min(limit, SHOWN_MAX))

    async def check(self, name: str) -> int:
        """Ask its sources now. Returns how many. What one has answered lately is taken from the cache."""
        asked = await self.database.run(self._check_now, name, now=self.clock.now())
        self.jobs.bell.ring()
        return asked

    def sources_of(self, intake: Intake) -> tuple[str, ...]:
        """Those that are asked about it: the ones it names, else all that state prices."""
        said = self.settings.sources
        own = tuple(sorted(name for name, each in said.items() if each.kind == SOURCE_KIND and each.enabled))
        return intake.sources or own

    def enqueue(self, connection: Connection, intake: Intake, *, place: int, now: datetime) -> int:
        """A statement: a job for each source, 2 s apart; one that waits or runs already is joined."""
        names = self.sources_of(intake)
        for number, source in enumerate(names, start=place):
            job = self.jobs.make(
                COLLECT,
                {"intake": intake.id, "source": source},
                delay_s=STAGGER_S * number,
                dedupe_key=collect_key(intake.id, source),
            )
            jobs.enqueue(connection, job, now=now)
        return len(names)

    def configured(self) -> list[Intake]:
        """Those of the settings file."""
        now = self.clock.now()
        return [
            Intake(
                name=name,
                title=said.title,
                year=said.year,
                mintmark=said.mintmark,
                denomination=said.denomination,
                series=said.series,
                sources=said.search,
                every_s=said.every_s,
                currency=said.currency,
                below_cents=cents_of(said.below),
                above_cents=cents_of(said.above),
                next_attempt_at=now,
                added_at=now,
            )
            for name, said in sorted(self.settings.prices.items())
        ]

    def _check(self, wanted: Intake) -> None:
        problem = name_problem(wanted.name)
        if problem:
            raise BadRequest("name", problem)
        if wanted.name in self.settings.prices:
            raise BadRequest("name", f"the settings file has [prices.{wanted.name}] already; choose another")
        if not EVERY_S_MIN <= wanted.every_s <= EVERY_S_MAX:
            allowed = f"{format_duration(EVERY_S_MIN)} to {format_duration(EVERY_S_MAX)}"
            raise BadRequest("every", f"it is out of range; allowed: {allowed}")

    def _check_sources(self, wanted: Sequence[str]) -> None:
        known = [name for name, each in self.settings.sources.items() if each.kind == SOURCE_KIND]
        strange = next((source for source in wanted if source not in known), None)
        if strange is not None or not known:
            raise NoPriceSource(strange or "", known)

    def _add(self, connection: Connection, wanted: Intake, *, now: datetime) -> Intake:
        added = intakes.add(connection, wanted)
        self.enqueue(connection, added, place=0, now=now)
        intakes.put_off(connection, added, now=now)
        return added

    def _check_now(self, connection: Connection, name: str, *, now: datetime) -> int:
        intake = intakes.find(connection, name)
        asked = self.enqueue(connection, intake, place=0, now=now)
        for source in self.sources_of(intake):
            jobs.hurry(connection, COLLECT, collect_key(intake.id, source), now=now)
        return asked


def _remove(connection: Connection, name: str) -> None:
    if intakes.find(connection, name).origin == CONFIGURED:
        raise IntakeConfigured(name)
    intakes.remove(connection, name)


def _history(connection: Connection, name: str, *, limit: int) -> list[Valuation]:
    return prices.history(connection, intakes.find(connection, name).id, limit=limit)


@define(eq=False, kw_only=True)
class PricingAssembly:
    """Everything that belongs to collecting prices."""

    prices: Prices
    searches: Searches
    is_paused: Callable[[Connection], bool]
    emit: Emit
    timetable: Timetable = field(factory=Timetable)
    address: Address[None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.address = Address("price_ticker", emit=self.emit)

    def handlers(self) -> dict[str, Handler]:
        """The handler of the jobs that collect."""
        return {COLLECT: Handler(Collector(searches=self.searches, clock=self.prices.clock, emit=self.emit))}

    def served(self) -> Runnable:
        """The child of the tree."""
        return _Harmless(self.address.served_by(self._make))

    def _make(self) -> PriceTicker:
        own = self.prices
        made = PriceTicker(
            database=own.database,
            configured=own.configured(),
            enqueue=own.enqueue,
            is_paused=self.is_paused,
            ring=own.jobs.bell.ring,
            clock=own.clock,
        )
        return self.timetable.noted("price_ticker", made)


@frozen
class _Harmless:
    """It has no `stop`: nothing of it is half done when it is cancelled, so that cancelling it is no force."""

    served: Runnable

    async def __call__(self, *, task_status: trio.TaskStatus[object]) -> None:
        await self.served(task_status=task_status)

    def gone(self) -> None:
        self.served.gone()  # type: ignore[attr-defined]  # an address that is served has it
