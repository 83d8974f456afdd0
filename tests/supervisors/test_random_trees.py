"""Random trees that start, crash, are cancelled and stop keep their order, their budgets and their invariants."""

from __future__ import annotations

import hashlib
import random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from cormorant.rules.errors import SupervisionError
from cormorant.rules.events import Event, fields_of
from cormorant.testing import simulated
from supervisors import ChildSpec, OnExhausted, Restart, Strategy, Supervisor
from tests.bounds import QUADRATIC_FROM, growth
from tests.supervisors.probes import Journal, Probe, Script, StoppableProbe
from tests.supervisors.test_cancellation import every_end_is_told_once

short = st.sampled_from([0.0, 0.1, 0.5, 2.0, 7.0])
scripts = st.builds(
    Script,
    start_s=st.sampled_from([0.0, 0.0, 0.5, 40.0]),
    run_s=st.sampled_from([0.0, 0.1, 1.0, 3.0, 6.0, 1e9]),
    crashes=st.booleans(),
    stop_s=st.sampled_from([0.0, 0.5, 60.0]),
)


@st.composite
def trees(draw: st.DrawFn, journal: Journal, depth: int = 0) -> Supervisor:
    """A supervisor of up to four children, some of them supervisors."""
    specs = []
    for _ in range(draw(st.integers(0 if depth else 1, 4))):
        name = journal.new_name()
        restart, aside = draw(st.sampled_from(Restart)), draw(st.sampled_from(OnExhausted))
        if depth < 2 and draw(st.integers(0, 3)) == 0:
            below = draw(trees(journal, depth + 1))
            specs.append(ChildSpec(name, below, restart=restart, on_exhausted=aside, start_timeout_s=60.0))
            continue
        kind = draw(st.sampled_from([Probe, StoppableProbe]))
        probe = kind(journal, name, *draw(st.lists(scripts, min_size=1, max_size=4)))
        specs.append(ChildSpec(name, probe, restart=restart, on_exhausted=aside, grace_s=draw(short)))
    return Supervisor(specs, name=f"depth {depth}", strategy=draw(st.sampled_from(Strategy)), emit=journal.emit)


async def live(supervisor: Supervisor, journal: Journal, actions: list[tuple[str, float]]) -> None:
    """Run a tree under a list of things that happen to it, one after the other."""
    added = 0
    async with supervisor:
        for what, pause_s in actions:
            await trio.sleep(pause_s)
            with trio.move_on_after(pause_s):
                if what == "add":
                    added += 1
                    name = f"added {added}"
                    await supervisor.start_child(ChildSpec(name, Probe(journal, name, Script(start_s=0.2, run_s=3.0))))
                elif what == "remove" and supervisor.children():
                    await supervisor.stop_child(supervisor.children()[-1].name)
                elif what == "stop":
                    await supervisor.stop()


@pytest.mark.slow("a hundred trees, each with a life of its own")
@settings(max_examples=400)
@given(data=st.data())
def test_whatever_happens_everything_ends_in_time_and_is_reported(data: st.DataObject) -> None:
    journal = Journal()
    supervisor = data.draw(trees(journal))
    action = st.tuples(st.sampled_from(["add", "remove", "stop", "wait"]), st.sampled_from([0.1, 1.0, 20.0]))
    actions = data.draw(st.lists(action, max_size=6))
    cancel_at_s = data.draw(st.sampled_from([0.0, 0.05, 0.5, 1.0, 3.3, 1e6]))

    async def main() -> float:
        try:
            with trio.move_on_after(cancel_at_s):
                await live(supervisor, journal, actions)
        except* SupervisionError:
            pass
        return trio.current_time()

    ended_at = trio.run(main, clock=MockClock(autojump_threshold=0))

    assert journal.running() == []
    if journal.entries:
        assert supervisor.report is not None
        assert supervisor.report.took_s <= supervisor.stop_total_s + 1e-6
        assert every_end_is_told_once(journal)
        assert no_child_is_up_before_those_listed_before_it(journal)
        assert ended_at - min(cancel_at_s, ended_at) <= supervisor.stop_total_s + 1e-6


def no_child_is_up_before_those_listed_before_it(journal: Journal) -> bool:
    """The first time, children come up in the order they are listed: their names were numbered in it.

    One that did not come up at first may come later than those after it, if it may be set aside.
    """
    firsts: dict[str, list[str]] = {}
    for _, name, did in journal.entries:
        firsts.setdefault(name, []).append(did)
    if any(did[1:2] != ["up"] for did in firsts.values()):
        return True
    order = [name for _, name, did in journal.entries if did == "begun" and name.startswith("child")]
    numbers = [int(name.split()[1]) for name in dict.fromkeys(order)]
    return numbers == sorted(numbers)


async def crowd(emit: list[Event], chance: random.Random, size: int) -> None:
    journal = Journal()
    once = (Script(run_s=1.0, crashes=True), Script())
    specs = [
        ChildSpec(f"child {n}", Probe(journal, f"child {n}", *once), on_exhausted=OnExhausted.SET_ASIDE)
        for n in range(size)
    ]
    async with Supervisor(specs, emit=emit.append, chance=chance) as supervisor:
        await trio.sleep(5)
        assert all(view.restarts == 1 for view in supervisor.children())
        assert len(journal.running()) == size
    assert journal.running() == []


@pytest.mark.slow("a thousand children start, crash, restart and stop, several times")
def test_the_work_of_a_supervisor_grows_with_the_number_of_its_children_and_not_with_its_square() -> None:
    def live(size: int) -> None:
        trio.run(crowd, [], random.Random(1), size, clock=MockClock(autojump_threshold=0))

    assert growth(live, 125, 1_000) < QUADRATIC_FROM


def trace_of_a_hundred_crashes(seed: int) -> str:
    """Three levels, a hundred crashes at random moments; the events with their times, hashed."""
    simulation = simulated(seed)
    lines: list[str] = []

    def emit(event: Event) -> None:
        lines.append(f"{trio.current_time():.6f} {event.name} {fields_of(event)}")

    async def restless(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(simulation.chance.expovariate(1 / 30))
        raise ValueError("now")

    def level(depth: int) -> Supervisor:
        below = [ChildSpec(f"{depth}.{n}", level(depth + 1) if depth < 3 else restless) for n in range(3)]
        return Supervisor(below, name=f"depth {depth}", intensity=50, emit=emit, chance=simulation.chance)

    async def main() -> None:
        async with level(1):
            while sum(" child.crashed " in line for line in lines) < 100:
                await trio.sleep(1)

    simulation.run(main)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.slow("two simulated minutes of a tree of 39 children, three times")
def test_a_hundred_random_crashes_give_the_same_trace_twice_for_one_seed() -> None:
    assert trace_of_a_hundred_crashes(7) == trace_of_a_hundred_crashes(7)
    assert trace_of_a_hundred_crashes(7) != trace_of_a_hundred_crashes(8)
