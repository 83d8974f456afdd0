"""What was searched is kept, bounded in age and number, whatever people type and sources say."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from storage.search import history
from storage.search.history import ERROR_LENGTH_MAX, QUERY_LENGTH_MAX, HistoryEntry
from tests.storage.job_store import NOW, at
from tests.storage.search.test_source_states import undone

ASKED = HistoryEntry(
    search_id=1,
    task=2,
    source="a",
    query="boards of canada",
    priority=3,
    consumer="sonarr",
    status="found",
    results=7,
    started_at=NOW,
    took_s=0.5,
    waited_s=1.25,
    error="SourceUnavailable: broken",
)


def test_what_was_recorded_is_told_newest_first(connection: Connection) -> None:
    history.record(connection, [])
    history.record(connection, [ASKED])
    history.record(connection, [evolve(ASKED, task=3, source="b"), evolve(ASKED, task=4, error=None)])

    assert history.recent(connection, limit=2) == [evolve(ASKED, task=4, error=None), evolve(ASKED, task=3, source="b")]


def test_what_is_too_old_or_too_much_is_forgotten_oldest_first(connection: Connection) -> None:
    history.record(connection, [evolve(ASKED, task=number, started_at=at(number)) for number in range(10)])

    old = [history.prune(connection, before=at(3), keep=100, limit=2) for _ in range(3)]
    much = history.prune(connection, before=at(0), keep=4, limit=100)

    assert (old, much) == ([2, 1, 0], 3)
    assert [each.task for each in history.recent(connection)] == [9, 8, 7, 6]


@pytest.mark.slow("fifty examples, each a transaction")
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(st.characters(codec=None), max_size=50), error=st.none() | st.text(st.characters(codec=None)))
def test_anything_that_people_type_and_sources_say_can_be_kept(
    connection: Connection, query: str, error: str | None
) -> None:
    with undone(connection):
        history.record(connection, [evolve(ASKED, query=query * 30, error=error, consumer=query)])

        (told,) = history.recent(connection)
        assert len(told.query) <= QUERY_LENGTH_MAX
        assert (told.error is None) == (error is None)
        assert len(told.error or "") <= ERROR_LENGTH_MAX
