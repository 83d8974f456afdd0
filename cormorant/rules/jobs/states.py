"""Which states can a job be in, which changes are legal, and when is a failed attempt tried again?"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from cormorant.rules.errors import IllegalChange

PAUSED_FLAG = "jobs.paused"
"""The switch that keeps every process from claiming jobs."""


class JobState(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    RETRYABLE = "retryable"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


WAITING = frozenset({JobState.PENDING, JobState.RETRYABLE})
LIVE = WAITING | {JobState.RUNNING}
FINISHED = frozenset(JobState) - LIVE


class Verb(StrEnum):
    """What changes the state of a job. The same word in storage, events, metrics, commands and documentation."""

    CLAIM = "claim"
    COMPLETE = "complete"
    RETRY = "retry"
    SNOOZE = "snooze"
    FAIL = "fail"
    CANCEL = "cancel"
    RECLAIM = "reclaim"
    RELEASE = "release"
    REVIVE = "revive"


_FROM: dict[Verb, frozenset[JobState]] = {
    Verb.CLAIM: WAITING,
    Verb.CANCEL: LIVE,
    Verb.REVIVE: frozenset({JobState.FAILED, JobState.CANCELLED}),
}
_RUNNING = frozenset({JobState.RUNNING})
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


def allowed_from(verb: Verb) -> frozenset[JobState]:
    """The states in which a change may happen. Changes by an owner happen to running jobs only."""
    return _FROM.get(verb, _RUNNING)


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


SPREAD = 0.2


@frozen(kw_only=True)
class RetryPolicy:
    """How long a job waits after an attempt that failed."""

    base_s: float = 300.0
    cap_s: float = 86_400.0


_DOUBLINGS_MAX = 40


def delay_before_retry(policy: RetryPolicy, *, attempts: int, jitter: float) -> float:
    """Seconds to wait after failed attempt number `attempts`, spread by a fifth either way and never over the cap.

    The cap is met before the spread, so that jobs at the cap do not all come back together.

    >>> policy = RetryPolicy(base_s=300, cap_s=86_400)
    >>> [delay_before_retry(policy, attempts=n, jitter=0.5) for n in (1, 2, 3, 30)]
    [300.0, 600.0, 1200.0, 72000.0]
    """
    doublings = min(attempts - 1, _DOUBLINGS_MAX)
    whole_s = min(policy.cap_s / (1 + SPREAD), policy.base_s * 2.0**doublings)
    return min(policy.cap_s, whole_s * (1 - SPREAD + 2 * SPREAD * jitter))  # rounding would pass it by a hair
