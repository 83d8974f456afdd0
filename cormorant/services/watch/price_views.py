"""Views of prices; amounts are whole cents."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

from attrs import field, frozen

from cormorant.rules.watch.prices import PricePoint, PriceWatch, Valuation

if TYPE_CHECKING:
    from storage.watch.prices import Alert, PriceView


@frozen(kw_only=True)
class PriceBody:
    """A thing whose price is to be watched. `search` are names of sources of kind prices; none: all of them."""

    name: str
    title: str
    year: str = ""
    mintmark: str = ""
    denomination: str = ""
    series: str = ""
    search: list[str] = field(factory=list)
    every_s: float = 86_400.0
    currency: str = "EUR"
    below_cents: int | None = None
    above_cents: int | None = None


@frozen(kw_only=True)
class ValueOut:
    """What it is worth: the median of `points` sold prices that match as well as `match` says."""

    cents: int
    currency: str
    points: int
    match: str
    other_currencies: int
    side: str
    valued_at: datetime


@frozen(kw_only=True)
class PriceOut:
    """A price that is watched."""

    name: str
    title: str
    year: str
    mintmark: str
    denomination: str
    series: str
    search: list[str]
    every_s: float
    currency: str
    below_cents: int | None
    above_cents: int | None
    origin: str
    is_paused: bool
    idle_because: str | None
    """Why nobody is asked about it by itself; none: its sources are."""
    next_check_at: datetime
    added_at: datetime
    value: ValueOut | None


@frozen(kw_only=True)
class PointOut:
    """One price that a source states."""

    source: str
    title: str
    url: str
    cents: int
    currency: str
    type: str
    day: date
    match: str
    key: str
    seen_at: datetime


@frozen(kw_only=True)
class AlertOut:
    """The value went below or above a limit."""

    side: str
    limit_cents: int
    cents: int
    currency: str
    raised_at: datetime


@frozen(kw_only=True)
class PriceShownOut:
    """A price with what sources state of it, newest first, and its alerts."""

    price: PriceOut
    points: list[PointOut]
    alerts: list[AlertOut]


def price_out(intake: PriceWatch, valuation: Valuation | None) -> PriceOut:
    """A price as it is shown."""
    return PriceOut(
        name=intake.name,
        title=intake.title,
        year=intake.year,
        mintmark=intake.mintmark,
        denomination=intake.denomination,
        series=intake.series,
        search=list(intake.sources),
        every_s=intake.every_s,
        currency=intake.currency,
        below_cents=intake.below_cents,
        above_cents=intake.above_cents,
        origin=intake.origin,
        is_paused=intake.is_paused,
        idle_because=intake.idle_because,
        next_check_at=intake.next_attempt_at,
        added_at=intake.added_at,
        value=None if valuation is None else value_out(valuation),
    )


def price_shown_out(view: PriceView) -> PriceShownOut:
    """All of it."""
    return PriceShownOut(
        price=price_out(view.intake, view.valuation),
        points=list(map(_point_out, view.points)),
        alerts=list(map(_alert_out, view.alerts)),
    )


def value_out(valuation: Valuation) -> ValueOut:
    """A value as it is shown."""
    return ValueOut(
        cents=valuation.cents,
        currency=valuation.currency,
        points=valuation.points,
        match=valuation.match.name.lower(),
        other_currencies=valuation.others,
        side=valuation.side.value,
        valued_at=valuation.valued_at,
    )


def _point_out(point: PricePoint) -> PointOut:
    return PointOut(
        source=point.source,
        title=point.title,
        url=point.url,
        cents=point.cents,
        currency=point.currency,
        type=point.type.value,
        day=point.day,
        match=point.match.name.lower(),
        key=point.key,
        seen_at=point.seen_at,
    )


def _alert_out(alert: Alert) -> AlertOut:
    return AlertOut(
        side=alert.side.value,
        limit_cents=alert.limit_cents,
        cents=alert.cents,
        currency=alert.currency,
        raised_at=alert.raised_at,
    )
