"""What was spent at a source, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from attrs import evolve
from sqlalchemy import Connection

from cormorant.rules.search.limits import Lane, SourceLimits
from storage import access
from storage.search import source_states, source_views, sources
from storage.search.source_states import ReservationRequest
from storage.search.sources import SourceRecord

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FREE = SourceLimits(spacing_s=0, pace_s=0, in_flight_max=100)
ATTIC = SourceRecord(name="attic", identity="http://a.example", kind="torznab", url="http://a.example", limits=FREE)


def test_what_was_spent_is_counted_by_lane_since_a_moment(connection: Connection) -> None:
    source_id = sources.add(connection, ATTIC, now=NOON).id
    for minute, lane in ((0, Lane.QUERY), (1, Lane.QUERY), (2, Lane.GRAB), (3, Lane.QUERY)):
        at = NOON + timedelta(minutes=minute)
        source_states.reserve(connection, source_id, ReservationRequest(lane=lane, lease_s=60), configured=FREE, now=at)

    since = NOON + timedelta(minutes=1)
    assert source_views.spent_since(connection, source_id, Lane.QUERY, since=since) == 1
    assert source_views.spent_since(connection, source_id, Lane.QUERY, since=since - timedelta(seconds=1)) == 2
    assert source_views.spent_since(connection, source_id, Lane.GRAB, since=NOON) == 1
    assert source_views.spent_since(connection, source_id + 1, Lane.QUERY, since=NOON) == 0


def test_what_clients_have_spent_is_counted_at_each_source(connection: Connection) -> None:
    one = sources.add(connection, ATTIC, now=NOON).id
    two = sources.add(connection, evolve(ATTIC, name="cellar", identity="another"), now=NOON).id
    asked = [
        (one, "a", Lane.QUERY), (one, "", Lane.QUERY), (two, "a", Lane.QUERY), (two, "a", Lane.GRAB), (one, "b", Lane.QUERY)
    ]  # fmt: skip
    for minute, (source_id, who, lane) in enumerate(asked):
        wanted = ReservationRequest(lane=lane, lease_s=60, consumer=who)
        source_states.reserve(connection, source_id, wanted, configured=FREE, now=NOON + timedelta(minutes=minute))

    found = access.spent(connection, since=NOON - timedelta(seconds=1))
    later = access.spent(connection, since=NOON + timedelta(minutes=3))

    counts = {(each.consumer, each.source): (each.queries, each.grabs) for each in found}
    assert counts == {("", "attic"): (1, 0), ("a", "attic"): (1, 0), ("a", "cellar"): (1, 1), ("b", "attic"): (1, 0)}
    assert [each.consumer for each in later] == ["b"]


def test_the_age_of_the_caps_is_known_once_they_are(connection: Connection) -> None:
    source_id = sources.add(connection, ATTIC, now=NOON).id
    assert source_views.caps_at(connection, source_id) is None

    sources.set_caps(connection, source_id, {"title": "Attic"}, now=NOON)

    assert source_views.caps_at(connection, source_id) == NOON


def test_a_removed_source_is_still_known_by_its_address(connection: Connection) -> None:
    assert sources.by_identity(connection, ATTIC.identity) is None
    sources.add(connection, ATTIC, now=NOON)
    sources.remove(connection, "attic", now=NOON)

    known = sources.by_identity(connection, ATTIC.identity)

    assert known is not None
    assert (known[0].name, known[1]) == ("attic", True)
