"""Handovers in both databases: one counts for a want, and only who knows how far it is may change it."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from cormorant.rules.errors import NotFound
from cormorant.rules.watch.handovers import GONE_S, Handover, HandoverState
from storage.jobs import workers
from storage.watch import handovers
from storage.watch.handovers import HandoverChanged
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, hire
from tests.storage.watch_store import add_want, new_handover


def begin(connection: Connection, want_id: int, key: str = "key-1", **words: object) -> Handover:
    begun = handovers.begin(connection, new_handover(want_id, key, **words))
    assert begun is not None
    return begun


def test_of_two_handovers_begun_at_once_one_counts(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        want = add_want(connection)

    one, two = at_once(
        job_store,
        lambda c: handovers.begin(c, new_handover(want.id, "key-1")),
        lambda c: handovers.begin(c, new_handover(want.id, "key-2")),
    )

    assert one is not None
    assert two is None
    with job_store.begin() as connection:
        assert handovers.live_of(connection, want.id) == one


def test_another_is_begun_when_the_first_has_failed_and_not_under_the_same_key(connection: Connection) -> None:
    want = add_want(connection)
    first = begin(connection, want.id)
    handovers.change(connection, first, HandoverState.FAILED, reason="no", now=NOW)

    assert handovers.live_of(connection, want.id) is None
    assert handovers.begin(connection, new_handover(want.id, "key-1")) is None
    second = begin(connection, want.id, "key-2")
    assert [each.id for each in handovers.of_want(connection, want.id)] == [first.id, second.id]


def test_who_knows_an_older_state_or_sending_changes_nothing(connection: Connection) -> None:
    old = begin(connection, add_want(connection).id)
    waiting = handovers.change(connection, old, HandoverState.WAITING, reason="away", now=NOW)
    with pytest.raises(HandoverChanged, match=f"download {old.id} is no longer sending"):
        handovers.change(connection, old, HandoverState.DONE, now=NOW)
    again = handovers.change(connection, waiting, HandoverState.SENDING, sent=2, now=NOW)
    with pytest.raises(HandoverChanged):
        handovers.change(connection, old, HandoverState.DONE, now=NOW)

    done = handovers.change(connection, again, HandoverState.DONE, now=at(1))
    with pytest.raises(HandoverChanged):
        handovers.change(connection, done, HandoverState.FAILED, now=NOW)
    assert handovers.find(connection, old.id) == done


def test_of_two_processes_that_saw_the_same_end_one_writes_it(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        followed = begin(connection, add_want(connection).id, state=HandoverState.HANDED_OVER, next_at=NOW)

    def end(connection: Connection) -> bool:
        try:
            handovers.change(connection, followed, HandoverState.DONE, now=NOW)
        except HandoverChanged:
            return False
        return True

    assert at_once(job_store, end, end) == (True, False)


def claim(
    connection: Connection, worker: str = "me", *names: str, now_s: float = 0.0, limit: int = 3
) -> list[Handover]:
    return handovers.claim_due(connection, worker=worker, known=names, now=at(now_s), limit=limit)


def test_who_asks_a_target_has_it_alone(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        for worker in ("me", "you", "third"):
            hire(connection, worker)
        for number in range(4):
            want = add_want(connection, f"k{number}")
            begin(connection, want.id, f"key-{number}", state=HandoverState.HANDED_OVER, next_at=NOW)

    one, two = at_once(job_store, lambda c: claim(c, "me", "t"), lambda c: claim(c, "you", "t"))

    assert sorted(each.key for each in one + two) == ["key-0", "key-1", "key-2", "key-3"]
    with job_store.begin() as connection:
        assert claim(connection, "third", "t", now_s=9_999) == []


def test_a_change_ends_the_claim_and_the_owner_of_an_older_claim_changes_nothing(connection: Connection) -> None:
    hire(connection, "you")
    begin(connection, add_want(connection).id, state=HandoverState.HANDED_OVER, next_at=NOW)
    [old] = claim(connection, "me", "t")
    workers.mark_dead(connection, "me", beat=0, now=NOW)
    assert workers.free_if_dead(connection, "me", limit=10) == 1
    [current] = claim(connection, "you", "t")

    with pytest.raises(HandoverChanged):
        handovers.change(connection, old, HandoverState.DONE, now=NOW)
    handovers.change(connection, current, HandoverState.HANDED_OVER, next_at=at(60), now=NOW)

    hire(connection, "third")
    assert [each.id for each in claim(connection, "third", "t", now_s=60)] == [old.id]


def test_a_handover_that_a_worker_has_claimed_and_does_not_know_of_is_claimed_anew(connection: Connection) -> None:
    begin(connection, add_want(connection).id, state=HandoverState.HANDED_OVER, next_at=NOW)
    [lost] = claim(connection, "me", "t")

    [again] = claim(connection, "me", "t")

    assert (again.id, again.token) == (lost.id, lost.token + 1)


def test_a_clock_that_ran_ahead_lets_nothing_be_forgotten(connection: Connection) -> None:
    begin(connection, add_want(connection).id, state=HandoverState.HANDED_OVER, next_at=at(366 * 86_400))

    assert len(claim(connection, "me", "t")) == 1


@pytest.mark.parametrize("known", [(), ("u", "v")])
def test_what_is_at_a_target_that_is_not_known_here_is_left_to_others_until_nobody_has_touched_it_for_long(
    connection: Connection, known: tuple[str, ...]
) -> None:
    begun = begin(connection, add_want(connection).id, state=HandoverState.HANDED_OVER, next_at=NOW)

    def due(after_s: float, *names: str) -> int:
        return len(claim(connection, "me", *names, now_s=after_s))  # what it claimed before is released first

    assert [due(GONE_S - 1, *known), due(GONE_S - 1, *known, "t"), due(GONE_S, *known)] == [0, 1, 1]
    now = handovers.find(connection, begun.id)
    handovers.change(connection, now, HandoverState.HANDED_OVER, next_at=at(GONE_S), now=at(GONE_S))
    assert [due(GONE_S + 1, *known), due(GONE_S + 1, *known, "t"), due(2 * GONE_S, *known)] == [0, 1, 1]


def test_what_is_held_is_told_the_oldest_first(connection: Connection) -> None:
    states = [HandoverState.HELD, HandoverState.DONE, HandoverState.HELD, HandoverState.HELD]
    made = [
        begin(connection, add_want(connection, f"k{number}").id, f"key-{number}", state=state)
        for number, state in enumerate(states)
    ]

    assert handovers.held(connection, limit=2) == [made[0], made[2]]


def test_what_nobody_knows_is_said_with_its_number(connection: Connection) -> None:
    with pytest.raises(NotFound, match="no download 7"):
        handovers.find(connection, 7)
