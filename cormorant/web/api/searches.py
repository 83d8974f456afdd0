"""Searches begun over HTTP, their state and streams."""

from __future__ import annotations

import trio
from litestar import Response, Router, delete, get, post
from litestar.params import FromPath, JSONBody
from litestar.response import Stream

from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import KINDS, BadRequest, SearchRequest
from cormorant.web.api.running_searches import WAIT_S_MAX, RunningSearches, wait_s_of
from cormorant.web.auth import SignOuts
from cormorant.web.models import SearchBody, SearchOut
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown

__all__ = ["search_routes"]


def _requests_of(request: AnyRequest) -> RunningSearches:
    requests: RunningSearches = request.app.state["searches"]
    return requests


@post("/searches", summary="Begin a search", status_code=201)
async def begin_search(request: AnyRequest, data: JSONBody[SearchBody]) -> Response[SearchOut]:
    """It goes on by itself. With `wait_s` the answer waits so long for outcomes, and has all that came."""
    refuse_unknown(await request.json(), SearchBody)
    wait_s = wait_s_of(data.wait_s)
    if wait_s is None:
        raise BadRequest("wait_s", f"{data.wait_s!r} is not possible; give seconds, 0 to {WAIT_S_MAX:g}")
    search = await parts_of(request).searches.search(
        _request(data), sources=data.sources, priority=_priority(data.priority), max_wait_s=data.max_wait_s
    )
    requests = _requests_of(request)
    watched = requests.take(search)
    with trio.move_on_after(wait_s):
        await requests.closing.run_until_shutdown(watched.done)
    return Response(watched.shown(), status_code=201)


@get("/searches/{number:int}", summary="A search and what has come of it so far")
async def show_search(request: AnyRequest, number: FromPath[int]) -> SearchOut:
    """The outcomes so far."""
    return _requests_of(request).find(number).shown()


@get("/searches/{number:int}/stream", summary="The outcomes of a search as server-sent events")
async def stream_search(request: AnyRequest, number: FromPath[int]) -> Stream:
    """An event `outcome` for each source, then `done`."""
    requests = _requests_of(request)
    sign_outs: SignOuts = request.app.state["sign_outs"]
    outcomes = requests.stream(requests.find(number), sign_outs.permit(request))
    return Stream(outcomes, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


@delete("/searches/{number:int}", summary="End a search", status_code=204)
async def cancel_search(request: AnyRequest, number: FromPath[int]) -> None:
    """What waits is forgotten, what runs is cancelled."""
    _requests_of(request).find(number).search.cancel()


def _request(body: SearchBody) -> SearchRequest:
    for kind in KINDS:
        if kind == body.kind:
            return SearchRequest(query=body.query, kind=kind, categories=body.categories, params=body.params)
    raise BadRequest("kind", f"there is no kind {body.kind[:40]!r}; use one of {', '.join(KINDS)}")


def _priority(name: str) -> Priority:
    if name.upper() not in Priority.__members__:
        known = ", ".join(each.lower() for each in Priority.__members__)
        raise BadRequest("priority", f"there is no priority {name[:40]!r}; use one of {known}")
    return Priority[name.upper()]


def search_routes() -> Router:
    """The addresses of this file."""
    handlers = [begin_search, show_search, stream_search, cancel_search]
    return Router("/", route_handlers=handlers, tags=["searches"])
