"""Jobs over HTTP."""

from __future__ import annotations

from typing import Annotated

from litestar import Router, get, post
from litestar.params import FromPath, FromQuery, QueryParameter

from cormorant.rules.jobs.states import JobState
from cormorant.web.models import JobsOut
from cormorant.web.problems import AnyRequest, parts_of
from storage.jobs import reports
from storage.jobs.reports import JobView

__all__ = ["job_routes"]

_ID_MAX = 2**63 - 1


@get("/jobs", summary="The newest jobs")
async def list_jobs(
    request: AnyRequest,
    in_state: Annotated[JobState | None, QueryParameter(name="state")] = None,
    kind: FromQuery[str | None] = None,
    before: Annotated[int | None, QueryParameter(ge=1, le=_ID_MAX)] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=500)] = 50,
) -> JobsOut:
    """Newest first, a page at a time."""
    database = parts_of(request).environment.database
    found = await database.read(reports.recent, state=in_state, kind=kind, before=before, limit=limit)
    return JobsOut(jobs=found, next_before=found[-1].id if len(found) == limit else None)


@get("/jobs/{job_id:int}", summary="One job")
async def show_job(request: AnyRequest, job_id: FromPath[int]) -> JobView:
    """One job with its last errors."""
    return await parts_of(request).jobs.show(_known(job_id))


@post("/jobs/{job_id:int}/retry", summary="Let a failed or cancelled job start afresh", status_code=200)
async def retry_job(request: AnyRequest, job_id: FromPath[int]) -> JobView:
    """It is pending again, with no attempt counted."""
    jobs = parts_of(request).jobs
    await jobs.revive(_known(job_id))
    return await jobs.show(job_id)


@post("/jobs/{job_id:int}/cancel", summary="End a live job", status_code=200)
async def cancel_job(request: AnyRequest, job_id: FromPath[int]) -> JobView:
    """Its handler is stopped, here at once, in another process at its next heartbeat."""
    jobs = parts_of(request).jobs
    await jobs.cancel(_known(job_id))
    return await jobs.show(job_id)


@post("/pause", summary="Start no more jobs", status_code=204)
async def pause(request: AnyRequest) -> None:
    """In every process that shares the database, also after a restart. What runs goes on."""
    await parts_of(request).jobs.pause()


@post("/resume", summary="Start jobs again", status_code=204)
async def resume(request: AnyRequest) -> None:
    """End a pause."""
    await parts_of(request).jobs.resume()


def _known(job_id: int) -> int:
    """An id that no database can hold is one that there is not."""
    return job_id if 0 < job_id <= _ID_MAX else 0


def job_routes() -> Router:
    """The addresses of this file."""
    handlers = [list_jobs, show_job, retry_job, cancel_job, pause, resume]
    return Router("/", route_handlers=handlers, tags=["jobs"])
