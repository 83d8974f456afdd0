"""What happens to jobs and to the processes that run them. Every event of a job carries its correlation id."""

from __future__ import annotations

from typing import ClassVar, TypedDict

from attrs import frozen

from cormorant.rules.events import Event


class About(TypedDict):
    """Which job an event is about: the facts that every one of them carries."""

    job_id: int | None
    kind: str
    correlation_id: str | None


@frozen(kw_only=True)
class JobEvent(Event):
    """Something happened to one job."""

    name: ClassVar[str] = "job"

    job_id: int | None
    kind: str
    correlation_id: str | None


@frozen(kw_only=True)
class JobStarted(JobEvent):
    """A handler begins. `waited_s` is how long the job was due before."""

    name: ClassVar[str] = "job.started"
    level: ClassVar[str] = "debug"

    attempt: int
    waited_s: float


@frozen(kw_only=True)
class JobCompleted(JobEvent):
    """A job is done, and that is durable. `runs_again` when it was enqueued once more while it ran."""

    name: ClassVar[str] = "job.completed"
    level: ClassVar[str] = "debug"

    took_s: float
    runs_again: bool


@frozen(kw_only=True)
class JobRetried(JobEvent):
    """An attempt failed; another follows."""

    name: ClassVar[str] = "job.retried"
    level: ClassVar[str] = "warning"

    attempts: int
    retry_in_s: float
    error: str


@frozen(kw_only=True)
class JobSnoozed(JobEvent):
    """A job put itself off; no attempt was used."""

    name: ClassVar[str] = "job.snoozed"

    for_s: float


@frozen(kw_only=True)
class JobFailed(JobEvent):
    """A job is a dead letter: it gave up by itself, or its attempts are used up."""

    name: ClassVar[str] = "job.failed"
    level: ClassVar[str] = "error"

    attempts: int
    error: str


@frozen(kw_only=True)
class JobCancelled(JobEvent):
    """A job was cancelled, by hand or by its own handler, or was passing work at a stop; a handler that ran was stopped."""

    name: ClassVar[str] = "job.cancelled"

    why: str


@frozen(kw_only=True)
class JobReleased(JobEvent):
    """A job was given back unfinished, no attempt counted: the service stops, or may have lost its lease."""

    name: ClassVar[str] = "job.released"

    why: str


@frozen(kw_only=True)
class JobReclaimed(JobEvent):
    """A job was taken from a process that is dead."""

    name: ClassVar[str] = "job.reclaimed"
    level: ClassVar[str] = "warning"

    owner: str
    state: str
    attempts: int


@frozen(kw_only=True)
class JobResultDropped(JobEvent):
    """A handler ended, but its job was no longer ours: cancelled meanwhile, or run by another process."""

    name: ClassVar[str] = "job.result_dropped"
    level: ClassVar[str] = "warning"

    verb: str


@frozen(kw_only=True)
class JobBlockedLoop(JobEvent):
    """A handler kept everything else in this process waiting: blocking work belongs in a thread."""

    name: ClassVar[str] = "job.blocked_loop"
    level: ClassVar[str] = "warning"

    for_s: float


@frozen(kw_only=True)
class JobReturnedValue(JobEvent):
    """A handler returned something; nobody reads it. The job is done all the same."""

    name: ClassVar[str] = "job.returned_value"
    level: ClassVar[str] = "warning"

    returned: str


@frozen(kw_only=True)
class KindUnknown(Event):
    """Jobs of a kind wait that no living process has a handler for."""

    name: ClassVar[str] = "jobs.kind_unknown"
    level: ClassVar[str] = "warning"

    kind: str
    waiting: int


@frozen(kw_only=True)
class JobsPruned(Event):
    """Finished jobs were forgotten because they are old."""

    name: ClassVar[str] = "jobs.pruned"

    succeeded: int
    cancelled: int
    failed: int


@frozen(kw_only=True)
class EphemeralWorkDropped(Event):
    """The service stops, and so much work that need not survive a restart had not begun."""

    name: ClassVar[str] = "jobs.passing_dropped"

    dropped: int


@frozen(kw_only=True)
class QueueDeep(Event):
    """The in-memory queue has reached its warning depth."""

    name: ClassVar[str] = "queue.deep"
    level: ClassVar[str] = "warning"

    depth: int
    warn_depth: int


@frozen(kw_only=True)
class WorkerRegistered(Event):
    """This process is known to the others and claims jobs."""

    name: ClassVar[str] = "worker.registered"

    worker: str


@frozen(kw_only=True)
class WorkerUnconfirmed(Event):
    """This process could not show that it lives for so long that others may take its jobs: it stopped its handlers."""

    name: ClassVar[str] = "worker.unconfirmed"
    level: ClassVar[str] = "error"

    worker: str
    silent_s: float
    handlers: int


@frozen(kw_only=True)
class WorkerLeaseLost(Event):
    """The others have declared this process dead: it stopped its handlers and registers anew."""

    name: ClassVar[str] = "worker.lease_lost"
    level: ClassVar[str] = "error"

    worker: str
    handlers: int


@frozen(kw_only=True)
class WorkerDeclaredDead(Event):
    """Another process was silent for too long and is declared dead; its jobs are taken over."""

    name: ClassVar[str] = "worker.buried"
    level: ClassVar[str] = "warning"

    worker: str
    reclaimed: int
