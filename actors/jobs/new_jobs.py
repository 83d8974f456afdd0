"""New jobs, checked and filled in as the settings say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, TypedDict

from actors.environment import Environment
from actors.jobs.queue import check_terms
from cormorant.rules.jobs.states import checked_payload
from storage.jobs.jobs import NewJob

KIND_LENGTH_MAX: Final = 200


class JobTerms(TypedDict, total=False):
    """How a job is enqueued. What is not given is as `new_job` has it."""

    priority: str
    delay_s: float
    dedupe_key: str | None
    correlation_id: str | None
    max_attempts: int | None


def new_job(  # noqa: PLR0913 - the ways to enqueue a job, all but three with a default
    environment: Environment,
    kind: str,
    payload: Any,
    *,
    priority: str = "normal",
    delay_s: float = 0.0,
    dedupe_key: str | None = None,
    correlation_id: str | None = None,
    max_attempts: int | None = None,
) -> NewJob:
    """A job to be enqueued. Raises `UnknownLabel` or `ValueError` for what cannot be."""
    check_terms(environment.settings.queue.priorities, priority, delay_s)
    if max_attempts is not None and max_attempts < 1:
        raise ValueError(f"{max_attempts} attempts are not possible: give 1 or more")
    if not 0 < len(kind) <= KIND_LENGTH_MAX:
        raise ValueError(f"a kind of job has a name of 1 to {KIND_LENGTH_MAX} characters")
    return NewJob(
        uid=f"{environment.chance.getrandbits(128):032x}",
        kind=kind,
        payload=checked_payload(payload),
        priority=environment.settings.queue.priorities[priority],
        run_at=environment.now() + timedelta(seconds=delay_s),
        max_attempts=max_attempts or environment.settings.jobs.max_attempts,
        dedupe_key=dedupe_key,
        correlation_id=correlation_id,
    )


def most_urgent(environment: Environment) -> str:
    """The label of the first priority."""
    known = environment.settings.queue.priorities
    return min(known, key=lambda label: known[label])


def least_urgent(environment: Environment) -> str:
    """The label of the last priority."""
    known = environment.settings.queue.priorities
    return max(known, key=lambda label: known[label])
