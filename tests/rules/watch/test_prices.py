"""Prices as sites write them, what tells points apart, and what a thing is worth."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cormorant.rules.search.requests import BadRequest, Result, search_key
from cormorant.rules.watch.prices import (
    CENTS_MAX,
    AlertSide,
    BadPrice,
    MatchStrength,
    PointType,
    PriceWatch,
    as_money,
    dedupe_key,
    has_crossed,
    match_of,
    point_of,
    read_price,
    request_for,
    side_of,
    value_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
amounts = st.integers(0, CENTS_MAX - 1)
sold = st.lists(st.tuples(amounts, st.sampled_from(["EUR", "USD"]), st.sampled_from(MatchStrength)), max_size=20)


def coin(**words: Any) -> PriceWatch:
    usual: dict[str, Any] = {"name": "morgan", "title": "Morgan Dollar", "next_attempt_at": NOW, "added_at": NOW}
    return PriceWatch(**usual | words)


@settings(max_examples=30)
@given(amounts)
def test_what_is_written_in_any_usual_way_is_read_as_it_was_meant(cents: int) -> None:
    whole, rest = divmod(cents, 100)
    grouped = f"{whole:,}"
    ways = [
        f"{whole}.{rest:02d}",
        f"{whole},{rest:02d} EUR",
        f"€{grouped}.{rest:02d}",
        f"{grouped.replace(',', '.')},{rest:02d}",
        f"{grouped.replace(',', ' ')},{rest:02d}",
        f"{grouped.replace(',', chr(0xA0))}.{rest:02d}",
        f"CHF {grouped.replace(',', chr(0x2019))}.{rest:02d}",
        as_money(cents, "EUR"),
    ]

    assert [read_price(way).cents for way in ways] == [cents] * len(ways)


@settings(max_examples=30)
@given(st.one_of(st.text(max_size=80), st.floats(), st.integers(), st.none(), st.booleans()))
def test_whatever_is_given_is_a_price_within_bounds_or_refused_by_name(value: object) -> None:
    told = ""
    try:
        cents = read_price(value).cents
    except BadPrice as refused:
        cents, told = 0, str(refused)

    assert 0 <= cents <= CENTS_MAX
    assert not told or ("is no price: " in told and len(told) < 300)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.123", "thousands from its cents"),
        ("1,23,456", "thousands from its cents"),
        ("1.234.56", "thousands from its cents"),
        ("1,234,5", "thousands from its cents"),
        ("-5", "give a number"),
        ("", "give a number"),
        ("1e9", "give a number"),
        ("12 apples", "give a number"),
        ("EUR 12 USD", "both sides"),
        ("9" * 59, "give 0 to"),
        ("9" * 61, "more than 60"),
        (True, "give a number"),
        (None, "give a number"),
        (float("nan"), "give 0 to"),
        (float("inf"), "give 0 to"),
        (1e300, "give 0 to"),
        (-0.5, "give 0 to"),
    ],
)
def test_what_is_no_price_or_could_be_two_is_refused(text: object, why: str) -> None:
    with pytest.raises(BadPrice, match=why):
        read_price(text)


def test_the_hash_is_made_as_it_is_documented() -> None:
    key = dedupe_key(
        external_id=None,
        url="HTTPS://Shop.Example:443/Lot/9/?session=1#photos",
        title="  1881-S\tMorgan   DOLLAR ",
        cents=12_50,
        day=date(2026, 1, 2),
        type=PointType.SOLD,
    )

    lines = "https://shop.example/Lot/9\n1881-s morgan dollar\n1250\n2026-01-02\nsold"
    assert key == f"hash_{hashlib.sha256(lines.encode()).hexdigest()[:16]}"


@settings(max_examples=30)
@given(st.text(), st.text(), amounts, st.dates(), st.sampled_from(PointType))
def test_an_id_of_the_source_decides_alone(url: str, title: str, cents: int, day: date, kind: PointType) -> None:
    words = {"url": url, "title": title, "cents": cents, "day": day, "type": kind}

    assert dedupe_key(external_id="a 1", **words) == "ext_a 1"  # type: ignore[arg-type]  # mixed values
    hashed = dedupe_key(external_id=None, **words)  # type: ignore[arg-type]  # as above
    assert hashed.startswith("hash_")
    assert len(hashed) == len("hash_") + 16
    spread = {"title": f"  {title} ", "url": url}
    assert hashed == dedupe_key(external_id="", **words | spread)  # type: ignore[arg-type]  # as above


def test_an_id_that_is_too_long_for_an_index_is_hashed() -> None:
    words: Any = {"url": "", "title": "", "cents": 1, "day": date(2026, 1, 1), "type": PointType.ASK}

    assert len(dedupe_key(external_id="x" * 10_000, **words)) == len("ext_") + 64


@settings(max_examples=30)
@given(sold, st.integers())
def test_the_value_is_a_median_of_the_strongest_and_the_order_does_not_matter(
    points: list[tuple[int, str, MatchStrength]], seed: int
) -> None:
    mixed = list(points)
    random.Random(seed).shuffle(mixed)

    value = value_of(points, coin(), now=NOW)

    assert value == value_of(mixed, coin(), now=NOW)
    own = [(match, cents) for cents, currency, match in points if currency == "EUR" and match is not MatchStrength.NONE]
    if value is None:
        assert not own
        return
    best = max(match for match, _ in own)
    counted = [cents for match, cents in own if match is best]
    assert (value.match, value.points, value.currency) == (best, len(counted), "EUR")
    assert min(counted) <= value.cents <= max(counted)
    assert sum(cents <= value.cents for cents in counted) * 2 >= len(counted)


def test_currencies_are_kept_apart_and_what_does_not_match_never_counts() -> None:
    points = [
        (100, "EUR", MatchStrength.TITLE),
        (301, "EUR", MatchStrength.TITLE),
        (9, "USD", MatchStrength.TITLE),
        (7, "EUR", MatchStrength.NONE),
    ]

    value = value_of(points, coin(), now=NOW)

    assert value is not None
    assert (value.cents, value.points, value.others) == (201, 2, 1), "half a cent up"
    assert value_of([(9, "USD", MatchStrength.EXACT)], coin(), now=NOW) is None


@settings(max_examples=30)
@given(st.lists(amounts, max_size=20), amounts, amounts)
def test_an_alert_comes_once_for_each_crossing(values: list[int], one: int, two: int) -> None:
    low, high = sorted((one, two))
    intake = coin(below_cents=low, above_cents=high + 1)
    sides = [AlertSide.WITHIN, *(side_of(intake, cents) for cents in values)]

    told = [after for before, after in pairwise(sides) if has_crossed(before, after)]

    runs = [side for before, side in pairwise(sides) if side is not before]
    assert told == [side for side in runs if side is not AlertSide.WITHIN]


def test_at_its_limit_a_value_is_within() -> None:
    intake = coin(below_cents=100, above_cents=200)

    assert [side_of(intake, cents) for cents in (99, 100, 200, 201)] == [
        AlertSide.BELOW,
        AlertSide.WITHIN,
        AlertSide.WITHIN,
        AlertSide.ABOVE,
    ]


def test_a_mintmark_counts_for_the_strongest_match_only() -> None:
    intake = coin(year="1881", mintmark="S", series="Morgan", denomination="1 Dollar")
    titles = ["1881 S Morgan 1 Dollar", "Morgan Dollar 1881", "Morgan dollar, 1882-S", "1881-S Peace Dollar"]

    assert [match_of(intake, title) for title in titles] == [
        MatchStrength.EXACT,
        MatchStrength.YEAR,
        MatchStrength.TITLE,
        MatchStrength.NONE,
    ]


def test_what_sources_answer_alike_has_one_key_in_the_cache() -> None:
    keys = {
        search_key(request_for(coin(**words)))
        for words in ({"year": "1881"}, {"title": "morgan  DOLLAR", "year": "1881", "name": "other", "every_s": 60.0})
    }
    others = [{"year": "1882"}, {"mintmark": "S"}, {"denomination": "1"}, {"series": "s"}, {"title": "t"}]

    assert len(keys) == 1
    assert len(keys | {search_key(request_for(coin(**words))) for words in others}) == 1 + len(others)


def test_a_find_without_a_price_is_no_point_and_what_it_does_not_say_is_filled_in() -> None:
    bare = Result(title="Morgan Dollar", guid="1", link="", protocol="web")
    priced = Result(title="Morgan Dollar", guid="1", link="", protocol="web", attributes={"price_cents": ("5",)})

    point = point_of(coin(currency="CHF"), "shop", priced, now=NOW)

    assert point_of(coin(), "shop", bare, now=NOW) is None
    assert point is not None
    assert (point.cents, point.currency, point.type, point.day) == (5, "CHF", PointType.ASK, NOW.date())


def test_what_is_shown_without_a_day_is_the_same_point_tomorrow_and_with_another_day_another() -> None:
    where = "https://shop.example/1"
    said = {"price_cents": ("5",)}
    bare = Result(title="Morgan Dollar", guid="1", link=where, details=where, protocol="web", attributes=said)
    shown = [(bare, NOW), (bare, NOW + timedelta(days=1)), (attrs.evolve(bare, published=NOW), NOW)]

    first, again, dated = [point_of(coin(), "shop", result, now=now) for result, now in shown]

    assert first is not None
    assert again is not None
    assert dated is not None
    assert (first.key == again.key, first.key == dated.key) == (True, False)
    lines = f"{where}\nmorgan dollar\n5\n\nask"
    assert first.key == f"hash_{hashlib.sha256(lines.encode()).hexdigest()[:16]}"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ({"title": " "}, "title"),
        ({"year": "18\n81"}, "year"),
        ({"currency": "euro"}, "currency"),
        ({"below_cents": -1}, "below"),
        ({"below_cents": 5, "above_cents": 5}, "below"),
    ],
)
def test_what_cannot_be_watched_is_refused_by_its_part(words: dict[str, Any], part: str) -> None:
    with pytest.raises(BadRequest, match=f"^{part}: "):
        coin(**words)
