"""Job states and legal changes, retry delays, payload check, liveness of workers by observation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from attrs import frozen

from cormorant.rules.errors import IllegalChange, PayloadRefused

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


PAYLOAD_BYTES_MAX = 1_000_000

# A backslash that is itself escaped does not escape the u.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def checked_payload(payload: Any) -> str:
    """The payload as JSON text, or `PayloadRefused` with what is wrong.

    >>> checked_payload({"artist": "Boards of Canada"})
    '{"artist":"Boards of Canada"}'
    """
    try:
        text = json.dumps(payload, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadRefused(f"the payload cannot be kept as JSON: {error}") from error
    if len(text) > PAYLOAD_BYTES_MAX:
        size = len(text)
        raise PayloadRefused(
            f"the payload has {size:,} bytes, more than {PAYLOAD_BYTES_MAX:,}: keep it elsewhere and send its key"
        )
    if _NUL.search(text):
        raise PayloadRefused("the payload holds a NUL character, which no database here can keep: remove it")
    return text


@frozen
class LastBeat:
    """A beat, and since when (on the observer's own monotonic clock) it has been the last one seen."""

    beat: int
    since: float


@frozen(kw_only=True)
class LivenessObservation:
    """What one observer knows: the last sighting of each worker, and when it last looked."""

    sightings: Mapping[str, LastBeat] = {}
    looked_at: float | None = None


def observe(
    watch: LivenessObservation, beats: Mapping[str, int], *, now: float, interval_s: float, silence_s: float
) -> tuple[LivenessObservation, list[str]]:
    """Take a look at everyone's beats; who has been silent for `silence_s` of our own watching is dead.

    A gap of more than two intervals between looks means that we were asleep, or that the database was away, perhaps
    for the others too: the observation begins anew, so that an outage, a suspend or a clock set wrong kills nobody.

    >>> watch, dead = observe(LivenessObservation(), {"w": 7}, now=0.0, interval_s=60, silence_s=120)
    >>> watch, dead = observe(watch, {"w": 7}, now=60.0, interval_s=60, silence_s=120)
    >>> observe(watch, {"w": 7}, now=120.0, interval_s=60, silence_s=120)[1]
    ['w']
    """
    slept = watch.looked_at is None or now - watch.looked_at > 2 * interval_s
    before = {} if slept else watch.sightings
    sightings = {
        worker: before[worker] if worker in before and before[worker].beat == beat else LastBeat(beat, now)
        for worker, beat in beats.items()
    }
    dead = [worker for worker, seen in sightings.items() if now - seen.since >= silence_s]
    return LivenessObservation(sightings=sightings, looked_at=now), dead
