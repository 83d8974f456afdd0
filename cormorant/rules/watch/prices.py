"""Reading a price in cents, PriceWatch, price points, valuation, alerts and their events."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import IntEnum, StrEnum
from statistics import median
from typing import Final

from attrs import field, frozen

from cormorant.rules.addresses import normalised
from cormorant.rules.errors import CormorantError
from cormorant.rules.events import Event, event
from cormorant.rules.search.requests import QUERY_LENGTH_MAX, BadRequest, Result, SearchRequest
from cormorant.rules.units import as_written
from cormorant.rules.watch.titles import plain_words
from cormorant.rules.watch.watches import TAKEN_OUT, Watch

CENTS_MAX: Final = 10**13
"""A hundred thousand millions: what costs more is no price."""
TEXT_LENGTH_MAX: Final = 60

_SIGNS: Final = {"€": "EUR", "£": "GBP", "$": "USD", "¥": "JPY"}
_SIGN: Final = f"[{''.join(map(re.escape, _SIGNS))}]"
_APOSTROPHE: Final = "\u2019"
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_WRITTEN: Final = re.compile(
    rf"\A(?P<before>{_SIGN}|[A-Za-z]{{3}})? *(?P<number>[0-9][0-9.,' ]*+)(?P<after>{_SIGN}|[A-Za-z]{{3}})?"
)
# What divides thousands. Spaces and apostrophes only ever do that.
_GAPS: Final = re.compile(r"[.,' ]")
_GROUPED: Final = re.compile(r"[1-9][0-9]{0,2}(?:([.,' ])[0-9]{3})(?:\1[0-9]{3})*")
_PLAIN: Final = re.compile(r"[0-9]+(?:[.,][0-9]{1,2})?")
_BOTH: Final = re.compile(r"(?P<whole>[1-9][0-9]{0,2}(?:(?P<gap>[.,' ])[0-9]{3})+)(?P<point>[.,])(?P<cents>[0-9]{1,2})")


class BadPrice(CormorantError):
    """What was given is no price. The message says what it is instead."""

    def __init__(self, value: object, why: str) -> None:
        shown = as_written(value[:TEXT_LENGTH_MAX] if isinstance(value, str) else value)
        super().__init__(f"{shown} is no price: {why}")


@frozen
class Price:
    """An amount, and the currency if one stands with it."""

    cents: int
    currency: str | None = None


def read_price(value: object) -> Price:
    """The price that a number or a text means. Raises `BadPrice`.

    A number counts in whole units and is rounded to cents. In text, a `.` or `,` before one or two digits divides cents, before
    three it divides thousands; spaces and apostrophes divide thousands. A currency stands before or after, as a sign or as its
    three letters.

    >>> [read_price(each).cents for each in (12, 12.5, "1,234.50", "1.234,5", "1'234", "12,50 EUR", "$ 3")]
    [1200, 1250, 123450, 123450, 123400, 1250, 300]
    >>> read_price("12,50 EUR").currency
    'EUR'
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadPrice(type(value).__name__, "give a number, or a text such as 12.50 EUR")
    if isinstance(value, int) and abs(value) > CENTS_MAX:
        raise BadPrice("a number of so many digits", f"give 0 to {CENTS_MAX // 100:,}")
    if not isinstance(value, str):
        return Price(_checked(value, Decimal(str(value))))
    if len(value) > TEXT_LENGTH_MAX:
        raise BadPrice(value, f"it has more than {TEXT_LENGTH_MAX} characters")
    found = _WRITTEN.fullmatch(" ".join(value.replace(_APOSTROPHE, "'").split()))
    if found is None:
        raise BadPrice(value, "give a number, or a text such as 12.50 EUR")
    if found["before"] and found["after"]:
        raise BadPrice(value, "a currency stands on both sides")
    return Price(_checked(value, _amount(value, found["number"].strip())), _currency(found["before"] or found["after"]))


def currency_problem(text: str) -> str | None:
    """Why this is not how a currency is written.

    >>> currency_problem("EUR"), currency_problem("euro")
    (None, '"euro" is no currency; write its three capital letters, such as EUR')
    """
    if _CURRENCY.fullmatch(text):
        return None
    return f"{as_written(text[:TEXT_LENGTH_MAX])} is no currency; write its three capital letters, such as EUR"


def as_money(cents: int, currency: str) -> str:
    """For people.

    >>> as_money(123450, "EUR"), as_money(7, "EUR")
    ('1,234.50 EUR', '0.07 EUR')
    """
    return f"{cents // 100:,}.{cents % 100:02d} {currency}"


def as_amount(cents: int | None) -> str | None:
    """An amount as settings write it; None for none.

    >>> as_amount(9000), as_amount(-5), as_amount(None)
    ('90.00', '-0.05', None)
    """
    if cents is None:
        return None
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def _amount(value: str, number: str) -> Decimal:
    if _PLAIN.fullmatch(number):
        return Decimal(number.replace(",", "."))
    if _GROUPED.fullmatch(number):
        return Decimal(_GAPS.sub("", number))
    found = _BOTH.fullmatch(number)
    if found is None or found["gap"] == found["point"] or len(set(_GAPS.findall(found["whole"]))) > 1:
        raise BadPrice(value, "nobody can tell its thousands from its cents; write 1234.50")
    return Decimal(f"{_GAPS.sub('', found['whole'])}.{found['cents']}")


def _currency(written: str | None) -> str | None:
    return None if written is None else _SIGNS.get(written, written.upper())


def _checked(value: object, amount: Decimal) -> int:
    try:
        cents = int((amount * 100).quantize(Decimal(1), ROUND_HALF_UP)) if amount.is_finite() else -1
    except InvalidOperation:
        cents = -1
    if not 0 <= cents <= CENTS_MAX:
        raise BadPrice(value, f"give 0 to {CENTS_MAX // 100:,}")
    return cents


COLLECT: Final = "collect"
"""The kind of job that asks one source about one intake."""
STAGGER_S: Final = 2.0
"""So far apart the jobs of one round begin."""

CENTS, CURRENCY, TYPE, EXTERNAL_ID = "price_cents", "price_currency", "price_type", "price_id"
"""The attributes of a find that is a price."""
PROBLEM: Final = "price_problem"
"""The attribute of a find that should be a price and is none: why."""
_HASH_LENGTH: Final = 16
_ID_LENGTH_MAX: Final = 200


class PointType(StrEnum):
    """What kind of price it is. Only what was sold says what a thing is worth."""

    SOLD = "sold"
    ASK = "ask"
    BID = "bid"


class MatchStrength(IntEnum):
    """How surely a point is about the thing: a stronger one replaces a weaker of the same key."""

    NONE = 0
    """Words of the title are missing; it is kept and never counts."""
    TITLE = 1
    YEAR = 2
    """The title, and the year."""
    EXACT = 3
    """The title, and all that is said besides: year, mintmark, denomination, series."""


class AlertSide(StrEnum):
    """Where a value is, seen from the limits of its alerts."""

    WITHIN = ""
    BELOW = "below"
    ABOVE = "above"


@frozen(kw_only=True, slots=False)
class PriceWatch(Watch):
    """A thing whose price is watched."""

    title: str
    year: str = ""
    mintmark: str = ""
    denomination: str = ""
    series: str = ""
    every_s: float = 86_400.0
    currency: str = "EUR"
    below_cents: int | None = None
    above_cents: int | None = None

    def __attrs_post_init__(self) -> None:
        _check_line("title", self.title, is_needed=True)
        for part in ("year", "mintmark", "denomination", "series"):
            _check_line(part, getattr(self, part))
        problem = currency_problem(self.currency)
        if problem:
            raise BadRequest("currency", problem)
        for part, limit in (("below", self.below_cents), ("above", self.above_cents)):
            if limit is not None and not 0 <= limit <= CENTS_MAX:
                raise BadRequest(part, f"give 0 to {CENTS_MAX // 100:,}")
        if self.below_cents is not None and self.above_cents is not None and self.below_cents >= self.above_cents:
            raise BadRequest("below", "it is not less than above, so that every value would be outside")

    @property
    def idle_because(self) -> str | None:
        """Why nobody is asked about it by itself; None: its sources are."""
        if self.origin == TAKEN_OUT:
            return f"[prices.{self.name}] is no longer in the settings file"
        return "it is paused" if self.is_paused else None


@frozen(kw_only=True)
class PricePoint:
    """One price that one source states."""

    source: str
    title: str
    url: str = ""
    cents: int
    currency: str
    type: PointType
    day: date
    external_id: str | None = None
    match: MatchStrength
    key: str
    seen_at: datetime


@frozen(kw_only=True)
class Valuation:
    """What an intake is worth: the median of `points` sold prices, all of which match as well as `match` says."""

    cents: int
    currency: str
    points: int
    match: MatchStrength
    others: int = field(default=0)
    """Sold prices of that match in other currencies, which are not counted."""
    valued_at: datetime
    side: AlertSide = AlertSide.WITHIN


def dedupe_key(
    *,
    external_id: str | None,
    url: str,
    title: str,
    cents: int,
    day: date | None,
    type: PointType,  # noqa: A002 - its name
) -> str:
    r"""The same for the same point, however often it is stated: `ext_` and the source's own id, else `hash_` and a hash.

    The hash is the first 16 hex digits of the SHA-256 of five lines in UTF-8, with `\n` between them: the address (scheme and
    host in lower case, no user, query, fragment or final slash), the title (lower case, single spaces), the cents, the day
    that is stated (YYYY-MM-DD; nothing where none is: what stands there tomorrow as well is no other sale), and sold, ask or bid.

    >>> day = date(2026, 1, 2)
    >>> dedupe_key(external_id="17", url="", title="", cents=0, day=day, type=PointType.SOLD)
    'ext_17'
    >>> where = "https://Shop.example/lot/9/?utm=x#top"
    >>> dedupe_key(external_id=None, url=where, title=" Morgan  Dollar", cents=12_50, day=day, type=PointType.ASK)
    'hash_846fb1a771c285f5'
    """
    if external_id:
        # One that is too long for an index is told apart by its hash.
        is_short = len(external_id) <= _ID_LENGTH_MAX
        return f"ext_{external_id if is_short else _hash(external_id)}"
    lines = (_address(url), " ".join(title.lower().split()), str(cents), day.isoformat() if day else "", type.value)
    return f"hash_{_hash(chr(10).join(lines))[:_HASH_LENGTH]}"


def request_for(intake: PriceWatch) -> SearchRequest:
    """What a source is asked. Sources answer it alike for the same year, mintmark, denomination, series and title."""
    parts = ("year", "mintmark", "denomination", "series")
    return SearchRequest(query=intake.title, params={part: getattr(intake, part) for part in parts})


def match_of(intake: PriceWatch, title: str) -> MatchStrength:
    """How surely a title is about the intake: which of its words are in it.

    >>> now = datetime(2026, 1, 1)
    >>> coin = PriceWatch(name="m", title="Morgan Dollar", year="1881", mintmark="S", next_attempt_at=now, added_at=now)
    >>> [match_of(coin, title).name for title in ("1881-S Morgan Dollar", "morgan dollar 1881", "Morgan Dollar", "Peace Dollar")]
    ['EXACT', 'YEAR', 'TITLE', 'NONE']
    """
    words = _words(title)
    if not words >= _words(intake.title):
        return MatchStrength.NONE
    said = (intake.year, intake.mintmark, intake.denomination, intake.series)
    if all(words >= _words(each) for each in said):
        return MatchStrength.EXACT
    return MatchStrength.YEAR if intake.year and words >= _words(intake.year) else MatchStrength.TITLE


def point_of(intake: PriceWatch, source: str, result: Result, *, now: datetime) -> PricePoint | None:
    """A find as a point of an intake; None when it states no price.

    Where it names no day it is today's, where it names no currency that of the intake, and where it names no type an ask.
    """
    said = {name: values[0] for name, values in result.attributes.items() if values}
    cents = said.get(CENTS, "")
    if not (cents.isascii() and cents.isdecimal()) or int(cents) > CENTS_MAX:
        return None
    kind = PointType(said[TYPE]) if said.get(TYPE) in set(PointType) else PointType.ASK
    day = result.published.date() if result.published else None
    external_id = said.get(EXTERNAL_ID) or None
    return PricePoint(
        source=source,
        title=result.title,
        url=result.details,
        cents=int(cents),
        currency=said.get(CURRENCY) or intake.currency,
        type=kind,
        day=day or now.date(),
        external_id=external_id,
        match=match_of(intake, result.title),
        key=dedupe_key(
            external_id=external_id, url=result.details, title=result.title, cents=int(cents), day=day, type=kind
        ),
        seen_at=now,
    )


def problems_of(results: Iterable[Result]) -> list[str]:
    """Why finds are no prices, one for each."""
    return [why for result in results for why in result.attributes.get(PROBLEM, ())[:1]]


def value_of(
    points: Iterable[tuple[int, str, MatchStrength]], intake: PriceWatch, *, now: datetime
) -> Valuation | None:
    """The median of sold prices of the strongest match that there are any of; None without any.

    Of each point: cents, currency, match. Currencies are never mixed: only that of the intake counts.
    """
    known = [point for point in points if point[2] is not MatchStrength.NONE]
    own = [point for point in known if point[1] == intake.currency]
    if not own:
        return None
    best = max(match for _, _, match in own)
    counted = [cents for cents, _, match in own if match is best]
    cents = _middle(counted)
    return Valuation(
        cents=cents,
        currency=intake.currency,
        points=len(counted),
        match=best,
        others=sum(currency != intake.currency and match is best for _, currency, match in known),
        valued_at=now,
        side=side_of(intake, cents),
    )


def side_of(intake: PriceWatch, cents: int) -> AlertSide:
    """Where a value is. At the limit itself it is within."""
    if intake.below_cents is not None and cents < intake.below_cents:
        return AlertSide.BELOW
    if intake.above_cents is not None and cents > intake.above_cents:
        return AlertSide.ABOVE
    return AlertSide.WITHIN


def has_crossed(before: AlertSide, after: AlertSide) -> bool:
    """Whether an alert is due: it went out, and was not out on that side before."""
    return after is not AlertSide.WITHIN and after is not before


def collect_key(intake_id: int, source: str) -> str:
    """What a job is known by: one for each intake and source."""
    return f"{intake_id}:{source}"


def _middle(cents: Sequence[int]) -> int:
    """Of two in the middle, half way, and half a cent up."""
    found = median(cents)
    return found if isinstance(found, int) else int(found + 0.5)


def _words(text: str) -> frozenset[str]:
    return frozenset(plain_words(text).split())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _address(url: str) -> str:
    try:
        return normalised(url.strip())
    except ValueError:  # no address; then it is told apart as it is written
        return url.strip().partition("#")[0].partition("?")[0]


def _check_line(part: str, text: str, *, is_needed: bool = False) -> None:
    if (is_needed and not text.strip()) or len(text) > QUERY_LENGTH_MAX or not text.isprintable():
        raise BadRequest(
            part, f"it is {'empty, or ' if is_needed else ''}no single line of at most {QUERY_LENGTH_MAX:,} characters"
        )


@event("price.collected")
class PriceCollected(Event):
    """A source was asked about a price. `points` it stated, of which `written` are new or match better."""

    price: str
    source: str
    points: int
    written: int


@event("price.left_out", level="warning")
class PriceLeftOut(Event):
    """`items` of what a source stated are no prices and were left out; the others went on. `why`: the first few reasons."""

    price: str
    source: str
    items: int
    why: str


@event("price.valued")
class PriceValued(Event):
    """A thing is worth something else than before: the median of `points` sold prices."""

    price: str
    cents: int
    currency: str
    points: int
    match: str


@event("price.alert", level="warning")
class PriceAlert(Event):
    """A value went below or above its limit; once for each crossing."""

    price: str
    side: str
    limit_cents: int
    cents: int
    currency: str
