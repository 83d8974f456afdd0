"""bench/RESULTS.md: every goal in its table, and nothing hidden."""

from __future__ import annotations

from bench.__main__ import Run, report

JOBS = "jobs/s  4000\ngoal jobs.sqlite_full_vs_huey 5.10 >= 4.00 met\ngoal jobs.claim_growth 2.20 <= 2.00 missed\n"


def test_every_goal_has_a_row_with_its_verdict() -> None:
    text = report([Run("jobs", JOBS, 1)])

    assert "| jobs.sqlite_full_vs_huey | 5.10 | >= 4.00 | met |" in text
    assert "| jobs.claim_growth | 2.20 | <= 2.00 | missed |" in text
    assert "broke" not in text


def test_what_a_benchmark_said_follows_as_it_was_said() -> None:
    text = report([Run("jobs", JOBS, 0)])

    assert f"## jobs\n\n```\n{JOBS.strip()}\n```" in text


def test_a_benchmark_that_broke_is_named() -> None:
    text = report([Run("jobs", "", 0), Run("memory", "half a tab", 1), Run("ticks", "", -9)])

    assert "`memory` broke with exit code 1" in text
    assert "`ticks` broke with exit code -9" in text
    assert "`jobs` broke" not in text
