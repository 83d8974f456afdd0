"""Jobs are claimed, run, settled, retried and given back, at exact times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from actors.jobs.handler import Handler, JobContext
from cormorant.rules.errors import HandlerMisbehaved, PayloadRefused, UnknownLabel
from cormorant.rules.events import ItemFailed
from cormorant.rules.jobs.events import (
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobReleased,
    JobResultDropped,
    JobRetried,
    JobReturnedValue,
    JobSnoozed,
    JobStarted,
)
from cormorant.rules.jobs.states import JobState
from cormorant.rules.jobs.verdicts import Cancel, Fail, Retry, Snooze
from tests.actors.working import Handled, Workplace, states, workplace


@pytest.fixture
def place() -> Iterator[Workplace]:
    with workplace(is_shared=True) as made:
        yield made


async def test_a_job_runs_at_once_and_its_context_says_what_was_enqueued(clock: MockClock, place: Workplace) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {"artist": "Boards of Canada"}, correlation_id="abc")
        await trio.sleep(1)
        view = await service.jobs.show(job_id)

    assert work.runs == [0.0]
    assert work.contexts[0].payload == {"artist": "Boards of Canada"}
    assert (work.contexts[0].attempt, work.contexts[0].correlation_id) == (1, "abc")
    assert view.state is JobState.SUCCEEDED
    assert [event.correlation_id for event in place.events.of(JobCompleted)] == ["abc"]


async def test_a_delayed_job_runs_exactly_when_it_is_due(clock: MockClock, place: Workplace) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await service.enqueue("work", {}, delay_s=123.0)
        await service.enqueue("work", {}, delay_s=7.5)
        await trio.sleep(200)

    assert work.runs == [7.5, 123.0]


async def test_urgent_jobs_go_first_and_equals_in_the_order_they_came(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=1.0)

    async with place.service({"work": work}, concurrency=1) as service:
        await trio.sleep(1)
        for label in ("normal", "low", "high", "normal", "high"):
            await service.enqueue("work", label, priority=label)
            await trio.sleep(0.01)
        await trio.sleep(10)

    first, *rest = [context.payload for context in work.contexts]
    assert first == "normal", "it was alone when it came"
    assert rest == ["high", "high", "normal", "low"]


async def test_no_more_handlers_run_than_allowed(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=2.0)

    async with place.service({"work": work}, concurrency=3) as service:
        for _ in range(7):
            await service.enqueue("work", {})
        await trio.sleep(10)

    assert work.runs == [0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 4.0]


async def test_what_no_worker_is_free_for_is_left_to_others(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=60.0)

    async with place.service({"work": work}, concurrency=2) as service:
        for _ in range(5):
            await service.enqueue("work", {})
        await trio.sleep(1)
        now = await service.transaction(states)

    assert sorted(now.values()) == ["pending", "pending", "pending", "running", "running"]


@pytest.mark.slow("a simulated day of looking for jobs")
async def test_failed_attempts_come_back_after_five_minutes_doubling(clock: MockClock, place: Workplace) -> None:
    work = Handled(raises=[ValueError("1"), ValueError("2"), ValueError("3")])

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(10_000)
        view = await service.jobs.show(job_id)

    assert work.runs == [0.0, 300.0, 900.0, 2100.0]
    assert [context.attempt for context in work.contexts] == [1, 2, 3, 4]
    assert [event.retry_in_s for event in place.events.of(JobRetried)] == [300.0, 600.0, 1200.0]
    assert view.state is JobState.SUCCEEDED
    assert [entry["error"] for entry in view.last_errors] == ["ValueError: 1", "ValueError: 2", "ValueError: 3"]


async def test_an_unexpected_exception_of_a_handler_is_told_with_its_traceback(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled(raises=[KeyError("albums"), Retry("later"), Snooze(5)])

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(2_000)

    [failed] = place.events.of(ItemFailed)
    assert (failed.kind, failed.item, failed.error) == ("job", f"work {job_id}", "KeyError: 'albums'")
    assert "Traceback" in failed.traceback


async def test_after_the_last_attempt_a_job_is_a_dead_letter_and_can_be_revived(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled(raises=[ValueError("1"), ValueError("2")])

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {}, max_attempts=2)
        await trio.sleep(1_000)
        dead = await service.jobs.show(job_id)
        await service.jobs.revive(job_id)
        await trio.sleep(1)
        alive = await service.jobs.show(job_id)

    assert (dead.state, dead.attempts) == (JobState.FAILED, 2)
    assert len(place.events.of(JobFailed)) == 1
    assert (alive.state, alive.attempts) == (JobState.SUCCEEDED, 0)


async def test_a_handler_says_by_raising_how_its_job_goes_on(clock: MockClock, place: Workplace) -> None:
    snoozing = Handled(raises=[Snooze(40)])
    retrying = Handled(raises=[Retry("not yet", delay_s=10)])
    failing = Handled(raises=[Fail("never")])
    cancelling = Handled(raises=[Cancel("not wanted")])
    handlers = {"snooze": snoozing, "retry": retrying, "fail": failing, "cancel": cancelling}

    async with place.service({**handlers}) as service:
        for kind in handlers:
            await service.enqueue(kind, {})
        await trio.sleep(100)
        ended = await service.transaction(states)

    assert snoozing.runs == [0.0, 40.0]
    assert [context.attempt for context in snoozing.contexts] == [1, 1], "a snooze uses no attempt"
    assert retrying.runs == [0.0, 10.0]
    assert [context.attempt for context in retrying.contexts] == [1, 2]
    assert list(ended.values()) == ["succeeded", "succeeded", "failed", "cancelled"]
    assert len(place.events.of(JobSnoozed)) == 1
    assert len(place.events.of(JobCancelled)) == 1


async def test_a_handler_that_takes_too_long_is_cancelled_and_tried_again(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=3600.0)

    async with place.service({"work": Handler(work, timeout_s=20.0)}) as service:
        await service.enqueue("work", {})
        await trio.sleep(30)
        await trio.sleep(300)

    assert work.runs == [0.0, 320.0]
    assert "did not finish within 20 s" in place.events.of(JobRetried)[0].error


async def test_a_handler_in_trouble_does_not_hold_up_the_others(clock: MockClock, place: Workplace) -> None:
    def plain(context: JobContext) -> None: ...

    async def forgetful(context: JobContext) -> object:
        return trio.sleep(1)  # noqa: ASYNC105 - forgotten on purpose

    async def talkative(context: JobContext) -> object:
        return "done"

    good = Handled()
    odd = {"plain": plain, "forgetful": forgetful, "talkative": talkative, "good": good}
    async with place.service(odd) as service:  # type: ignore[arg-type]  # being wrong is the point
        for kind in odd:
            await service.enqueue(kind, {})
        await trio.sleep(1)
        ended = await service.transaction(states)

    assert list(ended.values()) == ["failed", "failed", "succeeded", "succeeded"]
    assert [event.kind for event in place.events.of(JobReturnedValue)] == ["talkative"]
    assert all("HandlerMisbehaved" in event.error for event in place.events.of(JobFailed))


async def test_enqueueing_a_running_key_runs_it_once_more_with_the_new_payload(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled(takes_s=10.0)

    async with place.service({"work": work}) as service:
        first = await service.enqueue("work", 1, dedupe_key="k")
        await trio.sleep(5)
        assert await service.enqueue("work", 2, dedupe_key="k") == first
        assert await service.enqueue("work", 3, dedupe_key="k") == first
        await trio.sleep(60)

    assert [context.payload for context in work.contexts] == [1, 3]
    assert work.runs == [0.0, 10.0]


async def test_a_cancelled_job_stops_at_once_and_its_result_counts_no_more(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=100.0)

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(5)
        await service.jobs.cancel(job_id)
        await trio.sleep(1)
        view = await service.jobs.show(job_id)
        again = await service.enqueue("work", {})
        await trio.sleep(1)

    assert view.state is JobState.CANCELLED
    assert again != job_id
    assert place.events.of(JobRetried) == []


async def test_a_job_cancelled_elsewhere_is_stopped_at_the_next_heartbeat(clock: MockClock, place: Workplace) -> None:
    stopped: list[float] = []

    async def work(context: JobContext) -> None:
        try:
            await trio.sleep(1000)
        finally:
            stopped.append(trio.current_time())

    async with place.service({"work": work}, heartbeat_s=20.0) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(5)
        from storage.jobs import jobs  # noqa: PLC0415 - as another process would

        await service.transaction(jobs.cancel, job_id, now=place.clock.now())
        await trio.sleep(60)

    assert stopped == [20.0]
    assert place.events.of(JobRetried) == []
    assert [(event.job_id, event.why) for event in place.events.of(JobCancelled)] == [(job_id, "from outside")]


async def test_a_restart_loses_no_job_and_counts_no_attempt(clock: MockClock, place: Workplace) -> None:
    slow, quick = Handled(takes_s=1000.0), Handled()

    async with place.service({"work": slow}, grace_s=5.0) as first:
        job_id = await first.enqueue("work", {})
        await trio.sleep(10)
    async with place.service({"work": quick}) as second:
        await trio.sleep(1)
        view = await second.jobs.show(job_id)

    assert slow.runs == [0.0]
    assert quick.runs == [15.0], "at once when the second service came up"
    assert quick.contexts[0].attempt == 1
    assert view.state is JobState.SUCCEEDED
    assert len(place.events.of(JobReleased)) == 1


async def test_a_handler_that_finishes_within_the_grace_is_settled(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=12.0)

    async with place.service({"work": work}, grace_s=5.0) as service:
        await service.enqueue("work", {})
        await trio.sleep(10)

    assert len(place.events.of(JobCompleted)) == 1
    assert service.report is not None
    assert service.report.clean
    assert trio.current_time() == 12.0


async def test_an_outage_keeps_results_until_the_database_is_back(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=5.0)

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(1)
        place.gateway.go_away()
        await trio.sleep(100)
        place.gateway.come_back()
        await trio.sleep(30)
        view = await service.jobs.show(job_id)

    assert view.state is JobState.SUCCEEDED
    assert work.runs == [0.0]
    assert place.events.of(JobResultDropped) == []


async def test_only_known_kinds_are_claimed(clock: MockClock, place: Workplace) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        unknown = await service.enqueue("tomorrow", {})
        await service.enqueue("work", {})
        await trio.sleep(100)
        view = await service.jobs.show(unknown)

    assert view.state is JobState.PENDING
    assert view.attempts == 0
    assert len(work.runs) == 1


async def test_a_paused_kind_waits_and_goes_on_also_after_a_restart(clock: MockClock, place: Workplace) -> None:
    work, other = Handled(), Handled()

    async with place.service({"work": work, "other": other}) as service:
        await service.jobs.pause_kind("work")
        await service.enqueue("work", {})
        await service.enqueue("other", {})
        await trio.sleep(10)
    async with place.service({"work": work, "other": other}) as service:
        await trio.sleep(10)
        assert work.runs == []
        assert await service.jobs.resume_kind("work") == 1
        await trio.sleep(10)

    assert work.runs == [20.0]
    assert other.runs == [0.0]


async def test_a_pause_of_everything_survives_a_restart(clock: MockClock, place: Workplace) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await service.pause()
        await service.enqueue("work", {})
        await trio.sleep(50)
    async with place.service({"work": work}) as service:
        await trio.sleep(50)
        assert work.runs == []
        await service.resume()
        await trio.sleep(1)

    assert work.runs == [100.0]


async def test_passing_work_runs_when_its_delay_is_over_and_is_not_tried_again(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled(raises=[None, ValueError("once")])

    async with place.service({"work": work}) as service:
        await service.jobs.run_ephemeral("work", "now")
        await service.jobs.run_ephemeral("work", "later", delay_s=30.0)
        await trio.sleep(1000)
        assert await service.transaction(states) == {}

    assert work.runs == [0.0, 30.0]
    assert [event.job_id for event in place.events.of(JobFailed)] == [None]


async def test_what_cannot_be_enqueued_says_why_and_leaves_nothing(clock: MockClock, place: Workplace) -> None:
    async with place.service({}) as service:
        with pytest.raises(UnknownLabel, match="use one of high, normal, low"):
            await service.enqueue("work", {}, priority="urgent")
        with pytest.raises(PayloadRefused, match="cannot be kept as JSON"):
            await service.enqueue("work", {"x": object()})
        with pytest.raises(PayloadRefused, match="more than 1,000,000"):
            await service.enqueue("work", "x" * 1_000_000)
        with pytest.raises(PayloadRefused, match="NUL"):
            await service.enqueue("work", {"name": "a\0b"})
        with pytest.raises(ValueError, match="give 0 or more"):
            await service.enqueue("work", {}, delay_s=-1.0)
        with pytest.raises(ValueError, match="give 1 or more"):
            await service.enqueue("work", {}, max_attempts=0)
        assert await service.transaction(states) == {}


async def test_a_handler_that_is_not_callable_is_refused_at_once(place: Workplace) -> None:
    with pytest.raises(HandlerMisbehaved, match="the handler of work is str"):
        place.service({"work": "not a function"})  # type: ignore[dict-item]  # being wrong is the point


async def test_every_event_of_a_job_carries_its_correlation_id(clock: MockClock, place: Workplace) -> None:
    work = Handled(raises=[ValueError("1"), Snooze(5), Fail("never")])

    async with place.service({"work": work}) as service:
        await service.enqueue("work", {}, correlation_id="trace me")
        await trio.sleep(1000)

    told = [place.events.of(kind) for kind in (JobStarted, JobRetried, JobSnoozed, JobFailed)]
    assert [len(events) for events in told] == [3, 1, 1, 1]
    assert {event.correlation_id for events in told for event in events} == {"trace me"}
