"""The lease of a process: held while the database confirms it, in doubt by its time, and lost until it is confirmed again."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from actors.jobs.working_set import OwnerLease


async def test_a_lease_that_is_in_doubt_is_not_held_even_before_the_heartbeat_has_seen_that(clock: MockClock) -> None:
    lease = OwnerLease(owner="me")
    lease.confirm(trio.current_time(), doubtful_after_s=240.0)

    held = []
    for wait_s in (0.0, 239.0, 1.0):
        await trio.sleep(wait_s)
        held.append(lease.is_held)

    assert held == [True, True, False]
    assert lease.held.is_set(), "as after a sleep of the machine: the heartbeat has had no turn yet"


async def test_a_confirmation_that_came_too_late_holds_no_lease(clock: MockClock) -> None:
    lease = OwnerLease(owner="me")
    asked_at = trio.current_time()
    await trio.sleep(240)

    lease.confirm(asked_at, doubtful_after_s=240.0)

    assert (lease.is_held, lease.held.is_set()) == (False, False)


async def test_a_lease_that_was_lost_can_be_confirmed_and_lost_again(clock: MockClock) -> None:
    lease, states = OwnerLease(owner="me"), list[tuple[bool, bool]]()

    for _ in range(2):
        lease.confirm(trio.current_time(), doubtful_after_s=240.0)
        states.append((lease.is_held, lease.lost.is_set()))
        lease.lose()
        states.append((lease.is_held, lease.lost.is_set()))

    assert states == [(True, False), (False, True)] * 2
