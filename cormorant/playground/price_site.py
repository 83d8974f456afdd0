"""A price site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from attrs import define, field

from cormorant.playground.catalogue import mark_of, turns_after
from cormorant.playground.http import StandInRequest, StandInResponse, as_json, as_text, remember
from cormorant.rules.ports import Clock
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.settings.watch import PriceFieldSettings, PriceSettings

MARKET: Final = "market"
THING: Final = "Tin Lantern"
YEAR: Final = "1931"
PRICES: Final[Mapping[str, PriceSettings]] = {
    "lantern": PriceSettings(title=THING, year=YEAR, search=(MARKET,), every_s=60.0, below="100")
}
SOON: Final = timedelta(seconds=6)
EVERY: Final = timedelta(minutes=2)
COUNT: Final = 200
_DEAR: Final = (124.00, 118.50, 131.00, 121.25)
_CHEAP: Final = (84.50, 79.00, 88.75, 82.00)


def market_source(address: str, key: str) -> SourceSettings:
    """How it is asked and read: any site that answers in JSON is set up like this."""
    return SourceSettings(
        kind="prices",
        url=f"{address}/{MARKET}/lots",
        key=Secret(key),
        query="q={title}&year={year}",
        items="data.lots",
        fields=PriceFieldSettings(
            price="amount.value",
            currency="amount.currency",
            title="name",
            url="link",
            id="lot",
            date="sold_on",
            type="kind",
        ),
        spacing_s=1.0,
        pace_s=1.0,
    )


def sales_since(opened_at: datetime) -> list[tuple[datetime, str, float]]:
    """When what is sold for how much: time, number of the lot, price.

    Invariant: once all that comes in pairs is out, there is one cheap sale more than dear ones, after a restart, too: as many
    of each come with each opening. So the median falls with each cheap turn and rises with each dear one.
    """
    long_ago = opened_at - timedelta(days=30)
    known = [(long_ago, f"old-{number}", price) for number, price in enumerate((*_DEAR[:3], *_CHEAP))]
    turns = [opened_at, *turns_after(opened_at, soon=SOON, every=EVERY, count=COUNT)]
    new = [
        (at, f"{mark_of(opened_at)}-{turn}-{number}", price)
        for turn, at in enumerate(turns)
        for number, price in enumerate(_CHEAP if turn % 2 else _DEAR)
    ]
    return [*known, *new]


@define(kw_only=True)
class PriceSiteStandIn:
    """A site that states prices, the newest first; it wants its key as a bearer's."""

    name: str = MARKET
    clock: Clock
    sales: Sequence[tuple[datetime, str, float]]
    key: str
    shown: int = 100
    asked: list[StandInRequest] = field(factory=list)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        remember(self.asked, asked)
        if asked.headers.get("authorization") != f"Bearer {self.key}":
            return as_text("who are you?", status=401)
        if asked.path != "/lots":
            return StandInResponse(status=404)
        wanted = asked.params.get("q", "").lower()
        lots = list(self._lots(asked.base)) if wanted and wanted in THING.lower() else []
        return as_json({"data": {"lots": lots[: self.shown]}})

    def _lots(self, url: str) -> Iterator[dict[str, Any]]:
        """What is asked for and what was sold elsewhere stand between the sales, and do not count."""
        now = self.clock.now()
        yield _lot("offer", 99.00, "EUR", kind="ask", at=now, url=url)
        yield _lot("far", 140.00, "USD", kind="sold", at=now - timedelta(days=9), url=url)
        for at, number, price in reversed(self.sales):
            if at <= now:
                yield _lot(number, price, "EUR", kind="sold", at=at, url=url)


def _lot(number: str, price: float, currency: str, *, kind: str, at: datetime, url: str) -> dict[str, Any]:
    return {
        "lot": number,
        "name": f"{THING}, {YEAR}",
        "amount": {"value": f"{price:.2f}", "currency": currency},
        "kind": kind,
        "sold_on": at.date().isoformat(),
        "link": f"{url}/lots/{number}",
    }
