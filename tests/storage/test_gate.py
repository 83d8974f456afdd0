"""What is new at sources, what apps want of it, and the apps that were added by command, in both databases."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlalchemy import Connection

from cormorant.rules.errors import AlreadyExists, NotFound
from cormorant.rules.latest_polls import LatestState
from cormorant.rules.search.limits import Lane, SourceLimits
from cormorant.rules.search.requests import Result
from cormorant.rules.settings.service import ClientSettings
from storage import access, gate
from storage.access import ClientRecord
from storage.engine.statements import prune
from storage.gate import ITEMS_MAX
from storage.search import source_states, sources
from storage.search.source_states import ReservationRequest
from storage.search.sources import SourceRecord
from storage.tables import FEED_ITEMS
from tests.storage.job_store import NOW, JobStore
from tests.storage.test_two_at_once import after

MINUTE = timedelta(minutes=1)
TV = frozenset({5030})


def find(number: int, *, published: datetime | None = None, category: str = "5030", link: str = "http://x") -> Result:
    guid = f"guid {number}"
    return Result(
        title=f"{number}", guid=guid, link=link, protocol="torrent", published=published, categories=(category,)
    )


def keep(connection: Connection, *results: Result, now: datetime = NOW, source_id: int = 1) -> None:
    gate.keep(connection, source_id, results, asked=TV, now=now)


def titles(
    connection: Connection, *categories: int, offset: int = 0, limit: int = 100, of: tuple[int, ...] = (1,)
) -> list[str]:
    found = gate.page(connection, of, categories, offset=offset, limit=limit)
    return [row.result.title for row in found.rows]


def test_polls_are_merged_by_guid_and_shown_newest_first(connection: Connection) -> None:
    keep(connection, find(2), find(1), find(1))
    keep(connection, find(4), find(3), find(2), now=NOW + MINUTE)

    assert titles(connection) == ["4", "3", "2", "1"]
    assert titles(connection, offset=1, limit=2) == ["3", "2"]
    assert titles(connection, offset=4) == []


def test_finds_are_sorted_by_when_they_were_published_and_none_comes_from_the_future(connection: Connection) -> None:
    keep(connection, find(1, published=NOW - 3 * MINUTE), find(2, published=NOW + 900 * MINUTE))
    keep(connection, find(3, published=NOW - 2 * MINUTE), find(4), now=NOW + MINUTE, source_id=2)

    assert titles(connection, of=(1, 2)) == ["4", "2", "3", "1"]
    assert titles(connection) == ["2", "1"]


def test_a_page_holds_what_is_of_the_categories_and_counts_the_rest(connection: Connection) -> None:
    keep(connection, find(1), find(2, category="3010"), find(3, category="TV"), find(4, link=""))

    found = gate.page(connection, [1], [3000], offset=0, limit=1)

    assert titles(connection, 3000) == ["2", "3"]
    assert (len(found.rows), found.total, found.kept) == (1, 2, 3)
    assert gate.page(connection, [], [], offset=0, limit=1).kept == 0


@pytest.mark.slow("a thousand rows")
def test_only_so_many_are_kept_and_not_for_ever(connection: Connection) -> None:
    for start in range(0, ITEMS_MAX + 100, 100):
        keep(connection, *[find(start + 99 - number) for number in range(100)], now=NOW + start * MINUTE)

    found = gate.page(connection, [1], [], offset=ITEMS_MAX - 1, limit=10)
    assert found.total == ITEMS_MAX
    assert [row.result.title for row in found.rows] == ["100"]
    assert prune(connection, FEED_ITEMS.c.seen_at, before=NOW + 250 * MINUTE, limit=1_000) == 200
    assert gate.page(connection, [1], [], offset=0, limit=1).total == ITEMS_MAX - 200


def test_what_apps_want_and_what_was_asked_for_is_noted_for_a_week(connection: Connection) -> None:
    day = timedelta(days=1)
    first = gate.want(connection, 1, TV, now=NOW)
    gate.keep(connection, 1, [], asked=TV, now=NOW)
    second = gate.want(connection, 1, {2000}, now=NOW + 6 * day)
    gate.keep(connection, 1, [], asked={2000}, now=NOW + 6 * day)

    assert (first.wanted, first.fetched) == ({5030: NOW}, {})
    assert (second.wanted, second.fetched) == ({5030: NOW, 2000: NOW + 6 * day}, {5030: NOW})
    assert gate.look(connection, 1).fetched == {5030: NOW, 2000: NOW + 6 * day}
    assert gate.want(connection, 1, {7000}, now=NOW + 7 * day).wanted.keys() == {2000, 7000}
    assert gate.look(connection, 2) == LatestState()


def test_an_answer_that_another_process_noted_is_merged_and_not_noted_again(connection: Connection) -> None:
    keep(connection, find(1))

    gate.keep(connection, 1, [find(2)], asked=(), now=NOW + MINUTE)

    assert titles(connection) == ["2", "1"]
    assert gate.look(connection, 1).fetched == {5030: NOW}


def test_of_two_that_note_at_the_same_moment_none_is_lost(postgres_jobs: JobStore) -> None:
    def note(connection: Connection, category: int) -> None:
        gate.want(connection, 1, {category}, now=NOW)
        gate.keep(connection, 1, [], asked={category}, now=NOW)

    after(postgres_jobs, lambda connection: note(connection, 1), lambda connection: note(connection, 2))

    with postgres_jobs.begin() as connection:
        state = gate.look(connection, 1)
    assert state.wanted == state.fetched == {1: NOW, 2: NOW}


def test_an_app_is_added_once_and_removed(connection: Connection) -> None:
    settings = ClientSettings(priority="background", hold_s=5.0, share=0.25)
    sonarr = ClientRecord(name="sonarr", settings=settings, key_digest="abc", added_at=NOW)
    access.add(connection, sonarr)

    with pytest.raises(AlreadyExists, match="'sonarr' already"):
        access.add(connection, sonarr)
    assert access.all_clients(connection) == [sonarr]
    access.remove(connection, "sonarr")
    assert access.all_clients(connection) == []
    with pytest.raises(NotFound, match="there is no client 'sonarr'; add it"):
        access.remove(connection, "sonarr")


def test_what_apps_have_spent_is_counted_by_source_and_lane(connection: Connection) -> None:
    red = sources.add(connection, SourceRecord(name="red", identity="r", kind="torznab", url="http://r"), now=NOW)
    limits = SourceLimits(spacing_s=0, pace_s=0, in_flight_max=100)
    for number, (who, lane) in enumerate([("a", Lane.QUERY), ("a", Lane.QUERY), ("b", Lane.QUERY), ("a", Lane.GRAB)]):
        wanted = ReservationRequest(lane=lane, lease_s=60.0, consumer=who)
        source_states.reserve(connection, red.id, wanted, configured=limits, now=NOW + number * MINUTE)

    spent = access.spent(connection, since=NOW)

    assert [(each.consumer, each.source, each.queries, each.grabs) for each in spent] == [
        ("a", "red", 1, 1),
        ("b", "red", 1, 0),
    ]
