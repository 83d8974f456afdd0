"""Prices: add and check them, take in tables, and what each is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from attrs import define

from actors.watch.watch_jobs import collect_jobs, price_sources
from cormorant.rules.settings.sources import PRICE_KIND
from cormorant.rules.settings.watch import PriceSettings, checked, price_conflicts, price_of, refuse
from cormorant.rules.watch.prices import PricePoint, PriceWatch, Valuation
from cormorant.services.watch.views import PriceShownOut, price_shown_out
from cormorant.services.watch.watches import WatchService
from storage.search.sources import UnknownSource
from storage.watch import prices
from storage.watch.prices import PRICE, Collected, PriceView
from storage.watch.watches import WatchKind

SHOWN_MAX = 500


class NoPriceSource(UnknownSource):
    """There is no source of prices of this name, or none at all."""

    exit_code = 2

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        super().__init__(name, known)
        there = f"there are {', '.join(sorted(known))}" if known else f'write [sources.NAME] with kind = "{PRICE_KIND}"'
        self.args = (f"there is no source of prices{f' {name[:40]!r}' if name else ''}; {there}",)


@define(eq=False, kw_only=True)
class Prices(WatchService[PriceWatch]):
    """The prices of a service."""

    kind: ClassVar[WatchKind[Any]] = PRICE

    @property
    def configured(self) -> Mapping[str, PriceSettings]:
        """[prices]."""
        return self.environment.settings.prices

    def make(self, name: str, options: PriceSettings, *, now: datetime) -> PriceWatch:
        """The price that options mean."""
        return price_of(name, options, now=now)

    async def view(self, watch: PriceWatch) -> PriceShownOut:
        """A price as it is shown, with its newest points and alerts."""
        return price_shown_out(await self.show(watch.name))

    async def add(self, name: str, options: PriceSettings) -> PriceWatch:
        """Watch a price from now on. Raises `BadRequest`, `NoPriceSource` or `AlreadyExists`."""
        self.refuse_name(name)
        wanted = self.wanted(name, options)
        [added] = await self.environment.database.run(
            prices.add_watches, [wanted], make_jobs=partial(collect_jobs, self.environment), now=self.environment.now()
        )
        return added

    async def add_new(self, wanted: Sequence[PriceWatch]) -> tuple[list[PriceWatch], list[str]]:
        """Watch all of them, or none if that raises. Returns those that are new, and the names that were there already."""
        added, known = await self.environment.database.run(
            prices.add_new_watches,
            wanted,
            configured=self.configured,
            make_jobs=partial(collect_jobs, self.environment),
            now=self.environment.now(),
        )
        return added, known

    def wanted(self, name: str, options: PriceSettings) -> PriceWatch:
        """A thing to watch, checked, that is not watched yet. Raises `BadRequest` or `NoPriceSource`."""
        options, configured = checked(options), self.environment.settings.sources
        known = [name for name, each in configured.items() if each.kind == PRICE_KIND]
        strange = next((source for source in options.search if source not in known), None)
        if strange is not None or not known:
            raise NoPriceSource(strange or "", known)
        refuse(price_conflicts("", name, options, configured, known))
        return self.make(name, options, now=self.environment.now())

    async def write_down(self, points: Mapping[str, Sequence[PricePoint]]) -> list[Collected]:
        """Keep prices that a person knows, by the names of the things. All of them, or none if that raises."""
        return await self.environment.database.run(prices.record_known, points, now=self.environment.now())

    async def all_views(self) -> list[PriceView]:
        """All of them with their values, by name."""
        return await self.environment.database.read(prices.all_views)

    async def show(self, wanted: str, *, limit: int = 100) -> PriceView:
        """One of them with its newest points and alerts, or `NotFound`."""
        return await self.environment.database.read(prices.view, wanted, limit=min(limit, SHOWN_MAX))

    async def history(self, wanted: str, *, limit: int = 100) -> list[Valuation]:
        """The values that it had, newest first, or `NotFound`."""
        return await self.environment.database.read(prices.history_of, wanted, limit=min(limit, SHOWN_MAX))

    async def check(self, wanted: str) -> PriceWatch:
        """Ask its sources now, also while it is paused. What was answered lately is taken from the cache."""
        return await self.check_by_jobs(wanted, partial(collect_jobs, self.environment, by_hand=True))

    def sources_of(self, price: PriceWatch) -> tuple[str, ...]:
        """The sources that are asked about a price."""
        return price_sources(self.environment, price)
