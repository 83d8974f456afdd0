"""Links that stand for those of sites, and who has spent what, in both databases."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection

from cormorant.rules.search.limits import Lane, SourceLimits
from storage import gate
from storage.engine.statements import prune
from storage.gate import GateLink
from storage.search import source_states
from storage.search.source_states import ReservationRequest
from storage.tables import GATE_LINKS
from tests.storage.job_store import NOW

DAY = timedelta(days=1)


def link(number: int, source_id: int = 1) -> GateLink:
    return GateLink(ref=f"ref{source_id}-{number}", source_id=source_id, link=f"http://x/{number}?apikey=k")


def test_a_link_is_found_by_its_reference_and_its_source_alone(connection: Connection) -> None:
    gate.remember(connection, [link(1), link(1), link(2), link(1, source_id=2)], now=NOW)

    assert gate.find(connection, "ref1-1", source_id=1) == "http://x/1?apikey=k"
    assert gate.find(connection, "ref1-1", source_id=2) is None
    assert gate.find(connection, "ref1-9", source_id=1) is None


def test_a_link_remembers_when_it_was_first_seen_and_is_forgotten_when_it_is_seen_no_more(
    connection: Connection,
) -> None:
    gate.remember(connection, [link(1), link(2)], now=NOW)

    seen = gate.remember(connection, [link(2), link(3)], now=NOW + 2 * DAY)
    pruned = prune(connection, GATE_LINKS.c.seen_at, before=NOW + DAY, limit=10)

    assert seen == {"ref1-2": NOW, "ref1-3": NOW + 2 * DAY}
    assert pruned == 1
    assert [gate.find(connection, f"ref1-{number}", source_id=1) is None for number in (1, 2, 3)] == [
        True,
        False,
        False,
    ]


def test_what_cannot_be_kept_is_left_out(connection: Connection) -> None:
    assert gate.remember(connection, [], now=NOW) == {}
    assert gate.remember(connection, [GateLink(ref="x", source_id=1, link="http://x/\0")], now=NOW) == {}


def test_the_requests_of_one_app_are_counted_back_from_its_latest(connection: Connection) -> None:
    limits = SourceLimits(spacing_s=0, pace_s=0, in_flight_max=100)
    for number, (who, lane) in enumerate([("a", Lane.QUERY), ("b", Lane.QUERY), ("a", Lane.QUERY), ("a", Lane.GRAB)]):
        wanted = ReservationRequest(lane=lane, lease_s=60.0, consumer=who)
        source_states.reserve(connection, 7, wanted, configured=limits, now=NOW + number * DAY)

    found = source_states.nth_latest(connection, 7, Lane.QUERY, "a", [1, 2, 3])

    assert found == {1: NOW + 2 * DAY, 2: NOW, 3: None}
