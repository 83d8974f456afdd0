"""What runs at its time, and how is it paused? The sweepers and tickers of the tree, and every subscription."""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import frozen
from litestar import Router, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from cormorant.web.port import ChildNode, WebParts
from cormorant.web.problems import AnyRequest, UnknownSubscription, parts_of
from storage import job_reports

__all__ = ["scheduler_routes"]


@frozen(kw_only=True)
class SchedulerOut:
    """What runs at its time. `running` is false while all is paused."""

    running: bool
    total_jobs: int
    active_checks: int
    pending_jobs: int
    next_run: datetime | None
    concurrent_limit: int


@frozen(kw_only=True)
class ScheduledOut:
    """Something that runs at its time. `pending`: it is not up yet, or has no next time."""

    id: str
    name: str
    next_run: datetime | None
    pending: bool


@frozen(kw_only=True)
class ScheduledListOut:
    """Everything that runs at its time."""

    jobs: list[ScheduledOut]


@frozen(kw_only=True)
class DoneOut:
    """What was done."""

    status: str


@get("/status", summary="Whether it runs, and what comes next")
async def status(request: AnyRequest) -> SchedulerOut:
    """Counts, and the next time."""
    parts = parts_of(request)
    pauses = await parts.database.read(job_reports.pauses)
    jobs = _jobs(parts)
    return SchedulerOut(
        running=parts.is_ready() and pauses.everything_since is None,
        total_jobs=len(jobs),
        active_checks=0,
        pending_jobs=sum(job.pending for job in jobs),
        next_run=min((job.next_run for job in jobs if job.next_run is not None), default=None),
        concurrent_limit=parts.concurrency,
    )


@get("/jobs", summary="Everything that runs at its time")
async def jobs(request: AnyRequest) -> ScheduledListOut:
    """The sweepers and tickers of the tree, and every subscription."""
    parts = parts_of(request)
    return ScheduledListOut(jobs=_jobs(parts))


@post("/pause", summary="Start nothing new", status_code=200)
async def pause(request: AnyRequest) -> DoneOut:
    """In every process that shares the database, also after a restart. What runs goes on; sweepers do, too."""
    await parts_of(request).jobs.pause()
    return DoneOut(status="paused")


@post("/resume", summary="Go on", status_code=200)
async def resume(request: AnyRequest) -> DoneOut:
    """End a pause."""
    await parts_of(request).jobs.resume()
    return DoneOut(status="resumed")


@post(
    "/subscriptions/{subscription_id:int}/reschedule", summary="Give a subscription its next time anew", status_code=200
)
async def reschedule(subscription_id: FromPath[int]) -> DoneOut:
    """From now on."""
    raise UnknownSubscription(subscription_id)


def _jobs(parts: WebParts) -> list[ScheduledOut]:
    now = parts.clock.now()
    up = {child.name for child in _leaves(parts) if child.state.value == "running"}
    return [
        ScheduledOut(
            id=each.name,
            name=each.name.replace("_", " "),
            next_run=None if each.due_in_s is None else now + timedelta(seconds=each.due_in_s),
            pending=each.name not in up or each.due_in_s is None,
        )
        for each in parts.scheduled()
    ]


def _leaves(parts: WebParts) -> list[ChildNode]:
    found, rest = [], list(parts.tree())
    while rest:
        child = rest.pop()
        found.append(child)
        rest += child.children
    return found


def scheduler_routes(*, is_shown: bool = True) -> Router:
    """The addresses of this file."""
    handlers: list[HTTPRouteHandler] = [status, jobs, pause, resume, reschedule]
    return Router("/scheduler", route_handlers=handlers, tags=["scheduler"], include_in_schema=is_shown)
