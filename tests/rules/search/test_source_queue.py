"""The queue of one source against a plain sorted list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import define
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from cormorant.rules.search.priorities import Priority, aged
from cormorant.rules.search.source_queue import SourceQueue

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PEOPLE, RSS, COMPLETION, BACKGROUND = Priority


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@define(eq=False)
class Waiter:
    sequence: int
    priority: Priority = BACKGROUND
    submitted_at: datetime = NOON
    deadline: datetime | None = None
    is_live: bool = True


def is_open(ticket: Waiter, priority: Priority) -> datetime | None:
    return NOON


def by_class(*seconds: float | None) -> dict[Priority, datetime | None]:
    """When each class opens."""
    return {priority: None if s is None else after(s) for priority, s in zip(Priority, seconds, strict=True)}


def queue_of(*tickets: Waiter) -> SourceQueue[Waiter]:
    queue = SourceQueue[Waiter]()
    for ticket in tickets:
        assert queue.push(ticket)
    return queue


def taken(queue: SourceQueue[Waiter], now: datetime = NOON) -> list[int]:
    numbers = []
    while (ticket := queue.take(now, is_open)) is not None:
        numbers.append(ticket.sequence)
    return numbers


def test_the_class_decides_and_within_it_the_number() -> None:
    priorities = (BACKGROUND, RSS, PEOPLE, RSS, COMPLETION, PEOPLE)

    queue = queue_of(*(Waiter(number, priority) for number, priority in enumerate(priorities)))

    assert taken(queue) == [2, 5, 1, 3, 4, 0]


def test_those_that_wait_are_shown_by_number_without_those_who_left() -> None:
    tickets = [Waiter(number, priority) for number, priority in enumerate((BACKGROUND, PEOPLE, RSS, PEOPLE))]
    queue = queue_of(*tickets)
    tickets[2].is_live = False
    queue.take(NOON, is_open)

    assert [ticket.sequence for ticket in queue.waiting()] == [0, 3]


def test_a_ticket_put_back_has_its_old_place() -> None:
    queue = queue_of(*(Waiter(number) for number in range(4)))
    first, second = queue.take(NOON, is_open), queue.take(NOON, is_open)
    assert first is not None
    assert second is not None

    queue.put_back(second)
    queue.put_back(first)

    assert taken(queue) == [0, 1, 2, 3]


def test_only_what_best_names_can_be_taken_by_name() -> None:
    first, second = Waiter(0), Waiter(1)
    queue = queue_of(first, second)

    with pytest.raises(ValueError, match="not the head"):
        queue.take_head(second)

    found = queue.best(NOON, is_open)
    assert found == (BACKGROUND, first)
    queue.take_head(first)
    assert taken(queue) == [1]


def test_a_ticket_that_rose_by_a_follower_is_not_named_again_by_its_old_class_while_it_runs() -> None:
    risen, later = Waiter(0), Waiter(1)
    queue = queue_of(risen)
    queue.cancel(risen)
    risen.priority = PEOPLE
    queue.push(risen)
    assert queue.take(NOON, is_open) is risen  # it lives, and runs

    queue.push(later)

    assert queue.take(NOON, is_open) is later


def test_a_cancelled_ticket_is_never_taken_nor_one_that_died_unseen() -> None:
    told, untold = Waiter(0), Waiter(1)
    queue = queue_of(told, untold, Waiter(2))

    assert queue.cancel(told)
    untold.is_live = False

    assert not queue.cancel(told)
    assert taken(queue) == [2]
    assert len(queue) == 0


def test_a_class_that_is_closed_holds_up_no_other() -> None:
    openings = by_class(5, 0, 0, 0)
    queue = queue_of(Waiter(0, PEOPLE), Waiter(1, RSS))

    ticket = queue.take(NOON, lambda _, priority: openings[priority])

    assert ticket is not None
    assert ticket.sequence == 1
    assert queue.next_event(NOON, lambda _, priority: openings[priority]) == after(5)
    assert queue.next_event(after(6), lambda _, priority: openings[priority]) == after(5), "look now"


def test_an_old_ticket_goes_before_younger_ones_of_the_class_it_has_risen_to() -> None:
    queue = queue_of(Waiter(0, BACKGROUND), Waiter(1, PEOPLE, submitted_at=after(899)))

    assert queue.best(after(899), is_open) is not None
    assert taken(queue, after(900)) == [0, 1]
    assert taken(queue_of(Waiter(0), Waiter(1, PEOPLE, submitted_at=after(899))), after(899)) == [1, 0]


def test_a_ticket_may_go_at_its_deadline_and_is_over_a_moment_later() -> None:
    queue = queue_of(Waiter(0, deadline=after(60)), Waiter(1))

    assert queue.expired(after(60)) == []
    assert queue.next_event(after(60), lambda *_: None) == after(60) + timedelta.resolution
    assert [ticket.sequence for ticket in queue.expired(after(60) + timedelta.resolution)] == [0]
    assert taken(queue) == [1]


def test_whoever_cannot_live_to_see_the_opening_is_told_at_once() -> None:
    queue = queue_of(
        Waiter(0, RSS, deadline=after(15)),
        Waiter(1, BACKGROUND, deadline=after(60)),
        Waiter(2, BACKGROUND),
        Waiter(3, BACKGROUND, deadline=after(61)),
    )

    assert [ticket.sequence for ticket in queue.unreachable(after(61), BACKGROUND)] == [1]
    assert [ticket.sequence for ticket in queue.unreachable(after(62))] == [0, 3]
    assert taken(queue) == [2]


def test_the_next_event_is_an_opening_a_rise_or_the_end_of_a_wait() -> None:
    closed = by_class(None, None, None, None)
    queue = queue_of(Waiter(0, RSS), Waiter(1, PEOPLE, deadline=after(700)))

    assert queue.next_event(NOON, lambda _, priority: by_class(9, 8, 7, 6)[priority]) == after(8)
    assert queue.next_event(after(10), lambda _, priority: closed[priority]) == after(300)
    assert queue.next_event(after(300), lambda _, priority: closed[priority]) == after(700) + timedelta.resolution
    assert SourceQueue[Waiter]().next_event(NOON, is_open) is None


def test_a_second_ticket_with_the_same_key_is_not_taken_in_while_one_waits_or_runs() -> None:
    queue = SourceQueue[Waiter]()
    assert queue.push(Waiter(0, RSS), key="rss")
    assert not queue.push(Waiter(1, RSS), key="rss")

    running = queue.take(NOON, is_open)
    assert running is not None
    assert not queue.push(Waiter(2, RSS), key="rss")

    queue.finished(running)
    assert queue.push(Waiter(3, RSS), key="rss")


@pytest.mark.parametrize("end", ["cancel", "expired", "hopeless", "died", "put back dead", "drain"])
def test_a_key_is_free_again_however_its_ticket_ended(end: str) -> None:
    ticket = Waiter(0, RSS, deadline=after(15))
    queue = SourceQueue[Waiter]()
    queue.push(ticket, key="rss")

    match end:
        case "cancel":
            queue.cancel(ticket)
        case "expired":
            queue.expired(after(16))
        case "hopeless":
            queue.unreachable(after(16))
        case "drain":
            queue.drain()
        case "put back dead":
            queue.take(NOON, is_open)
            ticket.is_live = False
            queue.put_back(ticket)
        case _:
            ticket.is_live = False

    assert queue.push(Waiter(1, RSS), key="rss")
    assert taken(queue) == [1]


def test_the_end_of_a_ticket_that_lost_its_key_frees_nothing_of_its_successor() -> None:
    first = Waiter(0, RSS)
    queue = SourceQueue[Waiter]()
    queue.push(first, key="rss")
    first.is_live = False
    queue.push(Waiter(1, RSS), key="rss")

    queue.finished(first)

    assert not queue.push(Waiter(2, RSS), key="rss")


def test_what_was_cancelled_costs_no_memory_for_long() -> None:
    queue = queue_of(Waiter(0, deadline=after(1e6)))
    for number in range(1, 5_000):
        ticket = Waiter(number, deadline=after(1e6))
        queue.push(ticket)
        queue.cancel(ticket)

    assert queue.entries <= 400


def test_at_the_end_everything_is_handed_out_in_order() -> None:
    dead = Waiter(2, PEOPLE, is_live=False)
    queue = queue_of(Waiter(3, PEOPLE), Waiter(1), dead)

    assert [ticket.sequence for ticket in queue.drain()] == [1, 3]
    assert (len(queue), queue.entries, taken(queue)) == (0, 0, [])


class Waiting(RuleBasedStateMachine):
    """Tickets that come, are taken, put back, cancelled and expire, while classes open and close."""

    @initialize()
    def begin(self) -> None:
        self.now = NOON
        self.queue = SourceQueue[Waiter]()
        self.model: list[Waiter] = []
        self.taken: list[Waiter] = []
        self.number = 0
        self.openings = by_class(0, 0, 0, 0)

    def opening_of(self, ticket: Waiter, priority: Priority) -> datetime | None:
        return self.openings[priority]

    def live(self) -> list[Waiter]:
        return [ticket for ticket in self.model if ticket.is_live]

    def rank(self, ticket: Waiter) -> tuple[Priority, int]:
        return aged(ticket.priority, (self.now - ticket.submitted_at).total_seconds()), ticket.sequence

    def may_go(self, ticket: Waiter) -> bool:
        opens_at = self.openings[self.rank(ticket)[0]]
        return opens_at is not None and opens_at <= self.now

    @rule(priority=st.sampled_from(Priority), max_wait_s=st.none() | st.integers(0, 1_000))
    def push(self, priority: Priority, max_wait_s: int | None) -> None:
        self.number += 1
        deadline = None if max_wait_s is None else self.now + timedelta(seconds=max_wait_s)
        ticket = Waiter(self.number, priority, self.now, deadline)
        self.model.append(ticket)
        assert self.queue.push(ticket)

    @rule(seconds=st.integers(0, 400))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(priority=st.sampled_from(Priority), seconds=st.none() | st.integers(-100, 500))
    def change_opening(self, priority: Priority, seconds: int | None) -> None:
        self.openings[priority] = None if seconds is None else self.now + timedelta(seconds=seconds)

    @rule()
    def take(self) -> None:
        # Only heads are looked at: the oldest of those submitted with one class.
        heads = [min(own, key=self.rank) for own in map(self.submitted_with, Priority) if own]
        expected = min(filter(self.may_go, heads), key=self.rank, default=None)
        assert self.queue.take(self.now, self.opening_of) is expected
        if expected is not None:
            self.model.remove(expected)
            self.taken.append(expected)

    def submitted_with(self, priority: Priority) -> list[Waiter]:
        return [ticket for ticket in self.live() if ticket.priority is priority]

    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        if self.taken:
            ticket = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
            self.model.append(ticket)
            self.queue.put_back(ticket)

    @rule(data=st.data(), told=st.booleans())
    def cancel(self, data: st.DataObject, *, told: bool) -> None:
        if self.live():
            ticket = data.draw(st.sampled_from(self.live()))
            ticket.is_live = False
            if told:
                assert self.queue.cancel(ticket)

    @rule()
    def expire(self) -> None:
        self.ended(self.queue.expired(self.now), self.now, list(Priority))

    @rule(priority=st.none() | st.sampled_from(Priority), seconds=st.integers(0, 500))
    def give_up(self, priority: Priority | None, seconds: int) -> None:
        opens_at = self.now + timedelta(seconds=seconds)
        self.ended(
            self.queue.unreachable(opens_at, priority), opens_at, list(Priority) if priority is None else [priority]
        )

    def ended(self, ended: list[Waiter], before: datetime, classes: list[Priority]) -> None:
        expected = [
            ticket
            for ticket in self.live()
            if ticket.priority in classes and ticket.deadline is not None and ticket.deadline < before
        ]
        assert {ticket.sequence for ticket in ended} == {ticket.sequence for ticket in expected}
        self.model = [ticket for ticket in self.live() if ticket not in expected]

    @invariant()
    def heads_are_the_oldest_and_nothing_is_lost(self) -> None:
        for priority in Priority:
            assert self.queue.head(priority) is min(self.submitted_with(priority), key=self.rank, default=None)
        assert len(self.queue) >= len(self.live())

    @invariant()
    def nothing_can_go_before_the_next_event_that_cannot_go_now(self) -> None:
        if self.queue.best(self.now, self.opening_of) is not None:
            return
        event = self.queue.next_event(self.now, self.opening_of)
        far = self.now + timedelta(days=1)
        for quiet in (event - timedelta.resolution,) if event else (far,):
            if quiet > self.now:
                assert self.queue.best(quiet, self.opening_of) is None
                assert not [t for t in self.live() if t.deadline is not None and self.now <= t.deadline < quiet]


@pytest.mark.slow("a hundred histories of fifty steps")
def test_the_queue_does_what_a_sorted_list_would() -> None:
    run_state_machine_as_test(Waiting, settings=settings(max_examples=100, stateful_step_count=50, deadline=None))
