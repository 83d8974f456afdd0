"""What texts of commands share: times, counts, tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cormorant.cli.console.output import Times, counted, older_pages, table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_times_are_seen_from_now() -> None:
    times, soon, before = Times(now=NOON, zone=UTC), NOON + timedelta(seconds=90), NOON - timedelta(hours=3)

    assert (times.at(soon), times.ago(soon), times.due(soon)) == ("12:01:30", "in 90 s", "in 90 s")
    assert (times.when(before), times.due(before), times.age(before)) == ("09:00:00 (3 h ago)", "now", "3 h")


def test_a_count_has_its_name_in_the_right_number() -> None:
    assert [counted(count, "job") for count in (0, 1, 12_000)] == ["0 jobs", "1 job", "12,000 jobs"]


def test_a_table_without_rows_is_one_line() -> None:
    assert list(table(("ID", "WHAT"), [], empty="no jobs")) == ["no jobs"]
    assert list(table(("ID", "WHAT"), [(12, None), (1, "x")], right=("ID",))) == ["ID  WHAT", "12", " 1  x"]


def test_the_next_page_is_named_only_if_there_is_one() -> None:
    assert list(older_pages(None)) == []
    assert list(older_pages(7)) == ["there are older ones: --before 7"]
