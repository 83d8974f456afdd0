"""The in-memory queue: the ready by priority, the delayed by time, and a limit on both together."""

from __future__ import annotations

import math
import tracemalloc

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from actors.jobs.queue import JobQueue, QueueItem, QueueSnapshot
from cormorant.rules.errors import QueueFull, QueueShutDown, UnknownLabel
from cormorant.rules.events import Event
from cormorant.rules.jobs.events import QueueDeep
from storage.jobs.jobs import ClaimedJob

LABELS = ("high", "normal", "low")


def drain(queue: JobQueue[str], *, now: float) -> list[str]:
    """Everything that is ready, in the order in which it is taken."""
    taken = []
    while (item := queue.take(now=now)) is not None:
        taken.append(item.job)
    return taken


def test_the_ready_are_taken_by_priority_and_then_as_they_came() -> None:
    queue: JobQueue[str] = JobQueue()
    for job, label in (("c", "low"), ("b1", "normal"), ("a1", "high"), ("b2", "normal"), ("a2", "high")):
        queue.put(job, label=label, now=0)

    assert drain(queue, now=0) == ["a1", "a2", "b1", "b2", "c"]


def test_an_item_carries_its_place() -> None:
    queue: JobQueue[str] = JobQueue()

    queue.put("first", label="low", now=1)
    item = queue.put("second", label="high", now=2, delay_s=30)

    assert item == QueueItem("second", "high", 0, 2, 32, 2)


def test_an_urgent_item_of_the_future_does_not_hold_up_one_that_is_ready() -> None:
    queue: JobQueue[str] = JobQueue()
    queue.put("urgent, later", label="high", now=0, delay_s=30)
    queue.put("low, now", label="low", now=0)

    assert drain(queue, now=29.999) == ["low, now"]
    assert queue.next_ready_at() == 30
    assert drain(queue, now=30) == ["urgent, later"]


def test_a_delayed_item_is_ordered_by_when_it_became_ready() -> None:
    queue: JobQueue[str] = JobQueue()
    queue.put("ready at 10", label="normal", now=0, delay_s=10)
    queue.put("ready at 5", label="normal", now=0, delay_s=5)
    queue.put("ready at 7", label="normal", now=7)
    queue.put("ready at 10 too", label="normal", now=10)

    taken = drain(queue, now=10)

    assert taken == ["ready at 5", "ready at 7", "ready at 10", "ready at 10 too"]


def test_those_that_become_ready_together_are_taken_by_priority_and_then_as_they_came() -> None:
    queue: JobQueue[str] = JobQueue()
    for job, label in (("n1", "normal"), ("n2", "normal"), ("h", "high"), ("n3", "normal")):
        queue.put(job, label=label, now=0, delay_s=5)

    assert drain(queue, now=60) == ["h", "n1", "n2", "n3"]


def test_a_claimed_job_has_its_own_priority() -> None:
    queue: JobQueue[str] = JobQueue()
    queue.put("normal", label="normal", now=0)
    queue.put_claimed("seven", priority=7, now=0)
    queue.put_claimed("three", priority=3, now=0)

    assert drain(queue, now=0) == ["three", "normal", "seven"]


def test_jobs_that_cannot_be_compared_are_no_trouble() -> None:
    queue: JobQueue[dict[str, int]] = JobQueue()
    for number in range(20):
        queue.put({"number": number}, label="normal", now=0, delay_s=number % 2)

    assert [job["number"] for job in queue.jobs()] == [*range(0, 20, 2), *range(1, 20, 2)]


@pytest.mark.parametrize("delay_s", [-1, -1e-9, math.inf, -math.inf, math.nan])
def test_a_delay_that_is_none_is_refused_and_changes_nothing(delay_s: float) -> None:
    queue: JobQueue[str] = JobQueue()

    with pytest.raises(ValueError, match="delay"):
        queue.put("job", label="normal", now=0, delay_s=delay_s)

    assert len(queue) == 0


def test_an_unknown_label_is_refused_and_the_known_ones_are_named() -> None:
    queue: JobQueue[str] = JobQueue()

    with pytest.raises(UnknownLabel, match="high, normal, low") as refused:
        queue.put("job", label="urgent", now=0)

    assert refused.value.label == "urgent"
    assert len(queue) == 0


def test_labels_can_be_chosen() -> None:
    queue: JobQueue[str] = JobQueue(priorities={"later": 9, "now": -1})
    queue.put("later", label="later", now=0)
    queue.put("now", label="now", now=0)

    assert drain(queue, now=0) == ["now", "later"]


def test_the_limit_counts_ready_and_delayed_and_one_past_it_is_refused() -> None:
    queue: JobQueue[str] = JobQueue(max_in_memory=3)
    queue.put("a", label="normal", now=0)
    queue.put("b", label="normal", now=0, delay_s=60)
    queue.put("c", label="normal", now=0)

    with pytest.raises(QueueFull) as refused:
        queue.put("d", label="high", now=0)

    assert refused.value.capacity == 3
    queue.take(now=0)
    queue.put("e", label="high", now=0)
    assert len(queue) == 3


def test_delayed_work_that_fills_the_queue_does_not_keep_claimed_jobs_out() -> None:
    queue: JobQueue[str] = JobQueue(max_in_memory=2)
    queue.put("a", label="normal", now=0, delay_s=60)
    queue.put("b", label="normal", now=0, delay_s=60)

    queue.put_claimed("claimed: the claim was bounded, and it is ours already", priority=5, now=0)

    assert queue.snapshot() == QueueSnapshot(depth=3, ready=1, scheduled=2, shutdown=False)


def test_a_deep_queue_says_so_once_and_again_only_after_it_was_half_empty() -> None:
    heard: list[Event] = []
    queue: JobQueue[str] = JobQueue(warn_depth=4, emit=heard.append)

    for number in range(6):
        queue.put(str(number), label="normal", now=0)
    for _ in range(3):
        queue.take(now=0)
    queue.put("4 of 4 again", label="normal", now=0)
    assert heard == [QueueDeep(depth=4, warn_depth=4)]

    drain(queue, now=0)
    for number in range(4):
        queue.put(str(number), label="normal", now=0)
    assert heard == [QueueDeep(depth=4, warn_depth=4)] * 2


def test_after_a_purge_a_deep_queue_says_so_again() -> None:
    heard: list[Event] = []
    queue: JobQueue[str] = JobQueue(warn_depth=1, emit=heard.append)
    queue.put("a", label="normal", now=0)

    queue.purge()
    queue.put("b", label="normal", now=0)

    assert len(heard) == 2


def test_a_queue_that_is_shut_down_takes_nothing_in_and_gives_out_what_it_has() -> None:
    queue: JobQueue[str] = JobQueue()
    queue.put("a", label="normal", now=0)
    queue.put("b", label="normal", now=0, delay_s=5)

    queue.shut_down()

    with pytest.raises(QueueShutDown):
        queue.put("c", label="normal", now=0)
    with pytest.raises(QueueShutDown):
        queue.put_claimed("d", priority=5, now=0)
    assert drain(queue, now=5) == ["a", "b"]


def test_a_snapshot_tells_how_many_are_ready_and_how_many_wait() -> None:
    queue: JobQueue[str] = JobQueue()
    queue.put("a", label="normal", now=0)
    queue.put("b", label="normal", now=0, delay_s=5)
    queue.put("c", label="normal", now=0, delay_s=9)

    assert queue.snapshot() == QueueSnapshot(depth=3, ready=1, scheduled=2, shutdown=False)
    assert queue.promote(5) == 2
    queue.shut_down()
    assert queue.snapshot() == QueueSnapshot(depth=3, ready=2, scheduled=1, shutdown=True)


def test_a_purge_empties_both_heaps_and_returns_what_was_in_them_in_order() -> None:
    queue: JobQueue[str] = JobQueue()
    queue.put("later", label="high", now=0, delay_s=5)
    queue.put("second", label="low", now=0)
    queue.put("first", label="normal", now=0)

    purged = queue.purge()

    assert purged == ["first", "second", "later"]
    assert queue.snapshot().depth == 0
    assert queue.next_ready_at() == math.inf


def test_a_purge_of_some_leaves_the_others_in_their_places() -> None:
    queue: JobQueue[str] = JobQueue()
    for number, label in enumerate(("low", "high", "normal", "high")):
        queue.put(f"{label} {number}", label=label, now=number)
    queue.put("drop later", label="high", now=4, delay_s=1)
    queue.put("later", label="high", now=4, delay_s=5)
    queue.shut_down()

    purged = queue.purge(lambda job: job in {"high 1", "drop later", "unknown"})

    assert purged == ["high 1", "drop later"]
    assert queue.next_ready_at() == 9
    assert queue.jobs() == ["high 3", "normal 2", "low 0", "later"]
    taken = [queue.take(now=4) for _ in range(4)]
    assert [item and item.job for item in taken] == ["high 3", "normal 2", "low 0", None]


def test_an_empty_queue_gives_nothing() -> None:
    queue: JobQueue[str] = JobQueue()

    assert queue.take(now=0) is None
    assert queue.next_ready_at() == math.inf


@define
class NaiveQueue:
    """The same in a plain list that is searched every time."""

    items: list[tuple[int, float, int, int]] = field(factory=list)

    def take(self, now: float) -> int | None:
        ready = sorted(item for item in self.items if item[1] <= now)
        if not ready:
            return None
        self.items.remove(ready[0])
        return ready[0][-1]


steps = st.lists(
    st.tuples(st.floats(0, 5), st.sampled_from([*LABELS, "take", "take"]), st.sampled_from([0.0, 0.0, 0.5, 3.0, 10.0])),
    max_size=60,
)


@pytest.mark.slow("a hundred histories of up to sixty steps")
@given(steps)
def test_two_heaps_give_out_what_a_naive_list_does(steps: list[tuple[float, str, float]]) -> None:
    queue: JobQueue[int] = JobQueue()
    naive = NaiveQueue()
    now = 0.0

    for number, (pause_s, word, delay_s) in enumerate(steps):
        now += pause_s
        if word == "take":
            item = queue.take(now=now)
            assert (item and item.job) == naive.take(now)
        else:
            queue.put(number, label=word, now=now, delay_s=delay_s)
            naive.items.append((queue.priorities[word], now + delay_s, number, number))

        waiting = [item for item in naive.items if item[1] > now]
        queue.promote(now)
        assert queue.snapshot() == QueueSnapshot(
            depth=len(naive.items), ready=len(naive.items) - len(waiting), scheduled=len(waiting), shutdown=False
        )
        assert queue.next_ready_at() == min((item[1] for item in waiting), default=math.inf)


@pytest.mark.slow("makes a hundred thousand jobs while every allocation is counted")
def test_a_hundred_thousand_queued_jobs_take_less_than_200_mb() -> None:
    count = 100_000
    queue: JobQueue[ClaimedJob] = JobQueue(max_in_memory=count)
    tracemalloc.start()
    try:
        for number in range(count):
            queue.put_claimed(claimed(number), priority=5, now=float(number))
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(queue) == count
    assert size_bytes < 200e6


def claimed(number: int) -> ClaimedJob:
    """A job as a claim makes it: every value is an object of its own, as it comes from the driver."""
    return ClaimedJob(
        id=10**6 + number,
        token=1000 + number,
        kind="".join(("search", "_release")),  # noqa: FLY002 - not a constant: each row has a text of its own
        payload=f'{{"artist":"{number:032x}","release":"{number:064x}","wanted":true}}',
        priority=5,
        attempts=0,
        max_attempts=10,
        correlation_id=f"{number:032x}",
        last_errors=None,
        run_at_us=18 * 10**14 + number,
    )
