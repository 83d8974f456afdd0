"""What happens to prices that are watched."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from cormorant.rules.events import Event


@frozen(kw_only=True)
class PriceCollected(Event):
    """A source was asked about a price. `points` it stated, of which `written` are new or match better."""

    name: ClassVar[str] = "price.collected"

    price: str
    source: str
    points: int
    written: int


@frozen(kw_only=True)
class PriceLeftOut(Event):
    """`items` of what a source stated are no prices and were left out; the others went on. `why`: the first few reasons."""

    name: ClassVar[str] = "price.left_out"
    level: ClassVar[str] = "warning"

    price: str
    source: str
    items: int
    why: str


@frozen(kw_only=True)
class PriceValued(Event):
    """A thing is worth something else than before: the median of `points` sold prices."""

    name: ClassVar[str] = "price.valued"

    price: str
    cents: int
    currency: str
    points: int
    match: str


@frozen(kw_only=True)
class PriceAlert(Event):
    """A value went below or above its limit; once for each crossing."""

    name: ClassVar[str] = "price.alert"
    level: ClassVar[str] = "warning"

    price: str
    side: str
    limit_cents: int
    cents: int
    currency: str
