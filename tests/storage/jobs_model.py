"""What should happen to jobs? The same as storage/jobs/jobs.py, in plain Python over a dictionary, to compare with."""

from __future__ import annotations

from attrs import define, field, frozen

from cormorant.rules.errors import IllegalChange
from cormorant.rules.jobs.states import FINISHED, LIVE, WAITING, JobState, Verb, allowed_from

COUNTING = frozenset({Verb.RETRY, Verb.RECLAIM})
_TO = {
    Verb.CLAIM: JobState.RUNNING,
    Verb.COMPLETE: JobState.SUCCEEDED,
    Verb.RETRY: JobState.RETRYABLE,
    Verb.SNOOZE: JobState.PENDING,
    Verb.FAIL: JobState.FAILED,
    Verb.CANCEL: JobState.CANCELLED,
    Verb.RECLAIM: JobState.PENDING,
    Verb.RELEASE: JobState.PENDING,
    Verb.REVIVE: JobState.PENDING,
}


@frozen(kw_only=True)
class AttemptCount:
    """How much of a job's patience is used: attempts that failed, or were lost with their worker."""

    attempts: int
    attempts_max: int


def state_after(
    verb: Verb, state: JobState, *, effort: AttemptCount, started: bool = True, runs_again: bool = False
) -> JobState:
    """Where a change leads, or `IllegalChange`.

    A retry or a reclaim uses up an attempt, a reclaim only if the job had `started`: one that never ran cannot be the
    poison. With the last attempt it ends as failed. A job that `runs_again` was enqueued once more while it ran, and
    starts afresh instead of finishing.

    >>> state_after(Verb.RETRY, JobState.RUNNING, effort=AttemptCount(attempts=9, attempts_max=10))
    <JobState.FAILED: 'failed'>
    >>> state_after(Verb.COMPLETE, JobState.RUNNING, effort=AttemptCount(attempts=0, attempts_max=10), runs_again=True)
    <JobState.PENDING: 'pending'>
    """
    if state not in allowed_from(verb):
        raise IllegalChange(verb=verb.value, state=state.value)
    counts = verb is Verb.RETRY or (verb is Verb.RECLAIM and started)
    to = JobState.FAILED if counts and effort.attempts + 1 >= effort.attempts_max else _TO[verb]
    ends = to in {JobState.SUCCEEDED, JobState.FAILED}
    return JobState.PENDING if ends and runs_again and verb is not Verb.CANCEL else to


@define(kw_only=True)
class ModelJob:
    """One job. Times are seconds since the dawn of the test."""

    id: int
    kind: str
    priority: int
    run_at: int
    max_attempts: int
    key: str | None
    payload: str
    held: bool
    state: JobState = JobState.PENDING
    attempts: int = 0
    reclaims: int = 0
    token: int = 0
    owner: str | None = None
    rerun: str | None = None
    claimed_at: int | None = None
    finished_at: int | None = None


@define
class ModelWorker:
    """One process."""

    beat: int = 0
    is_dead: bool = False


@define
class JobsModel:
    """All jobs, all workers, all pauses."""

    jobs: dict[int, ModelJob] = field(factory=dict)
    workers: dict[str, ModelWorker] = field(factory=dict)
    paused: set[str] = field(factory=set)

    def alive(self, owner: str) -> bool:
        return owner in self.workers and not self.workers[owner].is_dead

    def joined(self, kind: str, key: str | None) -> ModelJob | None:
        """The job that one with this key would join."""
        live = (job for job in self.jobs.values() if job.state in LIVE and (job.kind, job.key) == (kind, key))
        return None if key is None else next(live, None)

    def join(self, job: ModelJob, payload: str) -> None:
        if job.state is JobState.RUNNING:
            job.rerun = payload
        else:
            job.payload = payload

    def waiting(self) -> list[ModelJob]:
        """What a claim could ever see, in order."""
        visible = (job for job in self.jobs.values() if job.state in WAITING and not job.held)
        return sorted(visible, key=lambda job: (job.priority, job.run_at, job.id))

    def claim(self, owner: str, *, kinds: list[str], limit: int, now: int) -> list[ModelJob]:
        if not self.alive(owner):
            return []
        claimed = [job for job in self.waiting() if job.run_at <= now and job.kind in kinds][:limit]
        for job in claimed:
            job.state, job.owner, job.claimed_at = JobState.RUNNING, owner, now
            job.token += 1
        return claimed

    def lease(self, job_id: int, *, owner: str, token: int) -> ModelJob | None:
        """The job, if this is still its lease."""
        job = self.jobs.get(job_id)
        is_held = job is not None and (job.state, job.owner, job.token) == (JobState.RUNNING, owner, token)
        return job if is_held else None

    def let_go(self, job: ModelJob, verb: Verb, *, run_at: int, now: int) -> None:
        effort = AttemptCount(attempts=job.attempts, attempts_max=job.max_attempts)
        would_end = state_after(verb, job.state, effort=effort) in FINISHED and verb is not Verb.CANCEL
        again = would_end and job.rerun is not None
        job.state = state_after(verb, job.state, effort=effort, runs_again=again)
        job.attempts = 0 if again else job.attempts + (verb in COUNTING)
        if job.state in WAITING:
            job.run_at = now if again else run_at
        job.finished_at = now if job.state in FINISHED else None
        if job.rerun is not None and verb is not Verb.CANCEL:
            job.payload = job.rerun
        job.rerun = job.owner = None

    def owned(self, owner: str) -> list[ModelJob]:
        """What runs for an owner, oldest first."""
        return sorted((job for job in self.jobs.values() if job.owner == owner), key=lambda job: job.id)

    def reclaim(self, owner: str, *, limit: int, now: int) -> list[ModelJob]:
        reclaimed = self.owned(owner)[:limit]
        for job in reclaimed:
            job.reclaims += 1
            self.let_go(job, Verb.RECLAIM, run_at=now, now=now)
        return reclaimed

    def cancel(self, job: ModelJob, *, now: int) -> None:
        job.state = state_after(Verb.CANCEL, job.state, effort=AttemptCount(attempts=0, attempts_max=1))
        job.finished_at, job.owner, job.rerun = now, None, None

    def revive(self, job: ModelJob, *, now: int) -> None:
        job.state, job.attempts, job.run_at, job.finished_at = JobState.PENDING, 0, now, None
        job.held = job.kind in self.paused

    def prune(self, state: JobState, *, before: int, limit: int) -> int:
        finished = [(job.finished_at, job.id) for job in self.jobs.values() if job.state is state and job.finished_at]
        old = sorted(entry for entry in finished if (entry[0] or 0) < before)[:limit]
        for _, job_id in old:
            del self.jobs[job_id]
        return len(old)

    def wrongly(self, *, held: bool) -> set[int]:
        """Live jobs that are held though their kind is not paused; or the other way round."""
        live = (job for job in self.jobs.values() if job.state in LIVE)
        return {job.id for job in live if job.held is held and (job.kind in self.paused) is not held}

    def forget_dead(self) -> int:
        done = [name for name, worker in self.workers.items() if worker.is_dead and not self.owned(name)]
        for name in done:
            del self.workers[name]
        return len(done)
