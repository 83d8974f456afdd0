"""Joins of equal searches and polls: whatever happens in whatever order, each ticket waits in exactly one place that may have it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.search.search import OpenTickets, Search, Terms, Ticket
from actors.search.source_requests import PendingRequest, SourceRequests
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.search.reservations import RequestPermit
from cormorant.testing import START
from storage.search.sources import SourceRecord

pytestmark = pytest.mark.slow("a state machine")

RED = SourceRecord(id=1, name="red", identity="red", kind="torznab", url="http://red")
FOUND = Outcome(job_id=0, source="red", status=OutcomeStatus.FOUND)
POLLS = ("", "", "known", "first")


class Joins(RuleBasedStateMachine):
    """Tickets of three apps, two of them with a share, and the requests that their limiter makes."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = SourceRequests(record=RED)
        self.tickets: list[Ticket] = []
        self.seq = 0

    @rule(
        app=st.sampled_from([("sonarr", 0.5), ("radarr", 0.25), ("person", 1.0)]),
        poll=st.sampled_from(POLLS),
        categories=st.frozensets(st.sampled_from([2000, 3000, 5000])),
        priority=st.sampled_from(list(Priority)),
        wait_s=st.sampled_from([None, 5.0, 60.0]),
    )
    def submit(self, app: tuple[str, float], poll: str, categories: Any, priority: Any, wait_s: float | None) -> None:
        terms = Terms(priority=priority, timeout_s=9, max_wait_s=wait_s, consumer=app[0], share=app[1], poll=poll)
        ticket = Ticket(
            sequence=len(self.tickets),
            source="red",
            request=SearchRequest(categories=categories),
            search=Search(len(self.tickets), 1),
            terms=terms,
            submitted_at=START,
            deadline=None if wait_s is None else START + timedelta(seconds=wait_s),
            open_tickets=OpenTickets(1),
        )
        self.tickets.append(ticket)
        self.requests.admit(ticket)

    def waiting(self) -> list[PendingRequest]:
        return [pending for queue in self.requests.queues.values() for pending in queue.waiting()]

    def taken(self, *, reserved: bool) -> list[PendingRequest]:
        return [each for each, permit in self.requests.running.items() if (permit is not None) == reserved]

    @precondition(lambda self: self.waiting())
    @rule(chance=st.randoms(use_true_random=False))
    def take(self, chance: Any) -> None:
        queue = chance.choice([queue for queue in self.requests.queues.values() if queue.waiting()])
        best = queue.best(START, lambda *_: START)
        self.requests.take(best[1])

    @precondition(lambda self: self.taken(reserved=False))
    @rule(is_open=st.booleans())
    def reserve(self, is_open: bool) -> None:  # noqa: FBT001 - Hypothesis draws it and gives it by name
        pending = self.taken(reserved=False)[0]
        if is_open:
            self.seq += 1
            self.requests.reserved(pending, RequestPermit(lane=Lane.QUERY, seq=self.seq, generation=0))
        else:
            self.requests.put_back(pending)

    @precondition(lambda self: self.taken(reserved=True))
    @rule()
    def end(self) -> None:
        pending = self.taken(reserved=True)[0]
        self.requests.running[pending] = None
        pending.finish(lambda job_id: evolve(FOUND, job_id=job_id))
        self.requests.finished(pending)

    @precondition(lambda self: self.tickets)
    @rule(chance=st.randoms(use_true_random=False))
    def leave(self, chance: Any) -> None:
        ticket = chance.choice(self.tickets)
        if ticket.end(OutcomeStatus.CANCELLED):
            self.requests.withdraw(ticket)

    @rule(wait_s=st.sampled_from([6.0, 61.0]))
    def expire(self, wait_s: float) -> None:
        end = START + timedelta(seconds=wait_s)
        for queue in self.requests.queues.values():
            for late in queue.expired(end):
                self.requests.forget(late)
                late.end(OutcomeStatus.RATE_LIMITED)
        for ticket in self.requests.followers_ending(end):
            pendings = [each for each in self.waiting() if ticket in each.tickets]
            assert pendings, "only what waits in line is told that its wait is over"
            ticket.end(OutcomeStatus.RATE_LIMITED)

    @invariant()
    def each_living_ticket_waits_in_one_place_that_may_have_it(self) -> None:
        places = [*self.waiting(), *self.requests.running]
        for ticket in self.tickets:
            holders = [pending for pending in places if ticket in pending.tickets]
            if not ticket.is_live:
                continue
            assert len(holders) == 1
            (pending,) = holders
            assert pending.terms.poll == ticket.terms.poll
            assert pending in self.taken(reserved=True) or pending.place == ticket.terms.place
            mine, asked = set(ticket.request.categories), set(pending.request.categories)
            asks_for_all = not asked
            assert (asks_for_all or (mine and mine <= asked)) if ticket.terms.poll else mine == asked

    @invariant()
    def what_is_over_leaves_nothing_behind(self) -> None:
        if not any(ticket.is_live for ticket in self.tickets) and not self.requests.running:
            assert not self.requests._by_key  # noqa: SLF001 - what it holds is the question
            assert not self.requests._reserved  # noqa: SLF001 - as above
            assert not self.requests._polls  # noqa: SLF001 - as above
            assert not self.requests._by_ticket  # noqa: SLF001 - as above

    @invariant()
    def each_ticket_has_at_most_one_entry_for_its_own_end(self) -> None:
        assert len(self.requests._followers) <= len(self.tickets)  # noqa: SLF001 - as above


TestJoins = Joins.TestCase
TestJoins.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


def test_a_request_that_loses_its_last_ticket_to_its_own_wait_is_forgotten() -> None:
    joins = Joins()
    for wait_s in (5.0, 60.0):
        joins.submit(app=("person", 1.0), poll="known", categories=(), priority=Priority.RSS, wait_s=wait_s)
    [_, patient] = joins.tickets
    patient.end(OutcomeStatus.CANCELLED)
    joins.requests.withdraw(patient)

    joins.expire(wait_s=6.0)

    assert joins.waiting() == []
    joins.what_is_over_leaves_nothing_behind()


def test_a_request_that_is_put_back_often_leaves_no_more_entries() -> None:
    joins = Joins()
    for _ in range(3):
        joins.submit(app=("person", 1.0), poll="", categories=(), priority=Priority.BACKGROUND, wait_s=60.0)
    [queue] = [queue for queue in joins.requests.queues.values() if queue.waiting()]
    for _ in range(100):
        best = queue.best(START, lambda *_: START)
        assert best is not None
        joins.requests.take(best[1])
        joins.reserve(is_open=False)

    joins.each_ticket_has_at_most_one_entry_for_its_own_end()
