"""Overview, event stream, pause everything."""

from __future__ import annotations

from litestar import Router, get, post
from litestar.exceptions import TooManyRequestsException
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.types import ASGIApp

from cormorant.web.event_stream import EVENT_EXAMPLE
from cormorant.web.overview import EXAMPLE, OverviewOut, overview_of
from cormorant.web.parts import WebParts, state_of
from cormorant.web.problems import AnyRequest, parts_of

__all__ = ["overview_routes"]

_OVERVIEW = ResponseSpec(
    data_container=OverviewOut,
    description="Everything that the page shows",
    generate_examples=False,
    examples=[Example(summary="a source that waits for its spacing", value=EXAMPLE)],
)
_EVENTS = ResponseSpec(
    data_container=str,
    description="Server-sent events; the data of each is an object with name, level, at and facts",
    media_type="text/event-stream",
    generate_examples=False,
    examples=[Example(summary="a search has ended", value=EVENT_EXAMPLE)],
)


@get("/overview", summary="Everything that the page shows", responses={200: _OVERVIEW})
async def overview(request: AnyRequest) -> OverviewOut:
    """Accounts with their quotas and gates, who spent what, what runs, waits and was, and what needs a person."""
    await parts_of(request).searches.directory.loaded.wait()
    return await _overview(request)


@get("/events", summary="What happens, as server-sent events", responses={200: _EVENTS})
async def events(request: AnyRequest) -> ASGIApp:
    """Every event from now on, as docs/events.md lists them. Who reads too slowly gets `events.lost` with their number."""
    state = state_of(request)
    if state.feeds.is_full:
        raise TooManyRequestsException("so many listen already that no more may", headers={"Retry-After": "5"})
    return state.feeds.feed(state.sign_outs.permit(request))


@post("/everything/pause", summary="Ask no source and start no job", status_code=200)
async def pause_everything(request: AnyRequest) -> OverviewOut:
    """In every process that shares the database, also after a restart. What runs goes on to its end."""
    parts = parts_of(request)
    await parts.jobs.pause()
    for name in await _names(parts):
        await parts.searches.pause(name)
    return await _overview(request)


@post("/everything/resume", summary="Go on with sources and jobs", status_code=200)
async def resume_everything(request: AnyRequest) -> OverviewOut:
    """Ends the pause of every source, also of one that was paused alone."""
    parts = parts_of(request)
    for name in await _names(parts):
        await parts.searches.resume(name)
    await parts.jobs.resume()
    return await _overview(request)


async def _overview(request: AnyRequest) -> OverviewOut:
    return await overview_of(parts_of(request), state_of(request).job_counts)


async def _names(parts: WebParts) -> list[str]:
    await parts.searches.directory.loaded.wait()
    return sorted(parts.searches.directory.by_name)


def overview_routes() -> Router:
    """The addresses of this file."""
    return Router("/", route_handlers=[overview, events, pause_everything, resume_everything], tags=["overview"])
