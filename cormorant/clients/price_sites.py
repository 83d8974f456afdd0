"""Prices from JSON APIs by template and path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from attrs import asdict, define, field, frozen

from cormorant.clients.http.headers import read_date
from cormorant.clients.http.transport import Answer, FetchLimits, Transport
from cormorant.clients.torznab_replies import IndexerReply, error_of
from cormorant.rules.json_documents import parse_json
from cormorant.rules.ports import Ports
from cormorant.rules.search.outcomes import SourceRefused, SourceUnavailable
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.secrets import Secret, redact_keys, redact_secrets, shortened
from cormorant.rules.settings.watch import PARTS, PriceFieldSettings
from cormorant.rules.watch.prices import (
    CENTS,
    CURRENCY,
    EXTERNAL_ID,
    PROBLEM,
    TYPE,
    BadPrice,
    PointType,
    Price,
    currency_problem,
    read_price,
)

__all__ = ["ITEMS_MAX", "PriceClient", "PriceRecipe"]

ITEMS_MAX: Final = 500
"""So many of an answer are taken, from its top."""
TITLE_MAX: Final = 300
LINK_MAX: Final = 1_000
ID_MAX: Final = 1_000
_AHEAD_MAX: Final = timedelta(days=1)
"""A later day is a mistake of the site, and as if it had named none."""
_KEYS: Final = "key"
_LIMITS: Final = FetchLimits(timeout_s=120.0, body_max_bytes=5_000_000)
_DIGITS_MAX: Final = 30


@frozen(kw_only=True)
class PriceRecipe:
    """How a site is asked, and where the facts stand in its answer."""

    query: str = "q={title}"
    items: str = ""
    fields: PriceFieldSettings = field(factory=PriceFieldSettings)


@define(eq=False)
class PriceClient:
    """Asks one site. Raises a `SourceError`."""

    _url: str
    _key: Secret
    _transport: Transport
    _environment: Ports
    _recipe: PriceRecipe = field(factory=PriceRecipe, kw_only=True)

    async def search(self, request: SearchRequest) -> SearchPage:
        """The prices that the site states. What is no price comes with the reason; if all of it is none, that is an error."""
        answer = await self._transport.get(
            self._address(request),
            headers=self._headers(),
            open_headers={"Accept": "application/json"},
            secrets=self._secrets(),
            limits=_LIMITS,
        )
        self._refuse(answer)
        return SearchPage(results=await self._environment.offload(partial(self._read, answer.body)))

    def _address(self, request: SearchRequest) -> str:
        said: dict[str, str] = {part: request.params.get(part, "") for part in PARTS}
        said |= {"title": request.query, _KEYS: self._key.reveal()}
        encoded = {part: quote(value, safe="", errors="replace") for part, value in said.items()}
        return f"{self._url}?{self._recipe.query.format_map(encoded)}"

    def _headers(self) -> dict[str, str]:
        is_in_query = f"{{{_KEYS}}}" in self._recipe.query
        return {} if is_in_query or not self._key else {"Authorization": f"Bearer {self._key.reveal()}"}

    def _secrets(self) -> list[Secret]:
        return [self._key] if self._key else []

    def _refuse(self, answer: Answer) -> None:
        wait_s = answer.retry_after_s(self._environment.clock.now())
        error = error_of(IndexerReply(status=answer.status, retry_after_s=wait_s, key_was_sent=bool(self._key)))
        if error is not None:
            raise error
        if answer.status == HTTPStatus.NO_CONTENT:
            raise SourceUnavailable("it answered without a document")

    def _read(self, body: bytes) -> tuple[Result, ...]:
        try:
            document = parse_json(body, parse_int=_read_number)
        except ValueError:
            raise SourceUnavailable("its answer is no JSON; check url and query") from None
        found = at_path(document, self._recipe.items)
        if not isinstance(found, list):
            where = f"items = {self._recipe.items!r}" if self._recipe.items else "items, as the answer itself is none"
            raise SourceRefused(f"there is no list of prices in its answer; check {where}")
        results: list[Result] = []
        problems: list[str] = []
        for number, item in enumerate(found[:ITEMS_MAX], 1):
            try:
                results.append(self._result(item))
            except (BadPrice, _Unusable) as problem:
                problems.append(shortened(str(problem), self._secrets()))
                results.append(self._unusable(number, item, problems[-1]))
        if problems and len(results) == len(problems):
            raise SourceRefused(
                f"none of its {len(problems)} items can be used; check fields (the first: {problems[0]})"
            )
        return tuple(results)

    def _unusable(self, number: int, item: Any, why: str) -> Result:
        title = self._text({"title": at_path(item, self._recipe.fields.title)}, "title")[:TITLE_MAX]
        return Result(
            title=title or f"item {number}",
            guid=f"item {number}",
            link="",
            protocol="web",
            attributes={PROBLEM: (why,)},
        )

    def _result(self, item: Any) -> Result:
        facts = {name: at_path(item, path) for name, path in asdict(self._recipe.fields).items() if path}
        title = self._text(facts, "title")[:TITLE_MAX]
        if not title:
            raise _Unusable(f"there is no title at {self._recipe.fields.title!r}")
        if facts.get("price") is None:
            raise _Unusable(f"there is no price at {self._recipe.fields.price!r}")
        price = read_price(facts["price"])
        link = redact_keys(self._text(facts, "url"))[:LINK_MAX]
        external_id = self._text(facts, "id")[:ID_MAX]
        return Result(
            title=title,
            guid=external_id or link or title,
            link=link,
            details=link,
            protocol="web",
            published=self._day(self._text(facts, "date")),
            attributes=dict(self._attributes(price, facts, external_id)),
        )

    def _attributes(
        self, price: Price, facts: Mapping[str, Any], external_id: str
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield CENTS, (str(price.cents),)
        stated = self._text(facts, "currency").upper()
        currency = stated if stated and currency_problem(stated) is None else price.currency
        if stated and currency_problem(stated) is not None and price.currency is None:
            raise _Unusable(currency_problem(stated) or "")
        if currency and price.currency not in {None, currency}:
            raise _Unusable(f"its price is in {price.currency}, and its currency says {currency}")
        if currency:
            yield CURRENCY, (currency,)
        kind = self._text(facts, "type").lower()
        if kind in set(PointType):
            yield TYPE, (kind,)
        if external_id:
            yield EXTERNAL_ID, (external_id,)

    def _text(self, facts: Mapping[str, Any], name: str) -> str:
        """One line, whatever it is; a key that the site repeats is not in it."""
        value = facts.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return ""
        # Not all of a text of megabytes; a number is never so long.
        return " ".join(redact_secrets(str(value)[: 4 * LINK_MAX], self._secrets()).replace("\0", "").split())

    def _day(self, said: str) -> datetime | None:
        day = read_date(said)
        return None if day is None or day > self._environment.clock.now() + _AHEAD_MAX else day


def _read_number(digits: str) -> int | float:
    """One of thousands of digits must not spoil the whole answer."""
    return int(digits) if len(digits) <= _DIGITS_MAX else float(digits)


class _Unusable(Exception):
    """An item is no price."""


def at_path(value: Any, path: str) -> Any:
    """What stands at a path; None when nothing does. A number is a place in a list.

    >>> at_path({"data": [{"price": {"value": 5}}]}, "data.0.price.value"), at_path({"a": 1}, "b.c"), at_path([1], "")
    (5, None, [1])
    """
    for name in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
