"""The OTP table: how it ended x restart type x strategy; back-off, intensity, escalation, setting aside."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.errors import RestartsExhausted
from cormorant.rules.events import ChildCrashed, ChildSetAside
from supervisors import ChildSpec, ChildState, OnExhausted, Restart, Strategy, Supervisor
from tests.supervisors.probes import STEADY, Boom, Half, Journal, Probe, Script, StoppableProbe

CRASH = Script(run_s=1.0, crashes=True)
RETURN = Script(run_s=1.0)

COMES_BACK = {
    ("returned", Restart.PERMANENT): True,
    ("returned", Restart.TRANSIENT): False,
    ("returned", Restart.TEMPORARY): False,
    ("crashed", Restart.PERMANENT): True,
    ("crashed", Restart.TRANSIENT): True,
    ("crashed", Restart.TEMPORARY): False,
    ("stopped", Restart.PERMANENT): False,
    ("stopped", Restart.TRANSIENT): False,
    ("stopped", Restart.TEMPORARY): False,
    ("cancelled", Restart.PERMANENT): False,
    ("cancelled", Restart.TRANSIENT): False,
    ("cancelled", Restart.TEMPORARY): False,
}
GOES_ALONG = {
    Strategy.ONE_FOR_ONE: [],
    Strategy.ONE_FOR_ALL: ["a", "c"],
    Strategy.REST_FOR_ONE: ["c"],
}


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(("ending", "restart"), COMES_BACK)
async def test_who_comes_back_follows_the_otp_table(
    clock: MockClock, ending: str, restart: Restart, strategy: Strategy
) -> None:
    journal = Journal()
    first = {"returned": RETURN, "crashed": CRASH}.get(ending, STEADY)
    middle = (StoppableProbe if ending == "stopped" else Probe)(journal, "b", first, STEADY)
    specs = [
        ChildSpec("a", Probe(journal, "a")),
        ChildSpec("b", middle, restart=restart),
        ChildSpec("c", Probe(journal, "c")),
    ]

    async with Supervisor(specs, strategy=strategy) as supervisor:
        if ending in {"stopped", "cancelled"}:
            report = await supervisor.stop_child("b")
            assert report.ending.value == ending
        await trio.sleep(3)
        running = journal.running()

    back = COMES_BACK[ending, restart]
    again = ["b", *GOES_ALONG[strategy]] if back else []
    for name in "abc":
        assert len(journal.times(name, "begun")) == (2 if name in again else 1)
    assert sorted(running) == sorted(set("abc") - (set() if back else {"b"}))


async def test_a_group_is_stopped_in_reverse_and_started_in_order(clock: MockClock) -> None:
    journal = Journal()
    specs = [
        ChildSpec("a", StoppableProbe(journal, "a", Script(stop_s=0.5))),
        ChildSpec("b", Probe(journal, "b", CRASH, STEADY)),
        ChildSpec("c", StoppableProbe(journal, "c", Script(stop_s=0.5))),
        ChildSpec("d", StoppableProbe(journal, "d", Script(stop_s=0.5))),
    ]

    async with Supervisor(specs, strategy=Strategy.ONE_FOR_ALL, chance=Half()):
        await trio.sleep(4)
        happened = journal.order("asked", "over", "up")

    begun = ["a up", "b up", "c up", "d up"]
    ended = ["b over", "d asked", "d over", "c asked", "c over", "a asked", "a over"]
    assert happened == [*begun, *ended, *begun]


async def test_siblings_that_end_during_a_group_restart_are_not_counted(clock: MockClock) -> None:
    journal = Journal()
    together = Script(run_s=1.0, crashes=True)
    specs = [ChildSpec(name, Probe(journal, name, together, STEADY)) for name in "abc"]

    async with Supervisor(specs, strategy=Strategy.ONE_FOR_ALL, intensity=1):
        await trio.sleep(5)
        assert journal.running() == ["a", "b", "c"]

    assert [len(journal.times(name, "begun")) for name in "abc"] == [2, 2, 2]


async def test_temporary_siblings_do_not_come_back_with_their_group(clock: MockClock) -> None:
    journal = Journal()
    specs = [
        ChildSpec("a", Probe(journal, "a", CRASH, STEADY)),
        ChildSpec("b", Probe(journal, "b"), restart=Restart.TEMPORARY),
    ]

    async with Supervisor(specs, strategy=Strategy.ONE_FOR_ALL) as supervisor:
        await trio.sleep(5)
        states = {view.name: view.state for view in supervisor.children()}

    assert states == {"a": ChildState.RUNNING, "b": ChildState.ENDED}


async def test_back_off_doubles_and_is_reset_by_a_stable_period(clock: MockClock) -> None:
    journal = Journal()
    quick, stable = Script(run_s=1.0, crashes=True), Script(run_s=6.0, crashes=True)
    child = ChildSpec("a", Probe(journal, "a", quick, quick, stable, STEADY))

    async with Supervisor([child], intensity=9, period_s=5.0, chance=Half(), emit=journal.emit):
        await trio.sleep(20)

    delays = [event.restart_in_s for event in journal.events if isinstance(event, ChildCrashed)]
    assert delays == pytest.approx([0.075, 0.15, 0.075])
    assert journal.times("a", "begun") == pytest.approx([0.0, 1.075, 2.225, 8.3])


async def test_time_in_back_off_does_not_save_a_crashing_child(clock: MockClock) -> None:
    journal = Journal()
    child = ChildSpec("a", Probe(journal, "a", Script(run_s=0.1, crashes=True)))

    with pytest.raises(RestartsExhausted) as caught:
        async with Supervisor([child], intensity=8, period_s=5.0, chance=Half()):
            await trio.sleep_forever()

    assert isinstance(caught.value.__cause__, Boom)
    assert caught.value.child == "a"
    assert len(journal.times("a", "begun")) == 9
    assert trio.current_time() > 15, "the back-offs alone took longer than the period"


async def test_crashes_further_apart_than_the_period_never_escalate(clock: MockClock) -> None:
    journal = Journal()
    child = ChildSpec("a", Probe(journal, "a", Script(run_s=6.0, crashes=True)))

    async with Supervisor([child], intensity=1, period_s=5.0):
        await trio.sleep(600)

    assert len(journal.times("a", "begun")) == 99


async def test_a_child_set_aside_leaves_the_rest_running(clock: MockClock) -> None:
    journal = Journal()
    bad = Probe(journal, "bad", Script(run_s=0.1, crashes=True))
    specs = [
        ChildSpec("good", Probe(journal, "good")),
        ChildSpec("bad", bad, on_exhausted=OnExhausted.SET_ASIDE),
    ]

    async with Supervisor(specs, intensity=2, emit=journal.emit) as supervisor:
        await trio.sleep(30)
        views = {view.name: view for view in supervisor.children()}

    assert views["good"].state is ChildState.RUNNING
    assert views["good"].restarts == 0
    assert views["bad"].state is ChildState.SET_ASIDE
    assert views["bad"].restarts == 2
    assert isinstance(views["bad"].last_crash, Boom)
    assert [event.child for event in journal.events if isinstance(event, ChildSetAside)] == ["bad"]


async def test_setting_aside_counts_each_child_by_itself(clock: MockClock) -> None:
    journal = Journal()
    once = [Script(run_s=0.5, crashes=True), STEADY]
    specs = [
        ChildSpec(f"child {n}", Probe(journal, f"child {n}", *once), on_exhausted=OnExhausted.SET_ASIDE)
        for n in range(20)
    ]

    async with Supervisor(specs, intensity=1):
        await trio.sleep(5)
        assert len(journal.running()) == 20


async def test_a_group_member_that_is_set_aside_does_not_keep_the_others_down(clock: MockClock) -> None:
    journal = Journal()
    never_again = [STEADY, Script(run_s=0.0, crashes=True)]
    specs = [
        ChildSpec("a", Probe(journal, "a", CRASH, STEADY)),
        ChildSpec("b", Probe(journal, "b", *never_again), on_exhausted=OnExhausted.SET_ASIDE),
        ChildSpec("c", Probe(journal, "c")),
    ]

    async with Supervisor(specs, strategy=Strategy.REST_FOR_ONE, intensity=2) as supervisor:
        await trio.sleep(30)
        states = [view.state for view in supervisor.children()]

    assert states == [ChildState.RUNNING, ChildState.SET_ASIDE, ChildState.RUNNING]


async def test_an_escalation_is_a_crash_for_the_supervisor_above(clock: MockClock) -> None:
    journal = Journal()
    restless = [Script(run_s=0.1, crashes=True)] * 2
    below = Supervisor([ChildSpec("x", Probe(journal, "x", *restless, STEADY))], name="below", intensity=1)

    async with Supervisor([ChildSpec("below", below)], emit=journal.emit) as above:
        await trio.sleep(10)
        (view,) = above.children()

    assert view.restarts == 1
    assert isinstance(view.last_crash, RestartsExhausted)
    assert [child.state for child in view.children] == [ChildState.RUNNING]
    assert len(journal.times("x", "begun")) == 3


async def test_a_child_that_returns_again_and_again_escalates_too(clock: MockClock) -> None:
    journal = Journal()
    child = ChildSpec("a", Probe(journal, "a", Script(run_s=0.1)))

    with pytest.raises(RestartsExhausted):
        async with Supervisor([child], intensity=2):
            await trio.sleep_forever()

    assert len(journal.times("a", "begun")) == 3


async def test_a_leader_that_fails_to_come_back_is_waited_for_by_its_group(clock: MockClock) -> None:
    journal = Journal()
    specs = [
        ChildSpec("a", Probe(journal, "a", CRASH, Script(run_s=0.0, crashes=True), STEADY)),
        ChildSpec("b", Probe(journal, "b")),
    ]

    async with Supervisor(specs, strategy=Strategy.REST_FOR_ONE, intensity=5, chance=Half()):
        await trio.sleep(10)

    assert journal.times("a", "up") == pytest.approx([0.0, 1.225])
    assert journal.times("b", "up") == pytest.approx([0.0, 1.225])
    assert journal.order("up")[-2:] == ["a up", "b up"]


async def test_those_who_wait_for_a_leader_come_back_when_it_is_stopped_for_good(clock: MockClock) -> None:
    journal = Journal()
    specs = [ChildSpec("a", Probe(journal, "a", CRASH)), *(ChildSpec(name, Probe(journal, name)) for name in "bc")]

    async with Supervisor(specs, strategy=Strategy.ONE_FOR_ALL, chance=Half()) as supervisor:
        await trio.sleep(1.01)
        report = await supervisor.stop_child("a")
        await trio.sleep(1)
        states = {view.name: view.state for view in supervisor.children()}

    assert report.took_s == 0.0
    assert states == {"b": ChildState.RUNNING, "c": ChildState.RUNNING}


@pytest.mark.parametrize("restart", Restart)
async def test_a_sibling_that_ends_by_itself_during_a_group_restart_follows_its_own_type(
    clock: MockClock, restart: Restart
) -> None:
    journal = Journal()
    specs = [
        ChildSpec("a", Probe(journal, "a", CRASH, STEADY)),
        ChildSpec("b", Probe(journal, "b", Script(run_s=1.5), STEADY), restart=restart),
        ChildSpec("c", StoppableProbe(journal, "c", Script(stop_s=2.0))),
    ]

    async with Supervisor(specs, strategy=Strategy.ONE_FOR_ALL) as supervisor:
        await trio.sleep(10)
        states = [view.state for view in supervisor.children()]

    back = ChildState.RUNNING if restart is Restart.PERMANENT else ChildState.ENDED
    assert states == [ChildState.RUNNING, back, ChildState.RUNNING]


async def test_siblings_that_are_set_aside_by_themselves_do_not_slow_the_clock_of_the_others(clock: MockClock) -> None:
    journal = Journal()
    flapping = Script(run_s=4.0, crashes=True)
    specs = [ChildSpec("steady", Probe(journal, "steady", Script(run_s=40.0, crashes=True)))]
    specs += [
        ChildSpec(f"flappy {n}", Probe(journal, f"flappy {n}", flapping), on_exhausted=OnExhausted.SET_ASIDE)
        for n in range(3)
    ]

    async with Supervisor(specs, intensity=3, period_s=5.0):
        await trio.sleep(1000)

    assert len(journal.times("steady", "begun")) > 20


async def test_a_child_that_may_be_set_aside_does_not_stop_its_siblings_when_it_fails_at_first(
    clock: MockClock,
) -> None:
    journal = Journal()
    specs = [
        ChildSpec("a", Probe(journal, "a")),
        ChildSpec(
            "late", Probe(journal, "late", Script(run_s=0.0, crashes=True), STEADY), on_exhausted=OnExhausted.SET_ASIDE
        ),
        ChildSpec("b", Probe(journal, "b")),
    ]

    async with Supervisor(specs, strategy=Strategy.ONE_FOR_ALL) as supervisor:
        assert sorted(journal.running()) == ["a", "b"]
        await trio.sleep(5)
        assert {view.state for view in supervisor.children()} == {ChildState.RUNNING}

    assert len(journal.times("a", "begun")) == 1
