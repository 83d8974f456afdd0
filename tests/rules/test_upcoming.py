"""What runs when: in order, in turns, and no more than was asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cormorant.rules.schedules import HostPacing, Schedule, ScheduledWatch, plan_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOURLY = Schedule(every_s=3_600)


def planned(name: str, *, minutes: float = 0.0, turns: HostPacing | None = None) -> ScheduledWatch:
    return ScheduledWatch(
        kind="subscription", name=name, first=NOON + timedelta(minutes=minutes), schedule=HOURLY, turns=turns
    )


def seconds(*found: datetime) -> list[float]:
    return [(at - NOON).total_seconds() for at in found]


def test_feeds_of_one_host_are_apart_and_others_do_not_wait_for_them() -> None:
    host, other = HostPacing(name="x.org", apart_s=1.0), HostPacing(name="y.org", apart_s=1.0)
    found = [planned("a", turns=host), planned("b", turns=host), planned("c", turns=host), planned("d", turns=other)]

    runs = plan_of(found, until=NOON + timedelta(minutes=1), most=10).runs

    assert {run.name: at for run, at in zip(runs, seconds(*(run.at for run in runs)), strict=True)} == {
        "a": 0.0,
        "d": 0.0,
        "b": 1.0,
        "c": 2.0,
    }


def test_a_tick_takes_so_many_and_the_others_wait_for_the_next() -> None:
    ticks = HostPacing(name="watchlist", room=2, apart_s=60.0)

    runs = plan_of([planned(name, turns=ticks) for name in "abcde"], until=NOON + timedelta(minutes=10), most=10).runs

    assert seconds(*(run.at for run in runs)) == [0, 0, 60, 60, 120]


def test_no_more_is_told_than_was_asked_for_and_that_there_is_more() -> None:
    whole = plan_of([planned("a"), planned("b", minutes=30)], until=NOON + timedelta(hours=2), most=4)
    cut = plan_of([planned("a"), planned("b", minutes=30)], until=NOON + timedelta(hours=2), most=3)

    assert ([run.name for run in whole.runs], whole.has_more) == (["a", "b", "a", "b"], False)
    assert ([run.name for run in cut.runs], cut.has_more) == (["a", "b", "a"], True)


def test_whoever_has_to_wait_past_the_end_is_not_told() -> None:
    host = HostPacing(name="x.org", apart_s=90.0)

    runs = plan_of([planned("a", turns=host), planned("b", turns=host)], until=NOON + timedelta(minutes=1), most=9).runs

    assert [run.name for run in runs] == ["a"]
