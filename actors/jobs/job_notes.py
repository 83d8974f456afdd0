"""Which events follow from what became of a job?"""

from __future__ import annotations

from actors.jobs.working_set import FinishedJob, Work
from cormorant.rules.jobs.error_log import describe_error
from cormorant.rules.jobs.events import (
    About,
    JobCancelled,
    JobCompleted,
    JobEvent,
    JobFailed,
    JobReleased,
    JobResultDropped,
    JobRetried,
    JobSnoozed,
)
from cormorant.rules.jobs.states import JobState, Verb
from storage.jobs.jobs import ClaimedJob, Settled


def note_settled(done: FinishedJob, settled: Settled) -> JobEvent:
    """What is told of a job that its owner let go of, once that is durable."""
    job, verdict = done.job, done.verdict
    of = about(job)
    error = "" if verdict.error is None else describe_error(verdict.error)
    if settled.state is JobState.FAILED:
        return JobFailed(**of, attempts=settled.attempts, error=error)
    match verdict.verb:
        case Verb.SNOOZE:
            return JobSnoozed(**of, for_s=verdict.delay_s)
        case Verb.RETRY:
            return JobRetried(**of, attempts=settled.attempts, retry_in_s=verdict.delay_s, error=error)
        case Verb.CANCEL:
            return JobCancelled(**of, why=error)
        case Verb.RELEASE:
            return JobReleased(**of, why=error)
        case _:
            return JobCompleted(**of, took_s=done.took_s, runs_again=settled.state is JobState.PENDING)


def note_completed(done: FinishedJob) -> JobCompleted:
    """What is told of a job that has ended as most do."""
    job = done.job
    return JobCompleted(
        job_id=job.id, kind=job.kind, correlation_id=job.correlation_id, took_s=done.took_s, runs_again=False
    )


def note_dropped(job: ClaimedJob, verb: Verb) -> JobEvent:
    """What is told when a handler ended and its job was no longer ours."""
    return JobResultDropped(**about(job), verb=verb.value)


def about(work: Work) -> About:
    """Which job it is."""
    job_id = work.id if isinstance(work, ClaimedJob) else None
    return About(job_id=job_id, kind=work.kind, correlation_id=work.correlation_id)
