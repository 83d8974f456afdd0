"""Searches begun over HTTP, their state and streams; the latest are kept."""

from __future__ import annotations

import math
from typing import Final, cast

import msgspec
import trio
from attrs import define, field, frozen
from litestar import Response, Router, delete, get, post
from litestar.params import FromPath, JSONBody
from litestar.types import ASGIApp
from typing_extensions import override

from actors.search.search import Search
from cormorant.rules.errors import NotFound
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import BadRequest, SearchKind, SearchRequest
from cormorant.services.search_views import OutcomeOut, outcome_out
from cormorant.services.searches import Searches
from cormorant.web.event_stream import EventResponse
from cormorant.web.parts import state_of
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown

__all__ = ["WAIT_S_MAX", "RunningSearches", "search_routes"]

KEPT_MAX: Final = 200
WAIT_S_MAX: Final = 90.0
_WORD_MAX: Final = 40
"""Characters of a wrong word that a refusal repeats."""


@frozen(kw_only=True)
class SearchOut:
    """A search and what has come of it so far."""

    id: int
    is_done: bool
    outcomes: list[OutcomeOut]


@frozen(kw_only=True)
class SearchBody:
    """A search to be made. Without `sources` all are asked; `wait_s` is how long the answer may wait for the outcomes."""

    query: str = ""
    kind: str = "search"
    categories: list[int] = field(factory=list)
    params: dict[str, str] = field(factory=dict)
    sources: list[str] | None = None
    priority: str = "interactive"
    max_wait_s: float | None = None
    wait_s: float = 0.0


@define(eq=False)
class RunningSearch:
    """A search with its outcomes so far."""

    search: Search
    outcomes: list[OutcomeOut] = field(factory=list)
    is_done: bool = False
    _changed: trio.Event = field(init=False, factory=trio.Event)

    def shown(self) -> SearchOut:
        """As it is now."""
        return SearchOut(id=self.search.id, is_done=self.is_done, outcomes=list(self.outcomes))

    async def change(self) -> None:
        """Wait until something comes."""
        await self._changed.wait()

    async def done(self) -> None:
        """Wait for the end."""
        while not self.is_done:
            await self.change()

    def tell(self) -> None:
        """Wake all who watch."""
        self._changed.set()
        self._changed = trio.Event()


@define(eq=False, kw_only=True)
class RunningSearches:
    """The searches of this server. Belongs to its incarnation, as do the tasks that follow them."""

    nursery: trio.Nursery
    searches: Searches
    _kept: dict[int, RunningSearch] = field(init=False, factory=dict)

    def take(self, search: Search) -> RunningSearch:
        """Follow a search, and keep what comes of it. The oldest that is done is forgotten for it."""
        watched = self._kept[search.id] = RunningSearch(search)
        while len(self._kept) > KEPT_MAX:
            oldest = next((number for number, each in self._kept.items() if each.is_done), next(iter(self._kept)))
            self._kept.pop(oldest).search.cancel()
        self.nursery.start_soon(self._follow, watched)
        return watched

    def find(self, number: int) -> RunningSearch:
        """A search, or `NotFound`."""
        watched = self._kept.get(number)
        if watched is None:
            raise NotFound("search", number, f"the last {KEPT_MAX} are kept until a restart")
        return watched

    async def _follow(self, watched: RunningSearch) -> None:
        async for outcome in watched.search:
            watched.outcomes.append(outcome_out(outcome, self.searches.directory.record_of(outcome.source)))
            watched.tell()
        watched.is_done = True
        watched.tell()


@define(eq=False)
class _OutcomeEvents(EventResponse):
    """An event `outcome` for each source, those that came first, then `done`."""

    watched: RunningSearch
    _sent: int = field(init=False, default=0)
    _is_over: bool = field(init=False, default=False)

    @override
    async def next(self) -> bytes | None:
        if self._is_over:
            return None
        outcomes = self.watched.outcomes
        while self._sent == len(outcomes) and not self.watched.is_done:
            await self.watched.change()
        self._sent += 1
        if self._sent <= len(outcomes):
            return _event("outcome", self._sent, msgspec.json.encode(outcomes[self._sent - 1]))
        self._is_over = True
        return _event("done", self._sent, b'{"outcomes":%d}' % len(outcomes))


def _event(name: str, number: int, body: bytes) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), number, body)


@post("/searches", summary="Begin a search", status_code=201)
async def begin_search(request: AnyRequest, data: JSONBody[SearchBody]) -> Response[SearchOut]:
    """It goes on by itself. With `wait_s` the answer waits so long for outcomes, and has all that came."""
    refuse_unknown(await request.json(), SearchBody)
    if not (math.isfinite(data.wait_s) and 0 <= data.wait_s <= WAIT_S_MAX):
        raise BadRequest("wait_s", f"{data.wait_s!r} is not possible; give seconds, 0 to {WAIT_S_MAX:g}")
    search = await parts_of(request).searches.search(
        _request(data), sources=data.sources, priority=_priority(data.priority), max_wait_s=data.max_wait_s
    )
    state = state_of(request)
    watched = state.searches.take(search)
    with trio.move_on_after(data.wait_s):
        await state.closing.run_until_shutdown(watched.done)
    return Response(watched.shown(), status_code=201)


@get("/searches/{number:int}", summary="A search and what has come of it so far")
async def show_search(request: AnyRequest, number: FromPath[int]) -> SearchOut:
    """The outcomes so far."""
    return state_of(request).searches.find(number).shown()


@get(
    "/searches/{number:int}/stream",
    summary="The outcomes of a search as server-sent events",
    response_description="Server-sent events",
)
async def stream_search(request: AnyRequest, number: FromPath[int]) -> ASGIApp:
    """An event `outcome` for each source, then `done`."""
    state = state_of(request)
    return _OutcomeEvents(state.closing, state.sign_outs.permit(request), state.searches.find(number))


@delete("/searches/{number:int}", summary="End a search", status_code=204)
async def cancel_search(request: AnyRequest, number: FromPath[int]) -> None:
    """What waits is forgotten, what runs is cancelled."""
    state_of(request).searches.find(number).search.cancel()


def _request(body: SearchBody) -> SearchRequest:
    kind = cast("SearchKind", body.kind[:_WORD_MAX])
    return SearchRequest(query=body.query, kind=kind, categories=body.categories, params=body.params)


def _priority(name: str) -> Priority:
    if name.upper() not in Priority.__members__:
        known = ", ".join(each.lower() for each in Priority.__members__)
        raise BadRequest("priority", f"there is no priority {name[:_WORD_MAX]!r}; use one of {known}")
    return Priority[name.upper()]


def search_routes() -> Router:
    """The addresses of this file."""
    handlers = [begin_search, show_search, stream_search, cancel_search]
    return Router("/", route_handlers=handlers, tags=["searches"])
