"""Answers are kept for a while, per source; finds come back exactly as they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection

from cormorant.rules.search.requests import Result
from storage.engine.statements import prune
from storage.search import answers
from storage.search.answers import SourceAnswer, dump_results, load_results
from storage.tables import SEARCH_CACHE
from tests.storage.job_store import NOW, at, put

FIND = Result(title="x", guid="g", link="http://a.test/x", protocol="torrent")


def test_an_answer_is_found_until_its_time_is_over_and_by_its_source_alone(connection: Connection) -> None:
    answers.put_cached(connection, 1, "key", [FIND], ttl_s=60, now=NOW)

    found = [answers.find_cached(connection, [1, 2], "key", now=at(seconds)) for seconds in (0, 59.9, 60)]

    assert found == [{1: [FIND]}, {1: [FIND]}, {}]
    assert answers.find_cached(connection, [1], "other", now=NOW) == {}
    assert answers.find_cached(connection, [], "key", now=NOW) == {}
    assert answers.find_cached(connection, [1], "key", now=at(-1)) == {}, "a clock that went back"


def test_a_newer_answer_replaces_and_a_failure_drops(connection: Connection) -> None:
    other = Result(title="y", guid="h", link="", protocol="usenet")
    for source in (1, 2, 3):
        answers.put_cached(connection, source, "key", [FIND], ttl_s=60, now=NOW)

    answers.put_cached(connection, 1, "key", [other], ttl_s=60, now=at(1))
    answers.put_cached(connection, 2, "key", [], ttl_s=60, now=at(1))
    answers.drop_cached(connection, 3, "key")

    assert answers.find_cached(connection, [1, 2, 3], "key", now=at(2)) == {1: [other], 2: []}


def test_an_answer_that_must_not_be_kept_is_not(connection: Connection) -> None:
    answers.put_cached(connection, 1, "key", [FIND], ttl_s=0, now=NOW)

    assert answers.find_cached(connection, [1], "key", now=NOW) == {}


def test_answers_are_pruned_when_their_time_is_over(connection: Connection) -> None:
    for number in range(5):
        answers.put_cached(connection, number, "key", [FIND], ttl_s=number + 1, now=NOW)

    pruned = [prune(connection, SEARCH_CACHE.c.expires_at, before=at(3.5), limit=2) for _ in range(3)]

    assert pruned == [2, 1, 0]
    assert set(answers.find_cached(connection, range(5), "key", now=NOW)) == {3, 4}


def test_the_ledger_says_who_has_answered_and_is_forgotten_with_its_job(connection: Connection) -> None:
    job = put(connection)
    entries = [SourceAnswer(source=name, status="found", answered_at=NOW, results=[FIND]) for name in "ab"]
    answers.record_answers(connection, job, entries)
    answers.record_answers(connection, job, [SourceAnswer(source="b", status="refused", answered_at=at(1), error="no")])
    answers.record_answers(connection, job + 1, entries)

    pruned = [answers.prune_answers(connection, limit=10) for _ in range(2)]

    assert pruned == [2, 0]
    assert {name: (each.status, each.error) for name, each in answers.read_answers(connection, job).items()} == {
        "a": ("found", None),
        "b": ("refused", "no"),
    }


TEXT = st.text(st.characters(codec=None), max_size=20)
ZONE = st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30)), timezone(timedelta(hours=14))])
FACTOR = st.none() | st.floats(allow_nan=False)
RESULTS = st.builds(
    Result,
    title=TEXT,
    guid=TEXT,
    link=TEXT,
    protocol=st.sampled_from(["torrent", "usenet"]),
    size_bytes=st.none() | st.integers(0, 2**63),
    published=st.none() | st.datetimes(timezones=ZONE, min_value=datetime(1990, 1, 1), max_value=datetime(2100, 1, 1)),  # noqa: DTZ001 - the zone is the strategy's other argument
    categories=st.lists(TEXT, max_size=3).map(tuple),
    seeders=st.none() | st.integers(0, 10**6),
    infohash=st.none() | TEXT,
    downloadvolumefactor=FACTOR,
    uploadvolumefactor=FACTOR,
    enclosure_type=TEXT,
    details=TEXT,
    attributes=st.dictionaries(TEXT, st.lists(TEXT, max_size=3).map(tuple), max_size=3),
)


@pytest.mark.slow("a hundred examples of many parts")
@given(st.lists(RESULTS, max_size=3))
def test_finds_come_back_exactly_as_they_were(results: list[Result]) -> None:
    written = dump_results(results)

    assert load_results(written) == results
    assert written.isascii()
    assert [each.published and each.published.isoformat() for each in load_results(written)] == [
        each.published and each.published.isoformat() for each in results
    ]
