"""Job states and legal changes, retry delays, payload check, liveness of workers by observation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from attrs import frozen

from cormorant.rules.errors import PayloadRefused

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


def allowed_from(verb: Verb) -> frozenset[JobState]:
    """The states in which a change may happen. Changes by an owner happen to running jobs only."""
    return _FROM.get(verb, _RUNNING)


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


@frozen(kw_only=True)
class Sighting:
    """The last beat that was seen of a worker, and for how many observed seconds it has been unchanged."""

    beat: int
    unchanged_s: float = 0.0


def observed_s(
    last_at: float | None, *, now: float, interval_s: float, confirmed_at: float, beat_s: float
) -> float | None:
    """Seconds that were observed since the last observation. None: the observation begins anew.

    After a gap of more than two intervals the process was asleep, or the database unreachable, perhaps for the others too. And
    while the own heartbeat is not confirmed no other process can beat either: a full disk or a write lock stops all of them,
    though reads succeed. The first observation continues that of an earlier sweeper.

    >>> observed_s(60.0, now=120.0, interval_s=60, confirmed_at=110.0, beat_s=20)
    60.0
    >>> observed_s(60.0, now=181.0, interval_s=60, confirmed_at=180.0, beat_s=20)
    >>> observed_s(60.0, now=120.0, interval_s=60, confirmed_at=70.0, beat_s=20)
    """
    if now - confirmed_at > 2 * beat_s:
        return None
    if last_at is None:
        return 0.0
    return now - last_at if 0 <= now - last_at <= 2 * interval_s else None


def observe(seen: Mapping[str, Sighting], beats: Mapping[str, int], *, elapsed_s: float | None) -> dict[str, Sighting]:
    """What is seen of each worker after `elapsed_s` more. None: the observation begins anew.

    >>> seen = observe({"w": Sighting(beat=7, unchanged_s=60.0)}, {"w": 7, "v": 3}, elapsed_s=60.0)
    >>> seen["w"].unchanged_s, seen["v"].unchanged_s
    (120.0, 0.0)
    """
    now = {}
    for worker, beat in beats.items():
        before = seen.get(worker)
        if before is None or before.beat != beat or elapsed_s is None:
            now[worker] = Sighting(beat=beat)
        else:
            now[worker] = Sighting(beat=beat, unchanged_s=before.unchanged_s + elapsed_s)
    return now


def longest(seen: Mapping[str, Sighting], stored: Mapping[str, Sighting]) -> dict[str, Sighting]:
    """What is seen of each worker, or what an earlier observer has stored of the same beat, whichever is longer.

    >>> longest({"w": Sighting(beat=7)}, {"w": Sighting(beat=7, unchanged_s=60.0)})["w"].unchanged_s
    60.0
    >>> longest({"w": Sighting(beat=8)}, {"w": Sighting(beat=7, unchanged_s=60.0)})["w"].unchanged_s
    0.0
    """
    return {
        worker: max(own, stored[worker], key=lambda each: each.unchanged_s)
        if worker in stored and stored[worker].beat == own.beat
        else own
        for worker, own in seen.items()
    }
