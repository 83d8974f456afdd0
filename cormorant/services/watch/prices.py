"""Operations on prices: watch, list, pause, resume, check now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, field

from actors.environment import Environment
from actors.jobs.working_set import JobWakeUp
from actors.watch.watch_jobs import collect_jobs, price_sources
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.sources import PRICE_KIND
from cormorant.rules.settings.watch import cents_of
from cormorant.rules.units import format_duration
from cormorant.rules.watch.prices import PricePoint, PriceWatch, Valuation
from storage.search.sources import UnknownSource
from storage.watch import prices, watches
from storage.watch.prices import PRICE, Collected, PriceView

EVERY_S_MIN, EVERY_S_MAX = 60.0, 365 * 86_400.0
SHOWN_MAX = 500


class NoPriceSource(UnknownSource):
    """There is no source of prices of this name, or none at all."""

    exit_code = 2

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        super().__init__(name, known)
        there = f"there are {', '.join(sorted(known))}" if known else f'write [sources.NAME] with kind = "{PRICE_KIND}"'
        self.args = (f"there is no source of prices{f' {name[:40]!r}' if name else ''}; {there}",)


@define(eq=False, kw_only=True)
class Prices:
    """The prices of a service."""

    environment: Environment = field(kw_only=False)
    producer: JobWakeUp

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
    ) -> PriceWatch:
        """Watch a price from now on. Raises `BadRequest`, `NoPriceSource` or `AlreadyExists`."""
        wanted = self.wanted(
            name=name,
            title=title,
            year=year,
            mintmark=mintmark,
            denomination=denomination,
            series=series,
            sources=sources,
            every_s=every_s,
            currency=currency,
            below_cents=below_cents,
            above_cents=above_cents,
        )
        if name in self.environment.settings.prices:
            raise BadRequest("name", f"the settings file has [prices.{name}] already; choose another")
        [intake] = await self.environment.database.run(
            prices.add_watches, [wanted], make_jobs=partial(collect_jobs, self.environment), now=self.environment.now()
        )
        self.producer.set()
        return intake

    async def watch_all(self, wanted: Sequence[PriceWatch]) -> tuple[list[PriceWatch], list[str]]:
        """Watch all of them, or none if that raises. Returns those that are new, and the names that were there already."""
        added, known = await self.environment.database.run(
            prices.add_new_watches,
            wanted,
            configured=self.environment.settings.prices.keys(),
            make_jobs=partial(collect_jobs, self.environment),
            now=self.environment.now(),
        )
        self.producer.set()
        return added, known

    async def write_down(self, points: Mapping[str, Sequence[PricePoint]]) -> list[Collected]:
        """Keep prices that a person knows, by the names of the things. All of them, or none if that raises."""
        return await self.environment.database.run(prices.record_known, points, now=self.environment.now())

    def wanted(self, *, name: str, title: str, sources: Sequence[str] = (), **words: Any) -> PriceWatch:
        """A thing to watch, checked, that is not watched yet. Raises `BadRequest` or `NoPriceSource`."""
        self._check_sources(sources)
        now = self.environment.now()
        wanted = PriceWatch(
            name=name,
            title=" ".join(title.split()),
            sources=tuple(dict.fromkeys(sources)),
            next_attempt_at=now,
            added_at=now,
            **words,
        )
        problem = name_problem(name)
        if problem:
            raise BadRequest("name", problem)
        if not EVERY_S_MIN <= wanted.every_s <= EVERY_S_MAX:
            allowed = f"{format_duration(EVERY_S_MIN)} to {format_duration(EVERY_S_MAX)}"
            raise BadRequest("every", f"it is out of range; allowed: {allowed}")
        return wanted

    async def unwatch(self, name: str) -> None:
        """Watch a price no more, and forget what was collected. One of the settings file is first taken out there."""
        if name in self.environment.settings.prices:
            raise PRICE.set_in_file(name)
        await self.environment.database.run(watches.remove, PRICE, name)

    async def pause(self, name: str) -> PriceWatch:
        """Ask nobody about a price until it is resumed, also after a restart. Raises `NotFound` or `IntakeTakenOut`."""
        return await self.environment.database.run(prices.set_paused, name, is_paused=True)

    async def resume(self, name: str) -> PriceWatch:
        """Go on with a price: at its time, and soon if that has passed."""
        return await self.environment.database.run(prices.set_paused, name, is_paused=False)

    async def all(self) -> list[PriceView]:
        """All of them, by name."""
        return await self.environment.database.read(prices.all_views)

    async def show(self, name: str, *, limit: int = 100) -> PriceView:
        """One of them with its newest points and alerts, or `NotFound`."""
        return await self.environment.database.read(prices.view, name, limit=min(limit, SHOWN_MAX))

    async def history(self, name: str, *, limit: int = 100) -> list[Valuation]:
        """The values that it had, newest first, or `NotFound`."""
        return await self.environment.database.read(prices.history_of, name, limit=min(limit, SHOWN_MAX))

    async def check(self, name: str) -> int:
        """Ask its sources now, also while it is paused. Returns how many. What was answered lately is taken from the cache."""
        asked = await self.environment.database.run(
            prices.collect_now,
            name,
            make_jobs=partial(collect_jobs, self.environment, by_hand=True),
            now=self.environment.now(),
        )
        self.producer.set()
        return asked

    def sources_of(self, price: PriceWatch) -> tuple[str, ...]:
        """The sources that are asked about a price."""
        return price_sources(self.environment, price)

    def _check_sources(self, wanted: Sequence[str]) -> None:
        known = [name for name, each in self.environment.settings.sources.items() if each.kind == PRICE_KIND]
        strange = next((source for source in wanted if source not in known), None)
        if strange is not None or not known:
            raise NoPriceSource(strange or "", known)


def configured_prices(environment: Environment) -> list[PriceWatch]:
    """The prices of the settings file."""
    now = environment.now()
    return [
        PriceWatch(
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
        for name, said in sorted(environment.settings.prices.items())
    ]
