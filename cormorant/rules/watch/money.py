"""How much is this? A price as sites write it, in cents; what could mean two things is refused by name."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Final

from attrs import frozen

from cormorant.rules.errors import CormorantError
from cormorant.rules.units import as_written

__all__ = ["CENTS_MAX", "BadPrice", "Price", "as_money", "currency_problem", "read_price"]

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
