"""When the next watch or handover is due, in both databases: what is paused or claimed is left out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from attrs import evolve
from sqlalchemy import Connection

from cormorant.rules.watch.handovers import GONE_S, HandoverState
from cormorant.rules.watch.prices import PriceWatch
from storage.watch import artists, handovers, watches
from storage.watch.prices import PRICE
from tests.storage.job_store import NOW, at
from tests.storage.watch_store import add_artist, add_want, new_handover
from tests.watch_kinds import added


def add_price(connection: Connection, name: str, **words: Any) -> PriceWatch:
    usual = PriceWatch(name=name, title=name, sources=("shop",), next_attempt_at=NOW, added_at=NOW)
    return added(connection, PRICE, evolve(usual, **words))


def hand_over(connection: Connection, key: str, target: str, *, next_s: float, changed_s: float = 0.0) -> None:
    begun = handovers.begin(connection, new_handover(add_want(connection, key).id, key, target=target))
    assert begun is not None
    handovers.change(connection, begun, HandoverState.HANDED_OVER, next_at=at(next_s), now=at(changed_s))


def next_handover(connection: Connection, known: list[str], *, worker: str = "other") -> datetime | None:
    return handovers.next_due(connection, worker=worker, known=known, now=NOW)


def test_nothing_is_due_where_nothing_is_watched(connection: Connection) -> None:
    assert watches.next_due(connection, PRICE) is None
    assert artists.next_due(connection, worker="other") is None
    assert next_handover(connection, ["t"]) is None


def test_the_soonest_price_counts_and_a_paused_one_does_not(connection: Connection) -> None:
    add_price(connection, "later", next_attempt_at=at(90))
    add_price(connection, "soon", next_attempt_at=at(30))
    add_price(connection, "paused", next_attempt_at=at(1))
    watches.set_paused(connection, PRICE, "paused", is_paused=True, now=NOW)

    assert watches.next_due(connection, PRICE) == at(30)


def test_the_soonest_artist_counts_also_while_it_is_blocked(connection: Connection) -> None:
    add_artist(connection, next_attempt_at=at(20), retry_block_until=at(60))
    add_artist(connection, "a2", next_attempt_at=at(30))

    assert artists.next_due(connection, worker="other") == at(20)


def test_a_claimed_artist_is_due_for_nobody(connection: Connection) -> None:
    add_artist(connection)
    add_artist(connection, "a2", next_attempt_at=at(50))
    assert len(artists.claim(connection, worker="me", now=NOW, limit=1)) == 1

    assert artists.next_due(connection, worker="other") == at(50)


def test_a_handover_of_a_target_that_is_not_known_is_due_when_nobody_has_touched_it_for_long(
    connection: Connection,
) -> None:
    hand_over(connection, "mine", "t", next_s=40, changed_s=20)
    hand_over(connection, "theirs", "other", next_s=5, changed_s=10)

    assert next_handover(connection, ["t"]) == at(40)
    assert next_handover(connection, ["t", "other"]) == at(5)
    assert next_handover(connection, []) == at(10) + timedelta(seconds=GONE_S)


def test_a_handover_that_is_claimed_or_done_is_not_due(connection: Connection) -> None:
    hand_over(connection, "claimed", "t", next_s=-1)
    hand_over(connection, "later", "t", next_s=70)
    [claimed] = handovers.claim_due(connection, worker="me", known=["t"], now=NOW, limit=1)
    assert next_handover(connection, ["t"]) == at(70)

    handovers.change(connection, claimed, HandoverState.DONE, now=NOW)
    assert next_handover(connection, ["t"]) == at(70)
