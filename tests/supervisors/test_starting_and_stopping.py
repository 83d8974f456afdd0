"""Start acknowledgements, graces, budgets, children that come and go, and what leaves the `async with`."""

from __future__ import annotations

from typing import Any

import outcome
import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.errors import RestartsExhausted, StartFailed
from cormorant.rules.events import ChildCrashed, ChildOverran
from supervisors import ChildSpec, ChildState, Ending, OnExhausted, Restart, Strategy, Supervisor
from tests.supervisors.probes import Boom, Journal, Probe, Script, StoppableProbe

NEVER_UP = Script(run_s=0.0, crashes=True)


async def test_each_child_waits_for_the_one_before_to_be_up(clock: MockClock) -> None:
    journal = Journal()
    specs = [ChildSpec(name, Probe(journal, name, Script(start_s=1.0))) for name in "abc"]

    async with Supervisor(specs):
        assert trio.current_time() == 3.0

    assert journal.times("b", "begun") == [1.0]
    assert journal.times("c", "begun") == [2.0]


async def test_children_are_stopped_in_reverse_each_within_its_grace(clock: MockClock) -> None:
    journal = Journal()
    specs = [ChildSpec(name, StoppableProbe(journal, name, Script(stop_s=1.0))) for name in "abc"]

    async with Supervisor(specs) as supervisor:
        report = await supervisor.stop()

    assert journal.order("over") == ["c over", "b over", "a over"]
    assert report.took_s == 3.0
    assert report.clean
    assert [(child.name, child.ending, child.took_s) for child in report.children] == [
        ("c", Ending.STOPPED, 1.0),
        ("b", Ending.STOPPED, 1.0),
        ("a", Ending.STOPPED, 1.0),
    ]


async def test_a_child_that_overruns_its_grace_is_cancelled_and_named(clock: MockClock) -> None:
    journal = Journal()
    specs = [
        ChildSpec("quick", StoppableProbe(journal, "quick")),
        ChildSpec("slow", StoppableProbe(journal, "slow", Script(stop_s=60.0)), grace_s=2.0),
    ]

    async with Supervisor(specs, emit=journal.emit) as supervisor:
        report = await supervisor.stop()

    assert report.took_s == 2.0
    assert report.forced == ("slow",)
    assert [event.child for event in journal.events if isinstance(event, ChildOverran)] == ["slow"]


async def test_the_total_budget_cuts_the_graces_that_are_left(clock: MockClock) -> None:
    journal = Journal()
    stubborn = Script(stop_s=60.0)
    specs = [ChildSpec(name, StoppableProbe(journal, name, stubborn), grace_s=2.0) for name in "abc"]
    supervisor = Supervisor(specs, stop_total_s=6.0)

    async with supervisor:
        for name in "xyz":
            late = ChildSpec(
                name, StoppableProbe(journal, name, Script(run_s=9.0, crashes=True, stop_s=60.0)), grace_s=0.0
            )
            await supervisor.start_child(late)
        await trio.sleep(8.5)
        with trio.move_on_after(1):  # a restart is under way when the stop comes
            await trio.sleep_forever()
        report = await supervisor.stop()

    assert report.took_s == 6.0
    assert report.forced[-3:] == ("c", "b", "a")
    assert journal.times("a", "over") == [trio.current_time()]


async def test_nested_graces_count_towards_the_supervisor_above(clock: MockClock) -> None:
    journal = Journal()
    stubborn = Script(stop_s=60.0)
    inner = [ChildSpec(name, StoppableProbe(journal, name, stubborn), grace_s=1.0) for name in "xyz"]
    below = Supervisor(inner, name="below", stop_total_s=3.0, emit=journal.emit)
    specs = [ChildSpec("a", StoppableProbe(journal, "a", stubborn), grace_s=2.0), ChildSpec("below", below)]

    async with Supervisor(specs, stop_total_s=5.0, emit=journal.emit) as supervisor:
        report = await supervisor.stop()

    assert report.took_s == 5.0
    assert report.forced == ("below/z", "below/y", "below/x", "a")


async def test_children_added_later_stop_together_before_the_others(clock: MockClock) -> None:
    journal = Journal()
    slow = Script(stop_s=2.0)

    async with Supervisor([ChildSpec("fixed", StoppableProbe(journal, "fixed"))]) as supervisor:
        for name in "xyz":
            await supervisor.start_child(ChildSpec(name, StoppableProbe(journal, name, slow)))
        report = await supervisor.stop()

    assert report.took_s == 2.0
    assert [child.name for child in report.children][-1] == "fixed"


async def test_budgets_that_cannot_be_kept_are_refused_at_construction() -> None:
    journal = Journal()
    child = ChildSpec("a", Probe(journal, "a"), grace_s=4.0)

    with pytest.raises(ValueError, match="add up to 8 s, more than its stop_total_s=7"):
        Supervisor([child, ChildSpec("b", Probe(journal, "b"), grace_s=4.0)], stop_total_s=7.0)
    with pytest.raises(ValueError, match="grace_s=1 is less than the stop_total_s=9"):
        ChildSpec("below", Supervisor([child]), grace_s=1.0)
    with pytest.raises(ValueError, match="two children are called a"):
        Supervisor([child, child])
    async with Supervisor([child], stop_total_s=4.0) as supervisor:
        with pytest.raises(ValueError, match="more than the 0 s left of stop_total_s"):
            await supervisor.start_child(ChildSpec("late", Probe(journal, "late"), grace_s=0.1))


async def test_an_async_stop_is_refused_because_nobody_would_await_it() -> None:
    class Wrong(Probe):
        async def stop(self) -> None: ...

    with pytest.raises(TypeError, match="stop\\(\\) must be a plain function"):
        ChildSpec("wrong", Wrong(Journal(), "wrong"))


async def test_a_child_that_fails_at_first_start_ends_those_before_it(clock: MockClock) -> None:
    journal = Journal()
    specs = [ChildSpec("a", Probe(journal, "a")), ChildSpec("b", Probe(journal, "b", NEVER_UP))]

    with pytest.raises(StartFailed) as caught:
        async with Supervisor(specs):
            pytest.fail("the body must not run")

    assert isinstance(caught.value.__cause__, Boom)
    assert journal.running() == []


async def test_a_child_that_would_be_set_aside_may_fail_at_first(clock: MockClock) -> None:
    journal = Journal()
    late = Probe(journal, "late", NEVER_UP, Script())

    async with Supervisor([ChildSpec("late", late, on_exhausted=OnExhausted.SET_ASIDE)]) as supervisor:
        await trio.sleep(1)
        (view,) = supervisor.children()

    assert (view.state, view.restarts) == (ChildState.RUNNING, 1)


async def test_a_start_that_is_never_acknowledged_times_out(clock: MockClock) -> None:
    journal = Journal()
    hanging = ChildSpec("a", Probe(journal, "a", Script(start_s=999.0)), start_timeout_s=5.0)

    with pytest.raises(StartFailed, match="not up within 5 s"):
        async with Supervisor([hanging]):
            pytest.fail("the body must not run")

    assert trio.current_time() == 5.0


async def test_returning_without_an_acknowledgement_is_a_failed_start(clock: MockClock) -> None:
    async def forgetful(*, task_status: trio.TaskStatus[Any]) -> None: ...

    with pytest.raises(StartFailed, match="without calling task_status.started"):
        async with Supervisor([ChildSpec("forgetful", forgetful)]):
            pytest.fail("the body must not run")


async def test_a_stop_interrupts_a_pending_start(clock: MockClock) -> None:
    journal = Journal()
    slow = ChildSpec("slow", StoppableProbe(journal, "slow", Script(start_s=25.0)), grace_s=1.0)

    async with Supervisor([ChildSpec("a", Probe(journal, "a"))]) as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(_expect_start_failed, supervisor, slow)
        await trio.sleep(3)
        report = await supervisor.stop()

    assert trio.current_time() == 3.0
    assert [child.name for child in report.children] == ["slow", "a"]


async def _expect_start_failed(supervisor: Supervisor, spec: ChildSpec) -> None:
    with pytest.raises(StartFailed, match="stopping"):
        await supervisor.start_child(spec)


async def test_a_child_that_crashes_while_the_others_are_stopped_is_reported(clock: MockClock) -> None:
    journal = Journal()
    specs = [
        ChildSpec("sore", StoppableProbe(journal, "sore", Script(run_s=2.0, crashes=True))),
        ChildSpec("slow", StoppableProbe(journal, "slow", Script(stop_s=3.0))),
    ]

    async with Supervisor(specs, emit=journal.emit) as supervisor:
        report = await supervisor.stop()

    assert report.forced == ("sore",)
    assert [event.child for event in journal.events if isinstance(event, ChildCrashed)] == ["sore"]


async def test_an_added_child_that_does_not_come_up_is_forgotten(clock: MockClock) -> None:
    journal = Journal()

    async with Supervisor() as supervisor:
        with pytest.raises(StartFailed, match="Boom|bad") as caught:
            await supervisor.start_child(ChildSpec("bad", Probe(journal, "bad", NEVER_UP)))
        assert isinstance(caught.value.__cause__, Boom)
        assert supervisor.children() == ()


async def test_a_cancelled_start_child_leaves_no_child_behind(clock: MockClock) -> None:
    journal = Journal()
    slow = ChildSpec("slow", Probe(journal, "slow", Script(start_s=10.0)))

    async with Supervisor() as supervisor:
        with trio.move_on_after(5):
            await supervisor.start_child(slow)
        await trio.sleep(10)
        assert journal.running() == []
        assert supervisor.children() == ()


async def test_names_are_free_again_after_stop_child_and_taken_before(clock: MockClock) -> None:
    journal = Journal()

    async with Supervisor() as supervisor:
        await supervisor.start_child(ChildSpec("a", Probe(journal, "a")))
        with pytest.raises(StartFailed, match="there already"):
            await supervisor.start_child(ChildSpec("a", Probe(journal, "a")))
        await supervisor.stop_child("a")
        with pytest.raises(StartFailed, match="no child of that name"):
            await supervisor.stop_child("a")
        await supervisor.start_child(ChildSpec("a", Probe(journal, "a")))

    assert len(journal.times("a", "up")) == 2


async def test_a_temporary_child_that_ended_is_not_kept(clock: MockClock) -> None:
    journal = Journal()
    brief = ChildSpec("brief", Probe(journal, "brief", Script(run_s=1.0)), restart=Restart.TEMPORARY)

    async with Supervisor() as supervisor:
        await supervisor.start_child(brief)
        await trio.sleep(2)
        assert supervisor.children() == ()


async def test_the_bodys_own_error_leaves_unwrapped(clock: MockClock) -> None:
    journal = Journal()

    with pytest.raises(Boom, match="the body"):
        async with Supervisor([ChildSpec("a", Probe(journal, "a"))]) as supervisor:
            raise Boom("the body")

    assert supervisor.report is not None
    assert journal.running() == []


async def test_the_trees_failure_leaves_as_itself_and_cancels_the_body(clock: MockClock) -> None:
    journal = Journal()
    bad = ChildSpec("bad", Probe(journal, "bad", Script(run_s=1.0, crashes=True)))

    with pytest.raises(RestartsExhausted):
        async with Supervisor([bad], intensity=0), trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)

    assert trio.current_time() == 1.0


async def test_both_errors_leave_as_a_group(clock: MockClock) -> None:
    journal = Journal()
    bad = ChildSpec("bad", Probe(journal, "bad", Script(run_s=1.0, crashes=True)))

    with pytest.RaisesGroup(Boom, RestartsExhausted):
        async with Supervisor([bad], intensity=0):
            try:
                await trio.sleep_forever()
            finally:
                raise Boom("the body")


async def test_a_child_that_raises_while_being_cancelled_is_reported_as_crashed(clock: MockClock) -> None:
    async def sore(*, task_status: trio.TaskStatus[Any]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("sore")

    async with Supervisor([ChildSpec("sore", sore)]) as supervisor:
        report = await supervisor.stop()

    (child,) = report.children
    assert child.ending is Ending.CRASHED
    assert isinstance(child.error, ExceptionGroup)
    assert report.forced == ("sore",)


async def test_ctrl_c_inside_a_child_stops_everything_in_order_and_goes_on_up(clock: MockClock) -> None:
    journal = Journal()

    async def interrupted(*, task_status: trio.TaskStatus[Any]) -> None:
        task_status.started()
        await trio.sleep(1)
        raise KeyboardInterrupt

    specs = [ChildSpec("a", StoppableProbe(journal, "a", Script(stop_s=1.0))), ChildSpec("b", interrupted)]
    with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True):
        async with Supervisor(specs):
            await trio.sleep_forever()

    assert journal.order("asked", "over") == ["a asked", "a over"]


async def test_outer_cancellation_becomes_an_ordered_stop_within_the_total(clock: MockClock) -> None:
    journal = Journal()
    specs = [ChildSpec(name, StoppableProbe(journal, name, Script(stop_s=1.0))) for name in "abc"]

    with trio.move_on_after(10) as scope:
        async with Supervisor(specs) as supervisor:
            await trio.sleep_forever()

    assert scope.cancelled_caught
    assert trio.current_time() == 13.0
    assert journal.order("over") == ["c over", "b over", "a over"]
    assert supervisor.report is not None
    assert supervisor.report.clean


async def test_a_supervisor_started_in_a_nursery_stops_in_order_when_cancelled(clock: MockClock) -> None:
    journal = Journal()
    specs = [ChildSpec(name, StoppableProbe(journal, name, Script(stop_s=1.0))) for name in "ab"]
    supervisor = Supervisor(specs, strategy=Strategy.ONE_FOR_ALL)

    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor)
        nursery.cancel_scope.cancel()

    assert journal.order("over") == ["b over", "a over"]
    assert trio.current_time() == 2.0


async def test_calls_after_the_end_say_that_it_is_not_running(clock: MockClock) -> None:
    async with Supervisor(name="tickers") as supervisor:
        pass

    with pytest.raises(StartFailed, match="tickers is not running"):
        await supervisor.stop_child("a")
    assert (await supervisor.stop()).clean


async def test_a_listener_that_raises_does_not_leave_children_behind(clock: MockClock) -> None:
    journal = Journal()

    def raising(event: object) -> None:
        raise Boom("the listener")

    with pytest.RaisesGroup(Boom, flatten_subgroups=True):
        async with Supervisor([ChildSpec("a", StoppableProbe(journal, "a"))], emit=raising):
            await trio.sleep_forever()

    assert journal.running() == []


async def test_a_start_acknowledged_after_its_time_is_a_failed_start(clock: MockClock) -> None:
    async def late(*, task_status: trio.TaskStatus[Any]) -> None:
        with trio.CancelScope(shield=True):  # as a thread would
            await trio.sleep(10)
        task_status.started()
        await trio.sleep_forever()

    with pytest.raises(StartFailed, match="not up within 5 s"):
        async with Supervisor([ChildSpec("late", late, start_timeout_s=5.0)]):
            pytest.fail("the body must not run")


async def test_a_command_in_hand_when_its_supervisor_is_cancelled_is_refused(clock: MockClock) -> None:
    journal = Journal()
    supervisor = Supervisor()
    slow = ChildSpec("slow", Probe(journal, "slow", Script(start_s=20.0)))

    async with trio.open_nursery() as callers, trio.open_nursery() as nursery:
        await nursery.start(supervisor)
        callers.start_soon(_expect_start_failed, supervisor, slow)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    assert journal.running() == []


async def test_an_end_in_the_same_tick_as_the_stop_is_reported(clock: MockClock) -> None:
    for _ in range(20):  # trio runs the tasks of a tick in either order
        journal = Journal()
        async with Supervisor(emit=journal.emit) as supervisor, trio.open_nursery() as nursery:
            doomed = ChildSpec("doomed", Probe(journal, "doomed", Script(start_s=1.0, run_s=0.0, crashes=True)))
            nursery.start_soon(_start_and_ignore, supervisor, doomed)
            await trio.sleep(1.0)
            await supervisor.stop()
        assert [event.child for event in journal.events if isinstance(event, ChildCrashed)] == ["doomed"]


async def _start_and_ignore(supervisor: Supervisor, spec: ChildSpec) -> None:
    with pytest.raises(StartFailed):
        await supervisor.start_child(spec)


async def test_a_cancelled_start_child_never_leaves_a_child_its_caller_does_not_know_of(clock: MockClock) -> None:
    for _ in range(20):
        journal, told = Journal(), False
        async with Supervisor() as supervisor:
            with trio.move_on_after(1.0):
                await supervisor.start_child(ChildSpec("x", Probe(journal, "x", Script(start_s=1.0))))
                told = True
            await trio.sleep(1)
            assert journal.running() == (["x"] if told else [])


async def test_ctrl_c_during_start_or_stop_still_ends_the_tree_in_order(clock: MockClock) -> None:
    for delay_s in (0.5, 2.5):
        journal = Journal()
        with pytest.RaisesGroup(KeyboardInterrupt, allow_unwrapped=True, flatten_subgroups=True):
            await _press_ctrl_c(journal, after_s=delay_s)
        assert journal.running() == []


async def _press_ctrl_c(journal: Journal, *, after_s: float) -> None:
    task = trio.lowlevel.current_task()
    specs = [ChildSpec("a", StoppableProbe(journal, "a", Script(start_s=1.0, stop_s=1.0)))]

    async def press() -> None:
        await trio.sleep(after_s)
        trio.lowlevel.reschedule(task, outcome.Error(KeyboardInterrupt()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(press)
        async with Supervisor(specs):
            await trio.sleep(1)


async def test_a_supervisor_is_entered_once(clock: MockClock) -> None:
    supervisor = Supervisor()
    async with supervisor:
        pass

    with pytest.raises(RuntimeError, match="entered once"):
        async with supervisor:
            pytest.fail("the body must not run")


async def test_a_childs_own_methods_are_its_own_business(clock: MockClock) -> None:
    class Reporter(StoppableProbe):
        def report(self) -> str:
            return "mine"

        def children(self) -> str:
            return "two"

    async with Supervisor([ChildSpec("reporter", Reporter(Journal(), "reporter"))]) as supervisor:
        (view,) = supervisor.children()
        report = await supervisor.stop()

    assert view.children == ()
    assert report.clean


async def test_outer_cancellation_while_the_tree_fails_leaves_the_failure_as_itself(clock: MockClock) -> None:
    journal = Journal()
    specs = [
        ChildSpec("slow", StoppableProbe(journal, "slow", Script(stop_s=3.0))),
        ChildSpec("bad", Probe(journal, "bad", Script(run_s=1.0, crashes=True))),
    ]

    async def body() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1.5)
        await trio.sleep_forever()

    with pytest.raises(RestartsExhausted), trio.move_on_after(2):
        async with Supervisor(specs, intensity=0):
            await body()

    assert journal.running() == []
