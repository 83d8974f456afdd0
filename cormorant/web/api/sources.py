"""Sources over HTTP."""

from __future__ import annotations

from typing import Literal

from attrs import frozen
from litestar import Router, get, post
from litestar.params import FromPath, FromQuery

from actors.search.source_requests import SourceSnapshot
from cormorant import __version__
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.priorities import Priority
from cormorant.rules.views import view_of
from cormorant.services.search_views import ExplanationOut, SourceOut, explanation_out
from cormorant.web.overview import ChildOut, tree_out
from cormorant.web.parts import WebParts
from cormorant.web.problems import AnyRequest, parts_of

__all__ = ["PriorityName", "source_routes"]

PriorityName = Literal["interactive", "rss", "completion", "background"]
LaneName = Literal["query", "grab"]


@frozen(kw_only=True)
class StatusOut:
    """What is running."""

    version: str
    is_ready: bool
    tree: list[ChildOut]


@get("/status", summary="What is running")
async def status(request: AnyRequest) -> StatusOut:
    """The supervision tree, with restarts and crashes."""
    parts = parts_of(request)
    return StatusOut(version=__version__, is_ready=parts.monitor.is_ready(), tree=tree_out(parts.monitor.children()))


@get("/sources", summary="All sources, and why each waits")
async def list_sources(request: AnyRequest, priority: FromQuery[PriorityName] = "interactive") -> list[SourceOut]:
    """Every source by name, with what is in the way of a search of this priority."""
    parts = parts_of(request)
    directory = parts.searches.directory
    await directory.loaded.wait()
    return [_source(parts, entry.snapshot, priority) for _, entry in sorted(directory.by_name.items())]


@get("/sources/{name:str}", summary="One source, and why it waits")
async def show_source(
    request: AnyRequest, name: FromPath[str], priority: FromQuery[PriorityName] = "interactive"
) -> SourceOut:
    """One source."""
    return await _shown(parts_of(request), name, priority)


@get("/sources/{name:str}/explain", summary="Why a request would wait")
async def explain(
    request: AnyRequest,
    name: FromPath[str],
    priority: FromQuery[PriorityName] = "interactive",
    lane: FromQuery[LaneName] = "query",
) -> ExplanationOut:
    """What is in the way of a request submitted now, gate by gate, and when each opens."""
    parts = parts_of(request)
    await parts.searches.find(name)
    return _explanation(parts, name, priority, lane)


@post("/sources/{name:str}/pause", summary="Ask a source no more", status_code=200)
async def pause(request: AnyRequest, name: FromPath[str]) -> SourceOut:
    """In every process, also after a restart."""
    parts = parts_of(request)
    await parts.searches.pause(name)
    return await _shown(parts, name)


@post("/sources/{name:str}/resume", summary="Go on asking a source", status_code=200)
async def resume(request: AnyRequest, name: FromPath[str]) -> SourceOut:
    """End a pause."""
    parts = parts_of(request)
    await parts.searches.resume(name)
    return await _shown(parts, name)


@post("/sources/{name:str}/reset", summary="Forget the trouble with a source", status_code=200)
async def reset(request: AnyRequest, name: FromPath[str]) -> SourceOut:
    """Cooldown, breaker and refused credentials are forgotten; what was spent stays spent."""
    parts = parts_of(request)
    await parts.searches.reset(name)
    return await _shown(parts, name)


async def _shown(parts: WebParts, name: str, priority: PriorityName = "interactive") -> SourceOut:
    return _source(parts, (await parts.searches.find(name)).snapshot, priority)


def _source(parts: WebParts, snapshot: SourceSnapshot, priority: PriorityName) -> SourceOut:
    return view_of(
        SourceOut,
        snapshot.record,
        waiting=snapshot.waiting,
        running=snapshot.running,
        explanation=_explanation(parts, snapshot.record.name, priority, "query"),
    )


def _explanation(parts: WebParts, name: str, priority: PriorityName, lane: LaneName) -> ExplanationOut:
    found = parts.searches.explain(name, Priority[priority.upper()], lane=Lane(lane))
    return explanation_out(found, priority=priority, lane=lane)


def source_routes() -> Router:
    """The addresses of this file."""
    handlers = [status, list_sources, show_source, explain, pause, resume, reset]
    return Router("/", route_handlers=handlers, tags=["sources"])
