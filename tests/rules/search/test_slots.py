"""The slot pool against a plain list of bids."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.slots import SLOTS, Rank, SlotPool

SOURCES = st.integers(0, 7)
PEOPLE, RSS, BACKGROUND = Priority.INTERACTIVE, Priority.RSS, Priority.BACKGROUND


def test_there_are_ten_slots_and_the_last_is_kept_for_people() -> None:
    pool = SlotPool[int]()

    granted = [pool.bid(source, (BACKGROUND, source)) for source in range(12)]
    person = pool.bid(99, (PEOPLE, 99), is_for_people=True)

    assert SLOTS == 10
    assert granted == [(source,) for source in range(9)] + [()] * 3
    assert person == (99,)


def test_a_ticket_that_only_grew_old_does_not_take_the_slot_of_people() -> None:
    pool = SlotPool[str](slots=2)
    pool.bid("a", (RSS, 1))

    assert pool.bid("old", (PEOPLE, 0)) == ()
    assert pool.free("a") == ("old",)


def test_a_single_slot_is_for_everyone() -> None:
    assert SlotPool[str](slots=1).bid("a", (BACKGROUND, 1)) == ("a",)


def test_a_raised_bid_goes_before_an_older_one() -> None:
    pool = SlotPool[str](slots=1)
    pool.bid("running", (RSS, 1))
    pool.bid("a", (RSS, 2))
    pool.bid("b", (BACKGROUND, 3))

    pool.change_bid("b", (PEOPLE, 4), is_for_people=True)

    assert pool.free("running") == ("b",)


def test_a_bid_raised_to_that_of_a_person_may_take_the_kept_slot_at_once() -> None:
    pool = SlotPool[str](slots=2)
    pool.bid("running", (RSS, 1))
    pool.bid("a", (RSS, 2))

    assert pool.change_bid("a", (PEOPLE, 3), is_for_people=True) == ("a",)


def test_whoever_withdraws_too_late_has_a_slot_to_free() -> None:
    pool = SlotPool[str](slots=1)
    pool.bid("a", (RSS, 1))

    assert not pool.withdraw("a")
    assert (pool.holds("a"), pool.free("a"), pool.taken) == (1, (), 0)


def test_misuse_is_told() -> None:
    pool = SlotPool[str](slots=1)
    pool.bid("a", (RSS, 1))
    pool.bid("b", (RSS, 2))

    with pytest.raises(ValueError, match="bids already"):
        pool.bid("b", (RSS, 3))
    with pytest.raises(ValueError, match="no slot"):
        pool.free("b")
    with pytest.raises(ValueError, match="1 slot or more"):
        SlotPool[str](slots=0)


class Bidding(RuleBasedStateMachine):
    """Sources that bid, change their bid, withdraw and free in any order."""

    @initialize(slots=st.integers(1, 4))
    def begin(self, slots: int) -> None:
        self.pool = SlotPool[int](slots=slots)
        self.bids: dict[int, tuple[Rank, bool]] = {}
        self.running: list[int] = []
        self.number = 0

    def check(self, granted: tuple[int, ...]) -> None:
        expected = []
        while self.bids:
            free = self.pool.slots - len(self.running)
            may = [each for each in self.bids if free > self.pool.kept or (free and self.bids[each][1])]
            if not may:
                break
            best = min(may, key=lambda each: self.bids[each][0])
            del self.bids[best]
            self.running.append(best)
            expected.append(best)
        assert list(granted) == expected

    @rule(source=SOURCES, priority=st.sampled_from(Priority), people=st.booleans())
    def bid(self, source: int, priority: Priority, *, people: bool) -> None:
        if source not in self.bids:
            self.number += 1
            self.bids[source] = ((priority, self.number), people)
            self.check(self.pool.bid(source, (priority, self.number), is_for_people=people))

    @rule(source=SOURCES, priority=st.sampled_from(Priority), people=st.booleans())
    def change_bid(self, source: int, priority: Priority, *, people: bool) -> None:
        self.number += 1
        if source in self.bids:
            self.bids[source] = ((priority, self.number), people)
        self.check(self.pool.change_bid(source, (priority, self.number), is_for_people=people))

    @rule(source=SOURCES)
    def withdraw(self, source: int) -> None:
        assert self.pool.withdraw(source) is (self.bids.pop(source, None) is not None)

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.running:
            source = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
            self.check(self.pool.free(source))

    @invariant()
    def no_more_are_granted_than_there_are(self) -> None:
        assert self.pool.taken == len(self.running) <= self.pool.slots
        assert all(self.pool.holds(source) == self.running.count(source) for source in range(8))


@pytest.mark.slow("a hundred histories of fifty steps")
def test_the_pool_grants_what_a_plain_list_would() -> None:
    run_state_machine_as_test(Bidding, settings=settings(max_examples=100, stateful_step_count=50, deadline=None))
