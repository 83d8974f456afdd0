"""Whatever happens to jobs in whatever order, both databases do what the model says."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, text

from cormorant.rules.errors import IllegalChange, KeyTaken
from cormorant.rules.jobs.states import FINISHED, LIVE, JobState, Verb, allowed_from
from storage import pauses
from storage.engine.columns import to_micros
from storage.jobs import jobs, workers
from storage.jobs.jobs import ClaimedJob, JobEnd
from tests.storage.job_store import DAWN, JobStore, at, new_job
from tests.storage.jobs_model import JobsModel, ModelJob, ModelWorker

KINDS = ["a", "b"]
PRIORITIES = [0, 5]
STATE_OF = {
    Verb.COMPLETE: JobState.SUCCEEDED,
    Verb.RETRY: JobState.RETRYABLE,
    Verb.SNOOZE: JobState.PENDING,
    Verb.FAIL: JobState.FAILED,
    Verb.CANCEL: JobState.CANCELLED,
}

# A number chooses from what there is by then, so that a failing run can be made shorter.
which = st.integers(0, 30)
limits = st.integers(1, 5)
delays = st.sampled_from([0, 0, 0, -3, 3])
verbs = st.sampled_from(list(STATE_OF))
kinds = st.sampled_from(KINDS)
new_jobs = st.tuples(
    kinds, st.sampled_from([None, "x", "x"]), st.sampled_from(PRIORITIES), delays, st.sampled_from([1, 2, 2, 3])
)

T = TypeVar("T")
Lease = tuple[str, int, int]
NewOne = tuple[str, str | None, int, int, int]


def seconds_of(micros: int | None) -> int | None:
    return None if micros is None else (micros - to_micros(DAWN)) // 1_000_000


def pick(number: int, things: Iterable[T]) -> T:
    known = list(things)
    return known[number % len(known)]


class JobsMachine(RuleBasedStateMachine):
    """Several owners, some of them stale, do everything that can be done to jobs."""

    store: ClassVar[JobStore]

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection = self.store.engine.connect()
        self.transaction = self.connection.begin()
        self.model = JobsModel()
        self.now = 100
        self.owners: list[str] = []
        self.leases: list[Lease] = []
        self.payloads = 0
        self.greatest_id = 0
        self.tokens: dict[int, int] = {}

    def teardown(self) -> None:
        with self.connection:
            self.transaction.rollback()

    @property
    def time(self) -> datetime:
        return at(self.now)

    def living(self) -> list[str]:
        return [name for name, worker in self.model.workers.items() if not worker.is_dead]

    def jobs_in(self, states: Collection[JobState]) -> list[ModelJob]:
        return [job for job in self.model.jobs.values() if job.state in states]

    def running(self) -> list[ModelJob]:
        return self.jobs_in([JobState.RUNNING])

    def is_something_due(self) -> bool:
        return any(job.run_at <= self.now for job in self.model.waiting())

    # What programs do: enqueue. Several at a time, or a life would have little to live with.

    @initialize(some=st.lists(new_jobs, min_size=2, max_size=6))
    def begin(self, some: list[NewOne]) -> None:
        self.boot()
        self.boot()
        self.enqueue(some)

    @rule(some=st.lists(new_jobs, min_size=1, max_size=4))
    def enqueue(self, some: list[NewOne]) -> None:
        for one in some:
            self.enqueue_one(one)

    @precondition(lambda self: any(job.key for job in self.running()))
    @rule(number=which)
    def enqueue_again(self, number: int) -> None:
        job = pick(number, [job for job in self.running() if job.key])
        self.enqueue_one((job.kind, job.key, 0, 0, 1))

    def enqueue_one(self, one: NewOne) -> None:
        kind, key, priority, delay, max_attempts = one
        self.payloads += 1
        new = new_job(
            kind,
            payload=f"{self.payloads}",
            priority=priority,
            run_at=at(self.now + delay),
            max_attempts=max_attempts,
            dedupe_key=key,
        )
        there = self.model.joined(kind, key)
        done = jobs.enqueue(self.connection, new, now=self.time)
        if there is not None:
            assert (done.id, done.joined, done.state) == (there.id, True, there.state)
            self.model.join(there, new.payload)
            return
        assert not done.joined
        assert done.id > self.greatest_id, "a number was used again"
        self.greatest_id = done.id
        self.model.jobs[done.id] = ModelJob(
            id=done.id,
            kind=kind,
            priority=priority,
            run_at=self.now + delay,
            max_attempts=max_attempts,
            key=key,
            payload=new.payload,
            held=kind in self.model.paused,
        )

    # What processes do: start, claim, let go, leave. There is always one that lives.

    def boot(self) -> None:
        name = f"w{len(self.owners)}"
        workers.register(self.connection, name, kinds=KINDS, version="1", now=self.time)
        self.owners.append(name)
        self.model.workers[name] = ModelWorker()

    @precondition(lambda self: self.is_something_due())
    @rule(number=which, limit=limits, ways=st.lists(verbs, max_size=3), delay=delays)
    def claim(self, number: int, limit: int, ways: list[Verb], delay: int) -> None:
        """And let go of some at once, each in its own way."""
        name = pick(number, self.living())
        claimed = self.claim_for(name, limit, KINDS)
        self.settle(name, [(job.id, job.token, way) for job, way in zip(claimed, ways, strict=False)], delay)

    @precondition(lambda self: self.is_something_due())
    @rule(number=which, kind=kinds)
    def claim_as_another(self, number: int, kind: str) -> None:
        """One that knows only one kind; and one that was declared dead, or has left, and does not know it."""
        self.claim_for(pick(number, self.owners), 2, [kind])

    def claim_for(self, name: str, limit: int, known: list[str]) -> list[ClaimedJob]:
        claimed = jobs.claim(
            self.connection, owner=name, kinds=known, priorities=PRIORITIES, limit=limit, now=self.time
        )
        expected = self.model.claim(name, kinds=known, limit=limit, now=self.now)
        assert [(job.id, job.token, job.payload, job.attempts) for job in claimed] == [
            (job.id, job.token, job.payload, job.attempts) for job in expected
        ]
        self.leases += [(name, job.id, job.token) for job in claimed]
        return claimed

    @precondition(lambda self: self.leases)
    @rule(number=which, verb=verbs, delay=delays, who=st.sampled_from(["owner", "owner", "late", "thief", "anybody"]))
    def let_go(self, number: int, verb: Verb, delay: int, who: str) -> None:
        """By its owner; by one that had it before and has it again; by one that never had it; by one that has any lease."""
        name, job_id, token = pick(number, self.leases)
        if who != "anybody" and self.running():
            job = pick(number, self.running())
            name = pick(number + 1, self.owners) if who == "thief" else job.owner or ""
            job_id, token = job.id, job.token - (who == "late")
        self.settle(name, [(job_id, token, verb)], delay)

    def settle(self, name: str, leases: list[tuple[int, int, Verb]], delay: int) -> None:
        run_at = self.now + delay
        endings = [
            JobEnd(id=job_id, token=token, to=STATE_OF[verb], uses_attempt=verb is Verb.RETRY, run_at=at(run_at))
            for job_id, token, verb in leases
        ]
        settled = jobs.settle(self.connection, owner=name, endings=endings, now=self.time)
        expected = []
        for job_id, token, verb in leases:
            if job := self.model.lease(job_id, owner=name, token=token):
                self.model.let_go(job, verb, run_at=run_at, now=self.now)
                expected.append((job.id, job.state, job.attempts))
        assert sorted((each.id, each.state, each.attempts) for each in settled) == sorted(expected)

    @precondition(lambda self: self.running())
    @rule(number=which, how=st.sampled_from(["release", "leave", "unknown"]), known=st.sets(which, max_size=2))
    def give_back(self, number: int, how: str, known: set[int]) -> None:
        name = pick(number, self.running()).owner or ""
        mine = self.model.owned(name)
        kept = {(job.id, job.token) for job in (pick(place, mine) for place in known)} if how == "unknown" else set()
        if how == "unknown":
            owned = jobs.release_unknown(self.connection, owner=name, known=kept, now=self.time)
            assert owned == {(job.id, job.token) for job in mine}
        else:
            assert jobs.release_all(self.connection, owner=name, now=self.time) == len(mine)
        for job in mine:
            if (job.id, job.token) not in kept:
                run_at = self.now if how == "unknown" else job.run_at
                self.model.let_go(job, Verb.RELEASE, run_at=run_at, now=self.now)
        if how == "leave":
            workers.retire(self.connection, name)
            del self.model.workers[name]
            self.boot()

    # What becomes of those that fall silent.

    @rule(number=which, beats=st.sampled_from([False, False, True]), pages=st.lists(limits, max_size=2))
    def watch(self, number: int, *, beats: bool, pages: list[int]) -> None:
        """A beat is seen; perhaps another comes; if not, it is buried and some of its jobs are taken from it."""
        name = pick(number, self.owners)
        worker = self.model.workers.get(name, ModelWorker(is_dead=True))
        seen, was_dead = worker.beat, worker.is_dead
        if beats:
            beat = workers.beat(self.connection, name, now=self.time)
            worker.beat += not was_dead
            assert beat == (None if was_dead else worker.beat)
        buried = workers.mark_dead(self.connection, name, beat=seen, now=self.time)
        assert buried == (not was_dead and not beats)
        if buried:
            worker.is_dead = True
            self.boot()
        for limit in pages:
            self.reclaim(limit)

    def reclaim(self, limit: int) -> None:
        """A page from each of the dead, who are forgotten when nothing is left."""
        for name in [name for name, worker in self.model.workers.items() if worker.is_dead]:
            assert not workers.is_living(self.connection, name)
            reclaimed = jobs.reclaim(self.connection, owner=name, limit=limit, now=self.time)
            expected = self.model.reclaim(name, limit=limit, now=self.now)
            assert [(job.id, job.state, job.attempts) for job in reclaimed] == [
                (job.id, job.state, job.attempts) for job in expected
            ]
        assert workers.delete_dead(self.connection) == self.model.forget_dead()

    # What people do.

    @precondition(lambda self: self.model.jobs)
    @rule(number=which)
    def cancel(self, number: int) -> None:
        job = pick(number, self.jobs_in(LIVE) or self.model.jobs.values())
        if job.state in LIVE:
            assert jobs.cancel(self.connection, job.id, now=self.time) == job.token
            self.model.cancel(job, now=self.now)
        else:
            with pytest.raises(IllegalChange):
                jobs.cancel(self.connection, job.id, now=self.time)

    @precondition(lambda self: self.jobs_in(FINISHED))
    @rule(number=which)
    def revive(self, number: int) -> None:
        job = pick(number, self.jobs_in(FINISHED))
        is_legal = job.state in allowed_from(Verb.REVIVE)
        if is_legal and self.model.joined(job.kind, job.key) is None:
            jobs.revive(self.connection, job.id, now=self.time)
            self.model.revive(job, now=self.now)
        else:
            with pytest.raises(KeyTaken if is_legal else IllegalChange):
                jobs.revive(self.connection, job.id, now=self.time)

    @precondition(lambda self: self.jobs_in(FINISHED))
    @rule(number=which, age=st.sampled_from([0, -1, 3]), limit=st.integers(1, 2))
    def prune(self, number: int, age: int, limit: int) -> None:
        state, before = pick(number, self.jobs_in(FINISHED)).state, self.now - age
        pruned = jobs.prune(self.connection, state=state, before=at(before), limit=limit)
        assert pruned == self.model.prune(state, before=before, limit=limit)

    @rule(kind=kinds, pages=st.lists(limits, max_size=2))
    def pause_or_resume(self, kind: str, pages: list[int]) -> None:
        """A kind, and some of its jobs; the others follow when there is time."""
        resumes = kind in self.model.paused
        if resumes:
            assert pauses.resume(self.connection, kind)
        else:
            pauses.pause(self.connection, kind, now=self.time)
        self.model.paused ^= {kind}
        for limit in pages:
            self.hold_or_free(limit, holds=not resumes)

    def hold_or_free(self, limit: int, *, holds: bool) -> None:
        """Which ones come first is not said, so the model learns that from the database."""
        wrong = self.model.wrongly(held=not holds)
        change = pauses.hold_some if holds else pauses.free_some
        assert len(change(self.connection, limit=limit)) == min(limit, len(wrong))
        changed = {row.id for row in self.rows() if row.id in wrong and bool(row.held) is holds}
        assert len(changed) == min(limit, len(wrong))
        for job_id in changed:
            self.model.jobs[job_id].held = holds

    @rule(step=st.sampled_from([3, 3, 10, 1, -2, -7]))
    def step_the_clock(self, step: int) -> None:
        self.now += step

    # What holds after every step.

    def rows(self) -> list[Any]:
        return list(self.connection.execute(text("SELECT * FROM jobs ORDER BY id")).all())

    @invariant()
    def every_job_is_as_the_model_says(self) -> None:
        found = [
            ModelJob(
                id=row.id,
                kind=row.kind,
                priority=row.priority,
                run_at=seconds_of(row.run_at) or 0,
                max_attempts=row.max_attempts,
                key=row.dedupe_key,
                payload=row.payload,
                held=bool(row.held),
                state=JobState(row.state),
                attempts=row.attempts,
                reclaims=row.reclaims,
                token=row.token,
                owner=row.claimed_by,
                rerun=row.rerun_payload,
                claimed_at=seconds_of(row.claimed_at),
                finished_at=seconds_of(row.finished_at),
            )
            for row in self.rows()
        ]
        assert found == sorted(self.model.jobs.values(), key=lambda job: job.id)

    @invariant()
    def nothing_is_lost_and_nothing_is_had_by_two(self) -> None:
        rows = self.rows()
        known = {worker.id for worker in workers.all_workers(self.connection)}
        assert known == set(self.model.workers)
        for row in rows:
            assert (row.state == "running") == (row.claimed_by is not None)
            assert row.claimed_by is None or row.claimed_by in known, "nobody would ever reclaim it"
            assert (row.state in FINISHED) == (row.finished_at is not None)
            assert row.rerun_payload is None or row.state == "running"
            assert row.attempts <= row.max_attempts
            assert row.attempts < row.max_attempts or row.state in FINISHED
            assert row.token >= self.tokens.get(row.id, 0)
            self.tokens[row.id] = row.token
        live = [(row.kind, row.dedupe_key) for row in rows if row.dedupe_key and row.state in LIVE]
        assert len(live) == len(set(live))
        taken = [(job_id, token) for _, job_id, token in self.leases]
        assert len(taken) == len(set(taken))

    @invariant()
    def it_is_known_when_to_look_again(self) -> None:
        waiting = self.model.waiting()
        later = [job.run_at for job in waiting if job.run_at > self.now]
        expected = at(min(later)) if later else None
        assert jobs.next_due(self.connection, priorities=PRIORITIES, now=self.time) == expected
        assert jobs.priorities_in_use(self.connection) == sorted({job.priority for job in waiting})


def run_machine(in_store: JobStore, *, examples: int) -> None:
    class Machine(JobsMachine):
        store = in_store

    usual = settings(max_examples=examples, stateful_step_count=40, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Machine, settings=usual)


@pytest.mark.slow("two hundred lives of forty steps")
def test_jobs_in_sqlite_live_as_the_model_says(used_sqlite_jobs: JobStore) -> None:
    run_machine(used_sqlite_jobs, examples=200)


@pytest.mark.slow("twenty-five lives of forty steps")
def test_jobs_in_postgres_live_as_the_model_says(used_postgres_jobs: JobStore) -> None:
    run_machine(used_postgres_jobs, examples=25)
