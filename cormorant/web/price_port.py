"""What does the web need of prices? Only this; the composition hands it in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cormorant.rules.watch.prices import Intake, Valuation
from storage.watch.prices import PriceView

__all__ = ["PricesPort"]


class PricesPort(Protocol):
    """Prices that are watched."""

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
        """Watch a price from now on."""
        ...

    async def unwatch(self, name: str) -> None:
        """Watch a price no more."""
        ...

    async def pause(self, name: str) -> Intake:
        """Ask nobody about a price until it is resumed."""
        ...

    async def resume(self, name: str) -> Intake:
        """Go on with a price."""
        ...

    async def all(self) -> list[PriceView]:
        """All of them."""
        ...

    async def show(self, name: str, *, limit: int = 100) -> PriceView:
        """One of them with its newest points and alerts."""
        ...

    async def history(self, name: str, *, limit: int = 100) -> list[Valuation]:
        """The values that it had."""
        ...

    async def check(self, name: str) -> int:
        """Ask its sources now."""
        ...
