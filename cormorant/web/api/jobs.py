"""Jobs over HTTP."""

from __future__ import annotations

from typing import Annotated

from attrs import frozen
from litestar import Router, get, post
from litestar.params import FromPath, FromQuery, QueryParameter

from cormorant.rules.jobs.states import JobState
from cormorant.rules.views import next_page
from cormorant.web.api.paging import Before, PageSize, known_id
from cormorant.web.problems import AnyRequest, parts_of
from storage.jobs import reports
from storage.jobs.reports import JobView

__all__ = ["job_routes"]


@frozen(kw_only=True)
class JobsOut:
    """A page of jobs, newest first. `next_before` gets the next page; null: there is none."""

    jobs: list[JobView]
    next_before: int | None


@get("/jobs", summary="The newest jobs")
async def list_jobs(
    request: AnyRequest,
    in_state: Annotated[JobState | None, QueryParameter(name="state")] = None,
    kind: FromQuery[str | None] = None,
    before: Before = None,
    limit: PageSize = 50,
) -> JobsOut:
    """Newest first, a page at a time."""
    database = parts_of(request).environment.database
    found = await database.read(reports.recent, state=in_state, kind=kind, before=before, limit=limit)
    return JobsOut(jobs=found, next_before=next_page(found, limit))


@get("/jobs/{job_id:int}", summary="One job")
async def show_job(request: AnyRequest, job_id: FromPath[int]) -> JobView:
    """One job with its last errors."""
    return await parts_of(request).jobs.show(known_id(job_id))


@post("/jobs/{job_id:int}/retry", summary="Let a failed or cancelled job start afresh", status_code=200)
async def retry_job(request: AnyRequest, job_id: FromPath[int]) -> JobView:
    """It is pending again, with no attempt counted."""
    jobs = parts_of(request).jobs
    await jobs.revive(known_id(job_id))
    return await jobs.show(job_id)


@post("/jobs/{job_id:int}/cancel", summary="End a live job", status_code=200)
async def cancel_job(request: AnyRequest, job_id: FromPath[int]) -> JobView:
    """Its handler is stopped, here at once, in another process at its next heartbeat."""
    jobs = parts_of(request).jobs
    await jobs.cancel(known_id(job_id))
    return await jobs.show(job_id)


@post("/pause", summary="Start no more jobs", status_code=204)
async def pause(request: AnyRequest) -> None:
    """In every process that shares the database, also after a restart. What runs goes on."""
    await parts_of(request).jobs.pause()


@post("/resume", summary="Start jobs again", status_code=204)
async def resume(request: AnyRequest) -> None:
    """End a pause."""
    await parts_of(request).jobs.resume()


def job_routes() -> Router:
    """The addresses of this file."""
    handlers = [list_jobs, show_job, retry_job, cancel_job, pause, resume]
    return Router("/", route_handlers=handlers, tags=["jobs"])
