"""What happens to jobs and to the processes that run them. Every event of a job carries its correlation id."""

from __future__ import annotations

from typing import TypedDict

from cormorant.rules.events import Event, event


class About(TypedDict):
    """Which job an event is about: the facts that every one of them carries."""

    job_id: int | None
    kind: str
    correlation_id: str | None


@event("job")
class JobEvent(Event):
    """Something happened to one job."""

    job_id: int | None
    kind: str
    correlation_id: str | None


@event("job.started", level="debug")
class JobStarted(JobEvent):
    """A handler begins. `waited_s` is how long the job was due before."""

    attempt: int
    waited_s: float


@event("job.completed", level="debug")
class JobCompleted(JobEvent):
    """A job is done, and that is durable. `runs_again` when it was enqueued once more while it ran."""

    took_s: float
    runs_again: bool


@event("job.retried", level="warning")
class JobRetried(JobEvent):
    """An attempt failed; another follows."""

    attempts: int
    retry_in_s: float
    error: str


@event("job.snoozed")
class JobSnoozed(JobEvent):
    """A job put itself off; no attempt was used."""

    for_s: float


@event("job.failed", level="error")
class JobFailed(JobEvent):
    """A job is a dead letter: it gave up by itself, or its attempts are used up."""

    attempts: int
    error: str


@event("job.cancelled")
class JobCancelled(JobEvent):
    """A job was cancelled, by hand or by its own handler, or was passing work at a stop; a handler that ran was stopped."""

    why: str


@event("job.released")
class JobReleased(JobEvent):
    """A job was given back unfinished, no attempt counted: the service stops, or may have lost its lease."""

    why: str


@event("job.reclaimed", level="warning")
class JobReclaimed(JobEvent):
    """A job was taken from a process that is dead."""

    owner: str
    state: str
    attempts: int


@event("job.result_dropped", level="warning")
class JobResultDropped(JobEvent):
    """A handler ended, but its job was no longer ours: cancelled meanwhile, or run by another process."""

    verb: str


@event("job.blocked_loop", level="warning")
class JobBlockedLoop(JobEvent):
    """A handler kept everything else in this process waiting: blocking work belongs in a thread."""

    for_s: float


@event("job.returned_value", level="warning")
class JobReturnedValue(JobEvent):
    """A handler returned something; nobody reads it. The job is done all the same."""

    returned: str


@event("jobs.kind_unknown", level="warning")
class KindUnknown(Event):
    """Jobs of a kind wait that no living process has a handler for."""

    kind: str
    waiting: int


@event("jobs.pruned")
class JobsPruned(Event):
    """Finished jobs were forgotten because they are old."""

    succeeded: int
    cancelled: int
    failed: int


@event("jobs.passing_dropped")
class EphemeralWorkDropped(Event):
    """The service stops, and so much work that need not survive a restart had not begun."""

    dropped: int


@event("queue.deep", level="warning")
class QueueDeep(Event):
    """The in-memory queue has reached its warning depth."""

    depth: int
    warn_depth: int


@event("worker.registered")
class WorkerRegistered(Event):
    """This process is known to the others and claims jobs."""

    worker: str


@event("worker.unconfirmed", level="error")
class WorkerUnconfirmed(Event):
    """This process could not show that it lives for so long that others may take its jobs: it stopped its handlers."""

    worker: str
    silent_s: float
    handlers: int


@event("worker.lease_lost", level="error")
class WorkerLeaseLost(Event):
    """The others have declared this process dead: it stopped its handlers and registers anew."""

    worker: str
    handlers: int


@event("worker.buried", level="warning")
class WorkerDeclaredDead(Event):
    """Another process was silent for too long and is declared dead; its jobs are taken over."""

    worker: str
    reclaimed: int
