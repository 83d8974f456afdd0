"""Cancelled at any step of start, restart and stop, a tree leaves no task, loses no report and keeps its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
import trio
from attrs import define
from trio.testing import MockClock

from cormorant.rules.errors import StartFailed
from cormorant.rules.events import ChildCrashed, ChildExited
from supervisors import ChildSpec, Strategy, Supervisor
from tests.supervisors.probes import Half, Journal, Probe, Script, StoppableProbe

CRASH_ONCE = (Script(start_s=0.5, run_s=1.0, crashes=True), Script(start_s=0.5))


@define(eq=False)
class DoAtStep(trio.abc.Instrument):
    """Does something just before the n-th step that any task takes."""

    what: Callable[[], object]
    step: int
    taken: int = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.taken += 1
        if self.taken == self.step:
            self.what()


def a_tree(journal: Journal) -> Supervisor:
    below = Supervisor(
        [
            ChildSpec("x", StoppableProbe(journal, "x", Script(start_s=0.5, stop_s=0.5))),
            ChildSpec("y", Probe(journal, "y", *CRASH_ONCE)),
        ],
        name="below",
        strategy=Strategy.ONE_FOR_ALL,
        emit=journal.emit,
        chance=Half(),
    )
    return Supervisor(
        [
            ChildSpec("a", StoppableProbe(journal, "a", Script(start_s=0.5, stop_s=1.0))),
            ChildSpec("b", Probe(journal, "b", *CRASH_ONCE)),
            ChildSpec("below", below),
            ChildSpec("c", StoppableProbe(journal, "c", Script(stop_s=60.0)), grace_s=1.0),
        ],
        strategy=Strategy.REST_FOR_ONE,
        emit=journal.emit,
        chance=Half(),
    )


async def use(supervisor: Supervisor) -> None:
    async with supervisor:
        await trio.sleep(4)
        with trio.move_on_after(1):
            await supervisor.start_child(ChildSpec("late", Probe(Journal(), "late", Script(start_s=0.5))))
        await trio.sleep(1)


def run_interrupted_at(step: int, how: str) -> tuple[Journal, Supervisor, int]:
    async def main() -> tuple[Journal, Supervisor, int]:
        journal = Journal()
        supervisor = a_tree(journal)
        with trio.CancelScope() as scope, suppress(StartFailed):
            instrument = DoAtStep(scope.cancel if how == "cancelled" else supervisor.stop, step)
            trio.lowlevel.add_instrument(instrument)
            await use(supervisor)
        return journal, supervisor, instrument.taken

    return trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.slow("two hundred whole runs of a tree, one for each step that a cancellation or a stop can hit")
@pytest.mark.parametrize("how", ["cancelled", "stopped"])
def test_interrupted_at_every_step_a_tree_stops_in_order_and_reports(how: str) -> None:
    whole = run_interrupted_at(-1, how)[2]
    assert whole > 70

    for step in range(1, whole + 1):
        journal, supervisor, _ = run_interrupted_at(step, how)

        assert journal.running() == [], f"{how} at step {step}"
        if journal.entries:
            assert supervisor.report is not None, f"{how} at step {step}"
            assert ends_in_reverse(journal), f"{how} at step {step}: {journal.entries}"
            assert every_end_is_told_once(journal), f"{how} at step {step}: {journal.events}"


def every_end_is_told_once(journal: Journal) -> bool:
    """Whether each incarnation that began has exactly one event for its end."""
    ends = Counter(event.child for event in journal.events if isinstance(event, ChildCrashed | ChildExited))
    begun = Counter(name for _, name, did in journal.entries if did == "begun")
    return all(ends[name] == number for name, number in begun.items())


def ends_in_reverse(journal: Journal) -> bool:
    """Whether the children that did not end by themselves went down in the reverse of their order."""
    last_begun = max(at for at, (_, _, did) in enumerate(journal.entries) if did == "begun")
    tail = journal.entries[last_begun:]
    crashed = {name for _, name, did in tail if did == "crashed"}
    stopped = [name for _, name, did in tail if did == "over" and name not in crashed]
    return stopped == sorted(stopped, key="abxyc".index, reverse=True)


@pytest.mark.parametrize("cancel_at_s", [n / 4 for n in range(1, 32)])
async def test_cancelled_at_any_time_a_tree_is_down_within_its_total(clock: MockClock, cancel_at_s: float) -> None:
    journal = Journal()
    supervisor = a_tree(journal)

    with trio.move_on_after(cancel_at_s):
        await use(supervisor)

    assert journal.running() == []
    assert supervisor.report is not None
    assert supervisor.report.took_s <= supervisor.stop_total_s
    assert trio.current_time() <= cancel_at_s + supervisor.stop_total_s


async def test_without_its_own_scopes_a_supervisor_would_die_at_one_instant(clock: MockClock) -> None:
    journal = Journal()
    stoppable = StoppableProbe(journal, "a", Script(stop_s=3.0))

    with trio.move_on_after(5):
        async with Supervisor([ChildSpec("a", stoppable)]):
            await trio.sleep_forever()

    assert journal.times("a", "asked") == [5.0]
    assert journal.times("a", "over") == [8.0]


async def test_cancelled_before_its_first_step_a_supervisor_starts_nothing(clock: MockClock) -> None:
    for _ in range(20):  # trio runs the two tasks of a batch in either order
        journal = Journal()
        with trio.CancelScope() as scope:
            scope.cancel()
            async with Supervisor([ChildSpec("a", Probe(journal, "a"))]):
                pytest.fail("the body must not run")
        assert scope.cancelled_caught
        assert journal.running() == []
