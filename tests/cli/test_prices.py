"""`cormorant prices` on a real database, beside no service."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Connection

from cormorant.rules.prices import Match, PointType, PricePoint
from storage import intakes, prices
from tests.cli.source_place import Indexer, SourcePlace
from tests.storage.job_store import NOW

SETTINGS = """
[sources.shop]
kind = "prices"
url = "https://shop.test/api"
query = "q={title}&y={year}"
items = "data"
fields = { price = "amount.value" }

[prices.written]
title = "Peace Dollar"
"""


def collect(connection: Connection) -> None:
    point = PricePoint(
        source="shop",
        title="1881 Morgan Dollar",
        cents=12_345,
        currency="USD",
        type=PointType.SOLD,
        day=date(2026, 1, 2),
        match=Match.EXACT,
        key="ext_1",
        seen_at=NOW,
    )
    assert prices.collect(connection, intakes.find(connection, "coin").id, [point], now=NOW) is not None


@pytest.mark.slow("opens databases")
def test_a_price_is_watched_shown_checked_and_removed(tmp_path: Path) -> None:
    place = SourcePlace(tmp_path, f"sqlite:///{tmp_path}/prices.db", Indexer(1))
    (tmp_path / "config.toml").write_text(SETTINGS)
    added = place.run(
        "prices", "add", "coin", "Morgan Dollar", "--year", "1881", "--currency", "USD", "--below", "$200"
    )
    again = place.run("prices", "add", "coin", "Morgan Dollar")
    wrong = place.run("prices", "add", "x", "Morgan", "--above", "cheap")
    nobody = place.run("prices", "add", "x", "Morgan", "--search", "nobody")
    place.write(collect)
    listed, shown = place.run("prices", "list"), place.run("prices", "show", "coin")
    history = place.run("prices", "history", "coin", "--json")
    checked = place.run("prices", "check", "coin")
    removed, gone = place.run("prices", "remove", "coin"), place.run("prices", "show", "coin")

    assert (added.code, added.out) == (
        0,
        "coin is watched every 1d; a running service asks its sources at once\n",
    )
    assert (again.code, nobody.code, wrong.code, gone.code) == (1, 2, 2, 1)
    assert '"cheap" is no price' in wrong.err
    assert "there is no source of prices 'nobody'; there are shop" in nobody.err
    assert "123.45 USD" in listed.out
    assert "coin: 123.45 USD, of 1 sold, match exact" in shown.out
    assert "alert" in shown.out
    assert "123.45 USD is below 200.00 USD" in shown.out
    assert '"cents": 12345' in history.out
    assert (checked.code, removed.code) == (0, 0)
