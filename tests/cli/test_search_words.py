"""How a search is told: finds merged and ordered, and each site in one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from cormorant.cli.live_search import SearchText, SourceLine, merged, search_json
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, RateLimitWaitError, SourceUnavailable
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation, Reason, ReasonName
from cormorant.rules.search.requests import Result, SearchRequest
from cormorant.rules.secrets import Secret, secret_filter_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def result(title: str, *, seeders: int | None = None, days: int = 0, infohash: str | None = None) -> Result:
    published = NOON - timedelta(days=days)
    return Result(
        title=title, guid=title, link="", protocol="torrent", seeders=seeders, published=published, infohash=infohash
    )


def found(source: str, *results: Result) -> Outcome:
    return Outcome(job_id=1, source=source, status=OutcomeStatus.FOUND, results=results, took_s=0.25)


def words(*reasons: Reason, opens_at: datetime | None = None) -> SearchText:
    explanation = Explanation(reasons=reasons, opens_at=opens_at, lines=())
    hidden = secret_filter_of(Secret("hunter22"), Secret(""))
    return SearchText(explain=lambda _: explanation, started={"asked": NOON}, zone=UTC, hidden=hidden)


SPACING = Reason(name=ReasonName.SPACING, opens_at=NOON + timedelta(seconds=7.2), why="too soon")
PAUSED = Reason(name=ReasonName.PAUSED, opens_at=None, why="it was paused by hand; resume it")


def test_the_same_torrent_of_two_sites_is_one_find_with_the_better_seeded_result() -> None:
    first, second = found("a", result("x", seeders=1, infohash="AB")), found("b", result("X", seeders=9, infohash="ab"))

    [find] = merged([first, second])

    assert find.sources == ("a", "b")
    assert find.result.seeders == 9


def test_without_a_hash_two_sites_have_two_finds() -> None:
    assert len(merged([found("a", result("x")), found("b", result("x"))])) == 2


def test_the_best_seeded_come_first_then_the_newest_and_unknown_seeders_last() -> None:
    results = [result("old", days=9), result("new", days=1), result("none", seeders=0), result("many", seeders=5)]

    assert [find.result.title for find in merged([found("a", *results)])] == ["many", "none", "new", "old"]


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (words(), SourceLine("next", "", "cyan")),
        (words(SPACING, opens_at=SPACING.opens_at), SourceLine("waits", "7 s, until 12:00:08: too soon", "yellow")),
        (words(SPACING, PAUSED), SourceLine("waits", "it was paused by hand; resume it", "yellow")),
    ],
)
def test_a_site_that_was_not_asked_yet_says_what_it_waits_for(said: SearchText, line: SourceLine) -> None:
    assert said.line("attic", None, now=NOON) == line


def test_a_site_that_is_being_asked_says_since_when() -> None:
    assert words().line("asked", None, now=NOON + timedelta(seconds=3)) == SourceLine("asked", "for 3 s", "cyan")


def test_a_search_that_was_cut_short_says_so() -> None:
    outcome = Outcome(job_id=1, source="slskd", status=OutcomeStatus.FOUND, took_s=25.5, was_cut=True)

    said = words()

    assert said.line("slskd", outcome, now=NOON).said == (
        "0 results in 25.5 s, cut short by the time-out: there may be more"
    )
    [shown] = search_json(SearchRequest(query="x"), [outcome], [], said)["sources"]
    assert shown["was_cut"]


def test_a_site_that_opens_too_late_says_when_and_why() -> None:
    error = RateLimitWaitError("attic", wait_s=7_200.0, max_wait_s=30.0, priority=Priority.INTERACTIVE)
    outcome = Outcome(job_id=1, source="attic", status=OutcomeStatus.RATE_LIMITED, error=error)

    line = words(SPACING, opens_at=SPACING.opens_at).line("attic", outcome, now=NOON)

    assert line == SourceLine("not asked", "it opens in 2 h and --max-wait is 30s: too soon", "yellow")


def test_no_error_shows_a_key() -> None:
    error = SourceUnavailable("no answer from\n/api?x=hunter22")
    outcome = Outcome(job_id=1, source="attic", status=OutcomeStatus.FAILED, error=error)

    assert words().line("attic", outcome, now=NOON) == SourceLine("failed", "no answer from /api?x=***", "red")


def test_no_result_for_programs_shows_a_key() -> None:
    outcome = found("attic", evolve(result("x hunter22"), guid="http://attic/7?k=hunter22", details="/hunter22"))

    [shown] = search_json(SearchRequest(query="x"), [outcome], merged([outcome]), words())["results"]

    assert (shown["title"], shown["guid"], shown["details"]) == ("x ***", "http://attic/7?k=***", "/***")
    assert (shown["sources"], shown["is_freeleech"]) == (["attic"], False)


def test_sizes_and_ages_are_rounded_and_what_is_not_known_is_a_dash() -> None:
    rows = list(words().results(merged([found("a", result("x", days=3_000))]), left=0, now=NOON))

    assert rows[1].split() == ["-", "8", "y", "-", "a", "x"]
