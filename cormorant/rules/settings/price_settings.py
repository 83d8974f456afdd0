"""What can be set for prices: where a site keeps them in its answers, and whose price is watched?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from string import Formatter
from typing import Any, Final

from attrs import frozen

from cormorant.rules.settings.conflicts import Conflict
from cormorant.rules.settings.fields import duration, text
from cormorant.rules.settings.word_lists import words
from cormorant.rules.watch.money import BadPrice, currency_problem, read_price

__all__ = [
    "PARTS",
    "PriceFieldSettings",
    "PriceSettings",
    "cents_of",
    "path_problem",
    "price_conflicts",
    "query_problem",
]

PARTS: Final = ("title", "year", "mintmark", "denomination", "series")
"""What a query can be made of, besides the key."""

_PATH: Final = re.compile(r"[^.\s]{1,100}(?:\.[^.\s]{1,100}){0,9}")


@frozen(kw_only=True)
class PriceFieldSettings:
    """Where the facts of a price stand in each item, as a path such as "price.value"; the names are those of the items."""

    price: str = text("price", "For prices: path of the price, a number or a text such as 12.50 EUR.")
    title: str = text("title", "For prices: path of the title.")
    url: str = text("url", "For prices: path of the link.")
    id: str = text("id", "For prices: path of the site's own id of the item.")
    date: str = text("date", "For prices: path of the day, such as 2026-01-31, or of a time.")
    type: str = text("type", "For prices: path of what kind of price it is: sold, ask or bid.")
    currency: str = text("currency", "For prices: path of the currency, such as EUR.")


@frozen(kw_only=True)
class PriceSettings:
    """A thing whose price is watched."""

    title: str = text("", "What it is called; all of these words must be in the title of a price.")
    year: str = text("", "Its year.")
    mintmark: str = text("", "Its mintmark.")
    denomination: str = text("", "Its denomination.")
    series: str = text("", "Its series.")
    search: tuple[str, ...] = words("Names of the sources of kind prices. Empty: all of them.")
    every_s: float = duration(86_400.0, "How often they are asked.", low_s=60.0, high_s=365 * 86_400.0)
    currency: str = text("EUR", "The currency that counts; prices in others are kept apart.")
    below: str = text("", 'Tell when it is worth less than this, such as "100" or "99.50".')
    above: str = text("", "Tell when it is worth more than this.")


def query_problem(template: str) -> str | None:
    """Why a query cannot be made of this.

    >>> query_problem("q={title}&year={year}&token={key}")
    >>> query_problem("q={name}")
    'there is no part {name}; use {title}, {year}, {mintmark}, {denomination}, {series} or {key}'
    """
    known = ", ".join(f"{{{part}}}" for part in PARTS) + " or {key}"
    try:
        found = list(Formatter().parse(template))
    except ValueError:
        return f"a brace stands alone; write parts such as {known}"
    for _, part, how, conversion in found:
        if part is not None and (part not in {*PARTS, "key"} or how or conversion):
            return f"there is no part {{{part[:40]}}}; use {known}"
    return None


def path_problem(path: str) -> str | None:
    """Why this is no path.

    >>> path_problem("data.items.0"), path_problem("a..b")
    (None, 'it is no path; write names with dots between them, at most 10')
    """
    return None if _PATH.fullmatch(path) else "it is no path; write names with dots between them, at most 10"


def cents_of(said: str) -> int | None:
    """The cents that a limit means; None when none is set. Raises `BadPrice`."""
    return read_price(said).cents if said else None


def price_conflicts(
    prices: Mapping[str, PriceSettings], sources: Mapping[str, Any], price_sources: Iterable[str]
) -> Iterator[Conflict]:
    """What does not go together among the prices that are watched and the sources."""
    known = set(price_sources)
    for name, said in prices.items():
        above = f"prices.{name}"
        if not said.title.strip():
            yield Conflict((f"{above}.title", above), "it has no title; write what the thing is called")
        problem = currency_problem(said.currency)
        if problem:
            yield Conflict((f"{above}.currency", above), problem)
        yield from _limit_conflicts(above, said)
        for source in said.search:
            if source not in known:
                what = "is of another kind" if source in sources else "is not there"
                keys = (f"{above}.search", f"sources.{source}")
                yield Conflict(keys, f'the source {source!r} {what}; write [sources.{source}] with kind = "prices"')
        if not said.search and not known:
            yield Conflict((f"{above}.search", above), 'there is no source of prices; write one with kind = "prices"')


def _limit_conflicts(above: str, said: PriceSettings) -> Iterator[Conflict]:
    limits = {}
    for part in ("below", "above"):
        try:
            limits[part] = cents_of(getattr(said, part))
        except BadPrice as error:
            yield Conflict((f"{above}.{part}", above), str(error))
    low, high = limits.get("below"), limits.get("above")
    if low is not None and high is not None and low >= high:
        yield Conflict(
            (f"{above}.below", f"{above}.above"), "below is not less than above, so that all would be outside"
        )
