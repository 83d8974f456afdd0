"""Wants in both databases: each once, changed by one at a time, and found again when nobody cares for them."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from cormorant.rules.errors import NotFound
from cormorant.rules.jobs.states import JobState
from cormorant.rules.watch.handovers import HandoverState
from cormorant.rules.watch.wants import WantChangeRefused, WantState
from storage.watch import handovers, wants
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, put, settle, take
from tests.storage.watch_store import add_want, judged, new_handover, new_want


def test_the_same_thing_is_wanted_once_whoever_wants_it(job_store: JobStore) -> None:
    one, two = at_once(job_store, lambda c: wants.want(c, new_want()), lambda c: wants.want(c, new_want()))

    assert one is not None
    assert two is None


def test_of_two_changes_at_once_the_second_sees_what_the_first_has_made(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        want = add_want(connection, state=WantState.CHOSEN)

    def ignore(connection: Connection) -> str:
        return wants.change(connection, want.id, WantState.IGNORED, reason="by hand", now=NOW).state.value

    def send(connection: Connection) -> str:
        try:
            return wants.change(connection, want.id, WantState.SENDING, reason="to t", now=NOW).state.value
        except WantChangeRefused as refused:
            return str(refused)

    _, second = at_once(job_store, ignore, send)

    assert second == f"want {want.id} is ignored; want it again first: `cormorant wants retry {want.id}`"


def test_what_nobody_knows_is_said_with_its_number(connection: Connection) -> None:
    with pytest.raises(NotFound, match="no want 77"):
        wants.change(connection, 77, WantState.DONE, now=NOW)


def test_candidates_keep_their_order_and_what_was_tried_in_vain(connection: Connection) -> None:
    want = add_want(connection)
    wants.set_candidates(connection, want.id, judged("1", "2", "3"), ranked=["s/2", "s/3"], now=NOW)
    wants.reject_candidate(connection, want.id, "s/2", "no")
    best = wants.best_left(connection, want.id)
    assert best is not None
    assert (best.ref, best.result.guid) == ("s/3", "3")

    wants.set_candidates(connection, want.id, judged("2", "4"), ranked=["s/2", "s/4"], now=at(60))
    known = {each.ref: (each.position, each.failed_because) for each in wants.candidates(connection, want.id)}
    assert known == {"s/2": (0, "no"), "s/4": (1, None), "s/1": (None, None), "s/3": (None, None)}
    wants.unreject_candidates(connection, want.id)
    best = wants.best_left(connection, want.id)
    assert best is not None
    assert best.ref == "s/2"


def orphans(connection: Connection) -> list[str]:
    return [want.key for want in wants.orphans(connection, before=at(1), limit=10)]


def test_an_orphan_is_a_want_that_something_is_to_be_done_for_and_that_has_no_live_job(connection: Connection) -> None:
    for state in WantState:
        add_want(connection, state.value, state=state)
    add_want(connection, "chosen, to be sent", state=WantState.CHOSEN, next_at=NOW)
    add_want(connection, "changed just now", state=WantState.SENDING, changed_at=at(1))
    held = add_want(connection, "held", state=WantState.IN_DOUBT)
    begun = handovers.begin(connection, new_handover(held.id, state=HandoverState.HELD))
    assert begun is not None

    assert orphans(connection) == ["wanted", "searching", "sending", "in doubt", "chosen, to be sent"]
    put(connection, "want", dedupe_key="wanted")
    put(connection, "handover", dedupe_key="sending", run_at=at(5_000))
    put(connection, "other", dedupe_key="searching")
    assert orphans(connection) == ["searching", "in doubt", "chosen, to be sent"]


def test_a_job_that_runs_cares_for_its_want_until_it_has_ended(connection: Connection) -> None:
    add_want(connection, "k")
    put(connection, "want", dedupe_key="k")
    [job] = take(connection, kinds=["want"])
    assert orphans(connection) == []

    settle(connection, job, JobState.FAILED)
    assert orphans(connection) == ["k"]


def test_wants_are_listed_newest_first(connection: Connection) -> None:
    first = add_want(connection, "1")
    second = add_want(connection, "2", state=WantState.DONE)

    assert [want.id for want in wants.recent(connection)] == [second.id, first.id]
    assert wants.recent(connection, state=WantState.DONE) == [second]
    assert wants.recent(connection, before_id=second.id, limit=1) == [first]
    ignored = wants.change(connection, first.id, WantState.IGNORED, now=NOW)
    assert wants.recent(connection, has_ignored=False) == [second]
    assert wants.recent(connection, state=WantState.IGNORED) == [ignored]
    assert wants.by_key(connection, "2") == second
    assert wants.by_key(connection, "3") is None
