"""Price tables in CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, TypeVar

from attrs import frozen

from cormorant.rules.errors import CormorantError
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.keys import nearest, suggestion
from cormorant.rules.settings.watch import PriceSettings, options_from
from cormorant.rules.units import as_written
from cormorant.rules.watch.prices import (
    BadPrice,
    MatchStrength,
    PointType,
    PricePoint,
    PriceWatch,
    currency_problem,
    dedupe_key,
    match_of,
    read_price,
)

__all__ = [
    "BYTES_MAX",
    "IMPORTED",
    "LINES_MAX",
    "CsvRow",
    "CsvTable",
    "NotATable",
    "WrongLines",
    "points_in",
    "read_table",
    "things_in",
]

BYTES_MAX: Final = 5_000_000
LINES_MAX: Final = 20_000
IMPORTED: Final = "(import)"
"""The source of what a person wrote down. No source can have this name."""

_SHOWN: Final = 20
_THING: Final = ("name", "title", "year", "mintmark", "denomination", "series")
_THINGS: Final = (*_THING, "search", "every", "currency", "below", "above")
_POINTS: Final = ("name", "price", "date", "type", "currency", "title", "url", "id")
_CELL_MAX: Final = 1_000

T = TypeVar("T")


class NotATable(CormorantError):
    """The file as a whole cannot be read. The message says the remedy."""


class WrongLines(CormorantError):
    """Lines that cannot be taken in, each with its number and the remedy. Nothing was."""

    def __init__(self, problems: Sequence[str]) -> None:
        shown = [*problems[:_SHOWN], *([f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else [])]
        super().__init__("\n".join(shown))
        self.problems = tuple(shown)
        self.count = len(problems)


@frozen
class CsvRow:
    """A line that says something, the number it has in the file, and why it cannot be read, if so."""

    line: int
    cells: Mapping[str, str]
    problem: str = ""


@frozen(kw_only=True)
class CsvTable:
    """What was read. `has_prices`: of prices, not of things to watch."""

    rows: tuple[CsvRow, ...]
    has_prices: bool


MakeWatch = Callable[[str, PriceSettings], PriceWatch]
"""Makes a price to watch of its name and options, or raises `CormorantError`."""


def read_table(body: bytes) -> CsvTable:
    r"""The rows of a file. Raises `NotATable`.

    >>> table = read_table(b"name;price\nmorgan;12,50\n\n")
    >>> table.has_prices, [(row.line, dict(row.cells)) for row in table.rows]
    (True, [(2, {'name': 'morgan', 'price': '12,50'})])
    """
    if len(body) > BYTES_MAX:
        raise NotATable(f"it has more than {BYTES_MAX // 10**6} MB; divide it into several files")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NotATable("it is not UTF-8; save it as CSV in UTF-8") from None
    if "\0" in text:
        raise NotATable("it has NUL characters and is no CSV; save it as CSV in UTF-8")
    first = text.partition("\n")[0]
    divider = max(",;\t", key=first.count)
    plain = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    lines = csv.reader((f"{line}\n" for line in plain.split("\n")), delimiter=divider, strict=True)
    try:
        head = [cell.strip().lower() for cell in next(lines, [])]
        has_prices = _checked_head(head)
        return CsvTable(rows=tuple(_rows(lines, head)), has_prices=has_prices)
    except csv.Error as error:
        raise NotATable(f"line {lines.line_num}: {error}; look for a quotation mark that is not closed") from None


def _checked_head(head: Sequence[str]) -> bool:
    has_prices = "price" in head
    any_of = _THINGS if "title" in head else tuple(dict.fromkeys((*_THINGS, *_POINTS)))
    known = _POINTS if has_prices else any_of
    needed = ("name", "price") if has_prices else ("name", "title")
    for name in head:
        if name not in known:
            there = f"there are {', '.join(known)}"
            raise NotATable(f"line 1: there is no column {as_written(name[:40])}{suggestion(name, known)}; {there}")
        if head.count(name) > 1:
            raise NotATable(f"line 1: the column {name} is there twice; take one out")
    missing = [name for name in needed if name not in head]
    if missing:
        how = "name and price for prices, or name and title for things to watch"
        raise NotATable(f"line 1 has no column {missing[0]}; write a first line with the names of the columns: {how}")
    return has_prices


def _rows(lines: Any, head: Sequence[str]) -> Iterator[CsvRow]:
    number = 0
    for cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        number += 1
        if number > LINES_MAX:
            raise NotATable(f"it has more than {LINES_MAX:,} lines; divide it into several files")
        problem = ""
        if len(cells) > len(head):
            problem = f"it has {len(cells)} cells, the first line {len(head)}; a text with the divider in it needs quotation marks"
        elif any(len(cell) > _CELL_MAX for cell in cells):
            problem = f"a cell has more than {_CELL_MAX:,} characters; shorten it"
        # What a line leaves out at its end is empty.
        whole = [*cells, *[""] * (len(head) - len(cells))]
        said = {name: " ".join(cell.split()) for name, cell in zip(head, whole, strict=False)}
        yield CsvRow(lines.line_num, said, problem)


def _each(table: CsvTable, read: Callable[[CsvRow], T]) -> list[T]:
    """All lines, or every problem of them."""
    found: list[T] = []
    problems: list[str] = []
    for row in table.rows:
        try:
            if row.problem:
                raise ValueError(row.problem)  # noqa: TRY301 - told with the others
            found.append(read(row))
        except (CormorantError, ValueError) as error:
            problems.append(f"line {row.line}: {error}")
    if problems:
        raise WrongLines(problems)
    return found


def things_in(table: CsvTable, make: MakeWatch) -> list[PriceWatch]:
    """The things to watch. Raises `WrongLines`."""
    seen: dict[str, int] = {}

    def read(row: CsvRow) -> PriceWatch:
        said = row.cells
        name = said["name"]
        problem = name_problem(name)
        if problem:
            raise ValueError(f"name: {problem}")
        if name in seen:
            raise ValueError(f"name: {name!r} is in line {seen[name]} already; choose another")
        seen[name] = row.line
        given: dict[str, Any] = {part: cell for part, cell in said.items() if cell and part not in {"name", "search"}}
        given |= {"every_s": given.pop("every", None), "currency": said.get("currency", "").upper() or None}
        given["search"] = [each.strip() for each in said.get("search", "").split(",") if each.strip()]
        return make(name, options_from(PriceSettings, given))

    return _each(table, read)


def points_in(table: CsvTable, things: Mapping[str, PriceWatch], *, now: datetime) -> dict[str, list[PricePoint]]:
    """The prices of each thing. Raises `WrongLines`."""
    strange: set[str] = set()

    def read(row: CsvRow) -> tuple[str, PricePoint]:
        name = row.cells["name"]
        if name not in things:
            strange.add(name)
            # Only the first problems are shown: the nearest name is not worth looking for in all lines of a wrong file.
            meant = nearest(name[:40], things) if len(strange) <= _SHOWN else None
            how = f"did you mean {meant}?" if meant else 'add it first: cormorant prices add NAME "TITLE"'
            raise ValueError(f"name: no price is watched as {as_written(name[:40])}; {how}")
        return name, _point(things[name], row.cells, now=now)

    found: dict[str, list[PricePoint]] = {}
    for name, point in _each(table, read):
        found.setdefault(name, []).append(point)
    return found


def _point(intake: PriceWatch, said: Mapping[str, str], *, now: datetime) -> PricePoint:
    price = _part("price", read_price, said["price"])
    currency = said.get("currency", "").upper()
    if currency and (problem := currency_problem(currency)):
        raise BadRequest("currency", problem)
    if currency and price.currency not in {None, currency}:
        raise BadRequest("currency", f"the price is in {price.currency}, the column says {currency}; write one of them")
    title = said.get("title", "")
    kind = _part("type", _type, said.get("type") or "sold")
    day = _part("date", _day, said.get("date", ""), now)
    external_id = said.get("id") or None
    url = said.get("url", "")
    return PricePoint(
        source=IMPORTED,
        title=title or intake.title,
        url=url,
        cents=price.cents,
        currency=currency or price.currency or intake.currency,
        type=kind,
        day=day or now.date(),
        external_id=external_id,
        # Without a title there is nothing but the word of whoever wrote it down, and that is about this thing.
        match=match_of(intake, title) if title else MatchStrength.EXACT,
        key=dedupe_key(
            external_id=external_id, url=url, title=title or intake.title, cents=price.cents, day=day, type=kind
        ),
        seen_at=now,
    )


def _part(part: str, read: Callable[..., T], *words: Any) -> T:
    try:
        return read(*words)
    except (BadPrice, ValueError) as error:
        raise BadRequest(part, str(error)) from None


def _type(said: str) -> PointType:
    if said.lower() not in set(PointType):
        raise ValueError(f"{as_written(said[:40])} is no kind of price; write sold, ask or bid")
    return PointType(said.lower())


def _day(said: str, now: datetime) -> date | None:
    if not said:
        return None
    try:
        day = date.fromisoformat(said) if len(said) == len("2026-01-31") else None
    except ValueError:
        day = None
    if day is None:
        raise ValueError(f"{as_written(said[:40])} is no day; write it as 2026-01-31")
    if day > (now + timedelta(days=1)).date():
        raise ValueError(f"{said} is still to come; write the day on which the price was stated")
    return day
