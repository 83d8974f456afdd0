"""Tables of prices: what is wrong is told by its line, and the rest is read as it was meant."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cormorant.rules.settings.watch import PriceSettings, price_of
from cormorant.rules.watch import price_import
from cormorant.rules.watch.price_import import (
    BYTES_MAX,
    IMPORTED,
    NotATable,
    WrongLines,
    points_in,
    read_table,
    things_in,
)
from cormorant.rules.watch.prices import MatchStrength, PointType, PriceWatch
from tests.bounds import QUADRATIC_FROM, growth

NOW = datetime(2026, 1, 10, tzinfo=UTC)


def coin(name: str = "cent", **words: Any) -> PriceWatch:
    usual: dict[str, Any] = {"title": "Lincoln Cent", "year": "1909", "next_attempt_at": NOW, "added_at": NOW}
    return PriceWatch(name=name, **usual | words)


def coin_of(name: str, options: PriceSettings) -> PriceWatch:
    return price_of(name, options, now=NOW)


def wrong_lines(body: str) -> list[str]:
    table = read_table(body.encode())
    with pytest.raises(WrongLines) as caught:
        _ = points_in(table, {"cent": coin()}, now=NOW) if table.has_prices else things_in(table, coin_of)
    return list(caught.value.problems)


def test_prices_are_read_whatever_the_order_divider_and_case_of_the_columns() -> None:
    table = read_table(
        "\ufeffPrice;NAME;date;Type;currency;title\r\n12,50 usd;cent;2026-01-02\r\n\r\n7;cent;;ASK;chf;1909 cent\r\n".encode()
    )

    [first, second] = points_in(table, {"cent": coin()}, now=NOW)["cent"]

    assert (first.cents, first.currency, first.day, first.type) == (1250, "USD", date(2026, 1, 2), PointType.SOLD)
    assert (first.source, first.title, first.match) == (IMPORTED, "Lincoln Cent", MatchStrength.EXACT)
    assert (second.cents, second.currency, second.day, second.type) == (700, "CHF", NOW.date(), PointType.ASK)
    assert second.match is MatchStrength.NONE, "a title that is given is judged"
    [_, later] = points_in(table, {"cent": coin()}, now=NOW + timedelta(days=1))["cent"]
    assert later.key == second.key, "the table can be imported again tomorrow"


def test_things_are_read_with_all_that_can_be_said_of_them() -> None:
    body = 'name,title,search,every,below,above,currency\ncent,"Cent, Lincoln","a, b",12h,1,2.50,usd\ndime,Dime\n'

    cent, dime = things_in(read_table(body.encode()), coin_of)

    assert (cent.title, cent.sources, cent.every_s) == ("Cent, Lincoln", ("a", "b"), 43_200.0)
    assert (cent.below_cents, cent.above_cents, cent.currency) == (100, 250, "USD")
    assert (dime.name, dime.title, dime.every_s) == ("dime", "Dime", 86_400.0)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("cent,NaN", "price: .*no price"),
        ("cent,cheap", 'price: "cheap" is no price: give a number'),
        ("cent,-5", "price: .*give a number"),
        ("cent,99999999999999999999", "price: .*give 0 to"),
        ("cent,", "price: .*give a number"),
        ("cent,$5,,EUR", "currency: the price is in USD, the column says EUR; write one of them"),
        ("cent,5,,coins", "currency: .*three capital letters"),
        ("cent,5,3.1.2026", "date: .*write it as 2026-01-31"),
        ("cent,5,2026-02-30", "date: .*write it as"),
        ("cent,5,2026-02-01", "date: .*still to come"),
        ("cent,5,,,gift", "type: .*write sold, ask or bid"),
        ("cnet,5", "name: .*did you mean cent"),
        ("dollar,5", "name: .*cormorant prices add"),
        ("cent,5,,,,9", "it has 6 cells, the first line 5"),
        (f"cent,{'5' * 1_001}", "more than 1,000 characters"),
    ],
)
def test_each_wrong_price_is_told_with_its_line_and_the_remedy(line: str, told: str) -> None:
    [problem] = wrong_lines(f"name,price,date,currency,type\ncent,5\n{line}\n")

    assert problem.startswith("line 3: ")
    with pytest.raises(ValueError, match=told):
        raise ValueError(problem)


def test_every_wrong_line_of_things_is_told_at_once_and_not_too_many() -> None:
    lines = ["a,", "B b,x", "c,x,never", "d,x,,cheap", "d,x", *[f"e{number}" for number in range(30)]]

    problems = wrong_lines("name,title,every,below\n" + "\n".join(lines))

    assert [problem.partition(":")[0] for problem in problems[:5]] == [f"line {number}" for number in range(2, 7)]
    assert "line 5 already" in problems[4]
    assert problems[-1] == "and 15 more"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "line 1 has no column name"),
        (b"name,prise\n", "no column .prise., did you mean .?price|did you mean"),
        (b"name,title,colour\n", "no column .colour.; there are name, title"),
        (b"name,price,price\n", "twice"),
        (b"name,year\n", "line 1 has no column title"),
        (b'name,price\n"cent,5\n', "quotation mark"),
        (b"name,price\ncent,\xff\n", "not UTF-8"),
        (b"name,price\ncent,\0\n", "NUL"),
        (b"x" * (BYTES_MAX + 1), "more than 5 MB"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused_as_a_whole(body: bytes, told: str) -> None:
    with pytest.raises(NotATable, match=told):
        read_table(body)


def test_a_table_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_import, "LINES_MAX", 3)

    assert len(read_table(b"name,price\n" + b"a,5\n" * 3).rows) == 3
    with pytest.raises(NotATable, match="more than 3 lines; divide it"):
        read_table(b"name,price\n" + b"a,5\n" * 4)


@settings(max_examples=50)
@given(st.text(max_size=60))
@example(",")
def test_whatever_stands_below_the_first_line_is_read_or_refused_by_name(rest: str) -> None:
    told = ""
    try:
        points_in(read_table(f"name,price\n{rest}".encode()), {"cent": coin()}, now=NOW)
    except (NotATable, WrongLines) as error:
        told = str(error)

    is_empty = not rest.replace(",", " ").strip()  # lines without any value are left out
    assert is_empty or told, "no text is a price of a cent by chance"


@pytest.mark.slow("looks for names that are nearly alike")
def test_a_table_of_wrong_names_is_refused_in_linear_time() -> None:
    def refuse(count: int) -> None:
        things = {f"thing-{number}": coin() for number in range(count)}
        table = read_table("\n".join(["name,price", *(f"thng-{number},1" for number in range(count))]).encode())
        with pytest.raises(WrongLines, match="did you mean thing-0"):
            points_in(table, things, now=NOW)

    assert growth(refuse, 40, 320) < QUADRATIC_FROM
