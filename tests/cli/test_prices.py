"""`cormorant prices` on a real database, beside no service."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Connection

from cormorant.rules.watch.prices import MatchStrength, PointType, PricePoint
from storage.watch import prices, watches
from storage.watch.prices import PRICE
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
        match=MatchStrength.EXACT,
        key="ext_1",
        seen_at=NOW,
    )
    assert prices.collect(connection, watches.find(connection, PRICE, "coin").id, [point], now=NOW) is not None


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SourcePlace:
    """An empty database of either kind, and settings that name a shop."""
    (tmp_path / "config.toml").write_text(SETTINGS)
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/prices.db" if is_file else request.getfixturevalue("postgres_url")
    return SourcePlace(tmp_path, url, Indexer(1))


@pytest.mark.slow("opens databases")
def test_a_price_is_watched_shown_checked_paused_and_removed(place: SourcePlace) -> None:
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
    planned = place.facts("schedule", "--hours", "30")["runs"]
    paused, idle = place.run("prices", "pause", "coin"), place.run("prices", "list")
    resumed = place.run("prices", "resume", "coin")
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
    assert [each.code for each in (checked, paused, resumed, removed)] == [0, 0, 0, 0]
    assert ("paused" in idle.out, "written is in the settings file" in idle.out) == (True, True)
    assert "coin is resumed, and due in " in resumed.out
    assert [(each["kind"], each["name"]) for each in planned] == [("price", "coin")]


@pytest.mark.slow("opens databases")
def test_a_table_is_taken_in_whole_or_not_at_all(place: SourcePlace) -> None:
    things = place.run("prices", "import", "-", typed="name,title,currency\ncent,Lincoln Cent,USD\ndime,Dime,USD\n")
    wrong = place.run("prices", "import", "-", typed="name,price\ncent,612.50\ncent,cheap\ncnet,5\n")
    unseen = place.run("prices", "import", "-", typed="name,price\nwritten,5\n")
    empty = place.facts("prices", "show", "cent")
    sold = "name,price,date,id\ncent,$600,2026-01-02,a\ncent,$650,2026-01-03,b\ndime,7 EUR,2026-01-03,c\n"
    first = place.run("prices", "import", "-", typed=sold)
    again = place.run("prices", "import", "-", "--json", typed=sold)
    other = place.run("prices", "show", "dime")

    assert (things.code, things.out.splitlines()[0]) == (0, "2 things added, 0 known already and left as they are")
    assert (wrong.code, wrong.err.splitlines()[0]) == (
        2,
        "cormorant: FILE: 2 lines cannot be used, nothing was imported",
    )
    assert 'line 3: price: "cheap" is no price' in wrong.err
    assert 'line 4: name: no price is watched as "cnet"; did you mean cent?' in wrong.err
    assert (unseen.code, empty["points"]) == (2, [])
    assert (first.code, first.out.splitlines()[:2]) == (0, ["3 prices imported, 0 known already", "  cent: 625.00 USD"])
    assert '"written": 0' in again.out
    assert "dime: not known: USD counts, and what was sold is in EUR" in other.out
