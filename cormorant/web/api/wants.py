"""Wants, downloads and targets over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import Router, get, post
from litestar.enums import RequestEncodingType
from litestar.openapi.spec import Example
from litestar.params import Body, FromPath, QueryParameter

from cormorant.rules.views import next_page
from cormorant.rules.watch.handovers import TargetView
from cormorant.rules.watch.wants import WantState
from cormorant.services.watch.views import (
    DownloadOut,
    DownloadsOut,
    HandOverBody,
    TestOut,
    WantOut,
    WantShownOut,
    WantsOut,
    WantViews,
)
from cormorant.web.api.paging import Before, PageSize, known_id
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown

__all__ = ["want_routes"]

_HAND_OVER: Final = [
    Example(summary="The one that is chosen", value={}),
    Example(summary="Another candidate, by its id", value={"candidate": "ccbb2a8840ec"}),
]


@get("/wants", summary="What is wanted")
async def list_wants(
    request: AnyRequest,
    in_state: Annotated[WantState | None, QueryParameter(name="state")] = None,
    has_ignored: Annotated[bool, QueryParameter(name="ignored")] = True,  # noqa: FBT002 - a parameter of the address
    before: Before = None,
    limit: PageSize = 50,
) -> WantsOut:
    """Newest first, a page at a time. With `ignored=false` those are left out that nobody wants any more."""
    found = await parts_of(request).wants.page(state=in_state, has_ignored=has_ignored, before_id=before, limit=limit)
    words = _words(request)
    return WantsOut(wants=[words.want(each) for each in found], next_before=next_page(found, limit))


@get("/wants/{want_id:int}", summary="One want, every candidate with its reasons, and its downloads")
async def show_want(request: AnyRequest, want_id: FromPath[int]) -> WantShownOut:
    """Links of candidates are not shown."""
    return _words(request).shown(await parts_of(request).wants.find(known_id(want_id)))


@post("/wants/{want_id:int}/retry", summary="Search again", status_code=200)
async def retry_want(request: AnyRequest, want_id: FromPath[int]) -> WantOut:
    """Also what was given up or ignored; candidates that were tried in vain may be tried again."""
    return _words(request).want(await parts_of(request).wants.retry(known_id(want_id)))


@post("/wants/{want_id:int}/ignore", summary="Want it no more", status_code=200)
async def ignore_want(request: AnyRequest, want_id: FromPath[int]) -> WantOut:
    """Until it is retried."""
    return _words(request).want(await parts_of(request).wants.ignore(known_id(want_id)))


@post("/wants/{want_id:int}/hand-over", summary="Hand a candidate over by hand", status_code=200)
async def hand_over(
    request: AnyRequest,
    want_id: FromPath[int],
    data: Annotated[HandOverBody, Body(media_type=RequestEncodingType.JSON, examples=_HAND_OVER)],
) -> WantOut:
    """Also in observe mode, and also one that does not fit."""
    refuse_unknown(await request.json(), HandOverBody)
    return _words(request).want(await parts_of(request).wants.hand_over(known_id(want_id), ref=data.candidate))


@get("/downloads", summary="What was handed over")
async def list_downloads(
    request: AnyRequest,
    before: Before = None,
    limit: PageSize = 50,
) -> DownloadsOut:
    """Newest first, a page at a time."""
    found = await parts_of(request).wants.downloads(before_id=before, limit=limit)
    words = _words(request)
    return DownloadsOut(downloads=[words.download(each) for each in found], next_before=next_page(found, limit))


@get("/downloads/{number:int}", summary="One download")
async def show_download(request: AnyRequest, number: FromPath[int]) -> DownloadOut:
    """How far it is."""
    return _words(request).download(await parts_of(request).wants.download(known_id(number)))


@post("/downloads/{number:int}/arrived", summary="What is held has arrived", status_code=200)
async def arrived(request: AnyRequest, number: FromPath[int]) -> WantOut:
    """Its want is done."""
    return _words(request).want(await parts_of(request).wants.settle(known_id(number), has_arrived=True))


@post("/downloads/{number:int}/send-again", summary="What is held has not arrived", status_code=200)
async def send_again(request: AnyRequest, number: FromPath[int]) -> WantOut:
    """It is sent once more, under the same key."""
    return _words(request).want(await parts_of(request).wants.settle(known_id(number), has_arrived=False))


@get("/targets", summary="Those that finds can be handed to")
async def list_targets(request: AnyRequest) -> list[TargetView]:
    """By name, without addresses and keys."""
    return list(parts_of(request).wants.targets())


@post("/targets/{name:str}/test", summary="Try a target out", status_code=200)
async def test_target(request: AnyRequest, name: FromPath[str]) -> TestOut:
    """Its address and credentials; nothing is given to it."""
    said = await parts_of(request).wants.test_target(name)
    return TestOut(target=name, said=_words(request).redact(said))


def _words(request: AnyRequest) -> WantViews:
    return WantViews.of(parts_of(request).searches.directory.records())


def want_routes() -> Router:
    """The addresses of this file."""
    wants = [list_wants, show_want, retry_want, ignore_want, hand_over]
    downloads = [list_downloads, show_download, arrived, send_again]
    return Router("/", route_handlers=[*wants, *downloads, list_targets, test_target], tags=["wants"])
