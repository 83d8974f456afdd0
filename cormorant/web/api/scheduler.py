"""Scheduler paths: status, jobs, statistics, pause, reschedule."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final

from attrs import frozen
from litestar import Router, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, QueryParameter

from cormorant.rules.supervision import ChildState
from cormorant.rules.views import next_page
from cormorant.rules.watch.feeds import Subscription
from cormorant.web.parts import WebParts, all_children, state_of
from cormorant.web.problems import AnyRequest, parts_of
from storage.overview import read_scheduler
from storage.watch.feeds import FEED

__all__ = ["scheduler_routes"]

_ID_MAX: Final = 2**53
"""As large as JSON can say it exactly: the document of the API names it as a float."""


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
    """What runs at its time, a page of it. `next_after` gets the next page; null: there is none."""

    jobs: list[ScheduledOut]
    next_after: int | None


@frozen(kw_only=True)
class StatisticsOut:
    """What checks did in the last hour."""

    total_checks: float
    successful_checks: float
    failed_checks: float
    average_duration_ms: float
    total_items_found: float
    total_new_items: float
    checks_per_minute: float
    success_rate: float


@frozen(kw_only=True)
class DoneOut:
    """What was done."""

    status: str


@get("/status", summary="Whether it runs, and what comes next")
async def status(request: AnyRequest) -> SchedulerOut:
    """Counts, and the next time. A subscription that is paused is pending: it has no next time."""
    parts = parts_of(request)
    counts = state_of(request).subscription_counts
    seen = await parts.environment.database.read(read_scheduler, counted=counts.known, clock=parts.environment.clock)
    if seen.took_s is not None:
        counts.keep((seen.total, seen.running), took_s=seen.took_s)
    jobs = _jobs(parts)
    times = [job.next_run for job in jobs if job.next_run is not None]
    return SchedulerOut(
        running=parts.monitor.is_ready() and not seen.is_paused,
        total_jobs=len(jobs) + seen.total,
        active_checks=len(parts.feeds.running),
        pending_jobs=sum(job.pending for job in jobs) + seen.total - seen.running,
        next_run=min(times if seen.upcoming is None else [*times, seen.upcoming], default=None),
        concurrent_limit=parts.environment.settings.subscriptions.max_concurrent_checks,
    )


@get("/statistics", summary="What checks of subscriptions did in the last hour")
async def statistics(request: AnyRequest) -> StatisticsOut:
    """Of this process, since it started."""
    return StatisticsOut(**parts_of(request).feeds.statistics_now())


@get("/jobs", summary="Everything that runs at its time")
async def jobs(
    request: AnyRequest,
    after: Annotated[int, QueryParameter(ge=0, le=_ID_MAX)] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=1_000)] = 100,
) -> ScheduledListOut:
    """The sweepers and tickers of the tree, on the first page, and every subscription in the order they came."""
    parts = parts_of(request)
    found = await parts.feeds.page(after_id=after, limit=limit)
    first = [] if after else _jobs(parts)
    return ScheduledListOut(jobs=[*first, *map(_scheduled, found)], next_after=next_page(found, limit))


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
async def reschedule(request: AnyRequest, subscription_id: FromPath[int]) -> DoneOut:
    """From its last check on, as its schedule says; one that would be late gets its share of the next minute."""
    if not 0 < subscription_id <= _ID_MAX:
        raise FEED.not_found(subscription_id)
    await parts_of(request).feeds.reschedule_anew(subscription_id)
    return DoneOut(status="rescheduled")


def _scheduled(subscription: Subscription) -> ScheduledOut:
    return ScheduledOut(
        id=f"subscription_{subscription.id}",
        name=f"Check {subscription.name}",
        next_run=None if subscription.is_paused else subscription.next_attempt_at,
        pending=subscription.is_paused,
    )


def _jobs(parts: WebParts) -> list[ScheduledOut]:
    now = parts.environment.now()
    children = all_children(parts.monitor.children())
    up = {child.name for child in children if child.state is ChildState.RUNNING}
    return [
        ScheduledOut(
            id=name,
            name=name.replace("_", " "),
            next_run=None if due_in_s is None else now + timedelta(seconds=due_in_s),
            pending=name not in up or due_in_s is None,
        )
        for name, due_in_s in parts.timetable.due()
    ]


def scheduler_routes(*, is_shown: bool = True) -> Router:
    """The addresses of this file."""
    handlers: list[HTTPRouteHandler] = [status, statistics, jobs, pause, resume, reschedule]
    return Router("/scheduler", route_handlers=handlers, tags=["scheduler"], include_in_schema=is_shown)
