"""Prices in both databases: a point is there once whoever writes it, the stronger match stays, a crossing is told once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from cormorant.rules.watch.prices import AlertSide, MatchStrength, PointType, PricePoint, PriceWatch
from cormorant.rules.watch.watches import next_check
from storage.jobs import reports
from storage.jobs.jobs import NewJob
from storage.tables import PRICES
from storage.watch import prices, watches
from storage.watch.prices import PRICE
from tests.bounds import WAIT_S
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, new_job
from tests.watch_kinds import added


def new_intake(name: str = "coin", **words: Any) -> PriceWatch:
    usual = PriceWatch(name=name, title="Morgan Dollar", sources=("shop",), next_attempt_at=NOW, added_at=NOW)
    return evolve(usual, **words)


def point(key: str = "ext_1", cents: int = 100, match: MatchStrength = MatchStrength.TITLE, **words: Any) -> PricePoint:
    usual = PricePoint(
        source="shop",
        title="Morgan Dollar",
        url="https://shop.test/1",
        cents=cents,
        currency="EUR",
        type=PointType.SOLD,
        day=date(2026, 1, 1),
        match=match,
        key=key,
        seen_at=NOW,
    )
    return evolve(usual, **words)


def collect(connection: Connection, intake_id: int, *points: PricePoint, now_s: float = 0.0) -> prices.Collected:
    done = prices.collect(connection, intake_id, points, now=at(now_s))
    assert done is not None
    return done


def test_only_a_stronger_match_replaces_a_point(connection: Connection) -> None:
    intake = added(connection, PRICE, new_intake())

    written = [
        prices.put_points(connection, intake.id, [point(cents=cents, match=match)])
        for cents, match in (
            (100, MatchStrength.YEAR),
            (200, MatchStrength.YEAR),
            (300, MatchStrength.TITLE),
            (400, MatchStrength.EXACT),
        )
    ]

    assert written == [1, 0, 0, 1]
    assert prices.points_of(connection, intake.id) == [point(cents=400, match=MatchStrength.EXACT)]


def test_points_of_different_keys_sources_and_intakes_are_different(connection: Connection) -> None:
    first, second = (added(connection, PRICE, new_intake(name)) for name in ("a", "b"))
    put = [point(), point("ext_2"), point(source="other"), point(), point(match=MatchStrength.EXACT)]

    assert prices.put_points(connection, first.id, put) == 3
    assert prices.put_points(connection, second.id, put) == 3
    assert [each.match for each in prices.points_of(connection, first.id) if each.source == "shop"] == [3, 1]


def test_a_value_follows_the_points_and_its_history_has_one_line_for_each_change(connection: Connection) -> None:
    intake = added(connection, PRICE, new_intake())

    assert collect(connection, intake.id, point(type=PointType.ASK)).valuation is None
    first = collect(connection, intake.id, point("ext_2", 100), now_s=1)
    again = collect(connection, intake.id, point("ext_2", 100), now_s=2)
    later = collect(connection, intake.id, point("ext_3", 300), now_s=3)

    assert (first.has_changed, again.has_changed, later.has_changed) == (True, False, True)
    assert prices.valuation(connection, intake.id) == later.valuation
    assert prices.valuations(connection) == {intake.id: later.valuation}
    assert [(each.cents, each.valued_at) for each in prices.history(connection, intake.id)] == [
        (200, at(3)),
        (100, at(1)),
    ]


def test_a_value_of_the_same_amount_in_another_currency_is_a_change(connection: Connection) -> None:
    intake = added(connection, PRICE, new_intake(origin="configured"))
    collect(connection, intake.id, point("ext_1", 100, currency="EUR"), point("ext_2", 100, currency="USD"), now_s=1)

    watches.set_configured(connection, PRICE, [new_intake(currency="USD")])
    done = collect(connection, intake.id, now_s=2)

    assert done.has_changed
    assert [each.currency for each in prices.history(connection, intake.id)] == ["USD", "EUR"]


def test_prices_that_are_added_are_collected_in_turn_at_once_and_due_again_after_their_time(
    connection: Connection,
) -> None:
    places = []

    def make_jobs(intake: PriceWatch, place: int) -> list[NewJob]:
        places.append((intake.name, place))
        return [new_job(dedupe_key=f"{intake.id}:{source}") for source in ("shop", "other")]

    wanted = [new_intake(name, every_s=60.0) for name in "ab"]
    prices.add_watches(connection, wanted, make_jobs=make_jobs, now=NOW)

    assert places == [("a", 0), ("b", 2)]
    assert len(reports.recent(connection, limit=9)) == 4
    due = [[each.name for each in watches.due(connection, PRICE, now=at(now_s), limit=9)] for now_s in (0, 59, 60)]
    assert due == [[], [], ["a", "b"]]


def test_an_alert_is_raised_once_for_each_crossing(connection: Connection) -> None:
    intake = added(connection, PRICE, new_intake(below_cents=100, above_cents=1_000))
    told = []
    for number, (cents, match) in enumerate([(50, 1), (60, 1), (500, 2), (40, 3), (40, 3)]):
        done = collect(connection, intake.id, point(f"ext_{number}", cents, MatchStrength(match)), now_s=number)
        told.append(done.alert and done.alert.cents)

    assert told == [50, None, None, 40, None]
    assert [(each.side, each.limit_cents, each.cents) for each in prices.alerts(connection, intake.id)] == [
        (AlertSide.BELOW, 100, 40),
        (AlertSide.BELOW, 100, 50),
    ]


def test_points_and_history_have_an_end(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "POINTS_MAX", 3)
    monkeypatch.setattr(prices, "HISTORY_MAX", 2)
    intake = added(connection, PRICE, new_intake(below_cents=1_000))
    for number in range(5):
        collect(
            connection, intake.id, point(f"ext_{number}", 100 + number, day=date(2026, 1, 1 + number)), now_s=number
        )

    assert [each.key for each in prices.points_of(connection, intake.id)] == ["ext_4", "ext_3", "ext_2"]
    assert [each.cents for each in prices.history(connection, intake.id)] == [103, 102]


def test_what_is_no_longer_watched_is_forgotten_and_not_written_again(connection: Connection) -> None:
    intake = added(connection, PRICE, new_intake(below_cents=1_000))
    collect(connection, intake.id, point())
    watches.remove(connection, PRICE, "coin")

    assert prices.collect(connection, intake.id, [point()], now=NOW) is None
    left = [prices.points_of, prices.history, prices.alerts]
    assert [each(connection, intake.id) for each in left] == [[], [], []]


def test_those_of_the_settings_file_follow_it_and_keep_what_was_collected(connection: Connection) -> None:
    added(connection, PRICE, new_intake("mine"))
    watches.set_configured(connection, PRICE, [new_intake("kept"), new_intake("gone")])
    kept = watches.find(connection, PRICE, "kept")
    collect(connection, kept.id, point())

    watches.set_configured(connection, PRICE, [new_intake("kept", title="Other", next_attempt_at=at(99))])

    assert [each.name for each in watches.all_of(connection, PRICE)] == ["gone", "kept", "mine"]
    after = watches.find(connection, PRICE, "kept")
    assert (after.id, after.title, after.next_attempt_at) == (kept.id, "Other", NOW)
    assert len(prices.points_of(connection, kept.id)) == 1


def take_due(connection: Connection, *, now: datetime, limit: int) -> list[PriceWatch]:
    return [
        each
        for each in watches.due(connection, PRICE, now=now, limit=limit)
        if watches.take(
            connection,
            PRICES,
            (each.id, each.token),
            next_attempt_at=next_check(due=each.next_attempt_at, every_s=each.every_s, now=now),
        )
    ]


def test_what_the_settings_file_has_no_more_stays_idle_until_it_is_removed_or_comes_back(
    connection: Connection,
) -> None:
    watches.set_configured(connection, PRICE, [new_intake()])
    known = watches.find(connection, PRICE, "coin")
    collect(connection, known.id, point())

    watches.set_configured(connection, PRICE, [])
    idle = watches.find(connection, PRICE, "coin")
    due = take_due(connection, now=at(10), limit=9)
    with pytest.raises(match="cormorant prices remove coin"):
        watches.set_paused(connection, PRICE, "coin", is_paused=True, now=NOW)
    watches.set_configured(connection, PRICE, [new_intake()])

    assert (idle.idle_because, due) == ("[prices.coin] is no longer in the settings file", [])
    assert [each.id for each in take_due(connection, now=at(10), limit=9)] == [known.id]
    assert len(prices.points_of(connection, known.id)) == len(prices.history(connection, known.id)) == 1


def test_of_two_processes_that_write_one_point_the_stronger_stays(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        intake = added(connection, PRICE, new_intake(below_cents=1_000))

    for order in ((MatchStrength.EXACT, MatchStrength.TITLE), (MatchStrength.TITLE, MatchStrength.EXACT)):
        first, second = (point(f"ext_{order[0]}", cents=int(match), match=match) for match in order)
        at_once(
            job_store,
            lambda c, own=first: collect(c, intake.id, own),  # type: ignore[misc]  # the default is its value
            lambda c, own=second: collect(c, intake.id, own),  # type: ignore[misc]  # as above
        )

    with job_store.begin() as connection:
        assert [each.match for each in prices.points_of(connection, intake.id)] == [
            MatchStrength.EXACT,
            MatchStrength.EXACT,
        ]
        assert len(prices.alerts(connection, intake.id)) == 1


@pytest.mark.slow("eight writers at once, on a real database")
def test_many_writers_leave_each_point_once_one_value_and_one_alert(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        intake = added(connection, PRICE, new_intake(below_cents=1_000))

    def write(writer: int) -> int:
        own = [point(f"ext_{number}", 100 + number, MatchStrength(1 + (writer + number) % 3)) for number in range(20)]
        deadline = time.monotonic() + WAIT_S
        while True:  # SQLite has one writer, and the plain connections of a test do not wait for it
            try:
                with job_store.begin() as connection:
                    return collect(connection, intake.id, *own).written
            except OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)

    with ThreadPoolExecutor(max_workers=8) as pool:
        written = list(pool.map(write, range(16), timeout=WAIT_S))

    assert 20 <= sum(written) <= 60, "once, and at most twice again by a stronger match"
    with job_store.begin() as connection:
        points = prices.points_of(connection, intake.id)
        assert {each.match for each in points} == {MatchStrength.EXACT}
        assert sorted(each.key for each in points) == sorted(f"ext_{number}" for number in range(20))
        count = connection.execute(text("SELECT count(*) FROM valuations")).scalar_one()
        assert (count, len(prices.alerts(connection, intake.id))) == (1, 1)
        value = prices.valuation(connection, intake.id)
        assert value is not None
        assert (value.points, value.cents) == (20, 110)
