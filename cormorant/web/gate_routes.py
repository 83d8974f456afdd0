"""Torznab endpoints and downloads."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, ParamSpec
from urllib.parse import quote

from litestar import Response, get
from litestar.params import FromPath
from litestar.response import Stream
from litestar.types import ExceptionHandlersMap

from cormorant.clients.files import Download
from cormorant.rules.errors import CommitUnknown, ServiceStopped, StorageUnavailable
from cormorant.rules.search.outcomes import SearchQueueFull
from cormorant.rules.torznab_queries import MISSING_PARAMETER, GateQuery, GateRefusal, read_query
from cormorant.services.gate.gate import COMBINED, AppShare, GateService, NothingAnswered
from cormorant.services.gate.torznab_documents import FEED_TYPE, XML_TYPE, caps_document, error_document
from cormorant.web.auth import TooManyTries
from cormorant.web.head_requests import asked_method, head_of_unknown_length, is_head
from cormorant.web.parts import state_of
from cormorant.web.problems import BUSY_S, AnyRequest, parts_of, retry_after
from storage.search.sources import UnknownSource

__all__ = ["download", "torznab"]

_BAD_CREDENTIALS: Final = 100
_NO_SUCH_SOURCE: Final = 201
_NO_SUCH_ITEM: Final = 300
_REQUEST_LIMIT: Final = 500
_UNKNOWN: Final = 900
_FILES: Final = {"torrent": ("application/x-bittorrent", "torrent"), "nzb": ("application/x-nzb", "nzb")}
_FILE_NAME: Final = re.compile(r"[^A-Za-z0-9._ -]+")
_FILE_NAME_MAX: Final = 150

Answer = Response[bytes]
P = ParamSpec("P")


def _error(code: int, description: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    # Sonarr, Radarr and Lidarr read the document only below 400. So what a person has to mend, a key or a parameter, comes
    # with 200 and is shown to them; what time mends comes with a status, for which they wait.
    return Response(
        error_document(code, description), status_code=status, media_type=XML_TYPE, headers=dict(headers or {})
    )


def _later(code: int, why: object, status: int, wait_s: float) -> Answer:
    return _error(code, str(why), status=status, headers={"Retry-After": retry_after(wait_s)})


def _nothing(_: AnyRequest, error: NothingAnswered) -> Answer:
    if error.retry_after_s is not None:
        return _later(_REQUEST_LIMIT, error, 429, error.retry_after_s)
    if error.is_gone:
        return _error(_NO_SUCH_ITEM, str(error), status=404)
    return _error(_UNKNOWN, str(error), status=503)


def _busy(_: AnyRequest, error: Exception) -> Answer:
    status = 429 if isinstance(error, SearchQueueFull) else 503
    return _later(_UNKNOWN, error, status, BUSY_S)


def _crashed(request: AnyRequest, error: Exception) -> Answer:
    state_of(request).crashes.crashed(error, method=asked_method(request), path=request.scope["path"])
    return _error(_UNKNOWN, "it failed; look for web.request_crashed in the log", status=500)


_HANDLERS: Final[ExceptionHandlersMap] = {
    GateRefusal: lambda _, error: _error(error.code, error.description),
    UnknownSource: lambda _, error: _error(_NO_SUCH_SOURCE, f"there is no source called {error.name[:40]}"),
    NothingAnswered: _nothing,
    TooManyTries: lambda _, error: _later(_REQUEST_LIMIT, error, 429, error.retry_after_s),
    SearchQueueFull: _busy,
    StorageUnavailable: _busy,
    CommitUnknown: _busy,
    ServiceStopped: _busy,
    Exception: _crashed,
}


_DOWNLOAD_HANDLERS: Final[ExceptionHandlersMap] = {
    **_HANDLERS,
    UnknownSource: lambda _, __: _error(_NO_SUCH_ITEM, "there is no such download", status=404),
}


@get("/gate/{source:str}/api", opt={"open": True}, exception_handlers=_HANDLERS, include_in_schema=False)
async def torznab(request: AnyRequest, source: FromPath[str]) -> Answer | Stream:
    """A source, or all of them, as a Torznab indexer."""
    gate, client = state_of(request).gate, await _client_of(request)
    query = read_query(request.query_params.multi_items())
    if is_head(request):
        return await _unless_stopping(request, _head, gate, query, source)
    return await _unless_stopping(request, _answer, gate, client, query, source=source, base=_base_of(request))


async def _unless_stopping(
    request: AnyRequest, work: Callable[P, Awaitable[Answer | Stream]], *args: P.args, **kwargs: P.kwargs
) -> Answer | Stream:
    """The answer of some work, which ends with the client's connection and with the server."""
    answer = await state_of(request).closing.run_until_disconnect(request.receive, work, *args, **kwargs)
    if answer is not None:
        return answer
    return _later(_UNKNOWN, "the gate is being stopped", 503, BUSY_S)


async def _head(gate: GateService, query: GateQuery, source: str) -> Stream:
    """No site is asked, and nothing is spent."""
    await gate.names(source)
    return head_of_unknown_length(XML_TYPE if query.request is None else FEED_TYPE)


async def _answer(gate: GateService, client: AppShare, query: GateQuery, *, source: str, base: str) -> Answer:
    if query.request is None:
        title = "Cormorant" if source == COMBINED else f"Cormorant: {source}"
        return Response(caps_document(await gate.caps(client, source), title=title), media_type=XML_TYPE)
    document = await gate.document(client, query, query.request, where=source, base=base)
    return Response(document, media_type=FEED_TYPE)


@get(
    "/gate/{source:str}/download/{token:str}",
    opt={"open": True},
    exception_handlers=_DOWNLOAD_HANDLERS,
    include_in_schema=False,
)
async def download(request: AnyRequest, source: FromPath[str], token: FromPath[str]) -> Answer | Stream:
    """What a link that an app was given leads to."""
    fetch = _download_head if is_head(request) else _download
    return await _unless_stopping(request, fetch, state_of(request).gate, source, token)


async def _download(gate: GateService, source: str, token: str) -> Answer | Stream:
    return _file(await gate.fetch(source, token))


async def _download_head(gate: GateService, source: str, token: str) -> Answer | Stream:
    """The site is not asked, so that the length is not known, and the type is what sources of this kind have."""
    link = await gate.link(source, token)
    if link.is_magnet:
        return _file(Download(kind="magnet", magnet=link.address))
    media_type, _ = _FILES["nzb" if link.record.kind == "newznab" else "torrent"]
    return head_of_unknown_length(media_type)


async def _client_of(request: AnyRequest) -> AppShare:
    key = request.query_params.get("apikey") or request.headers.get("x-api-key") or ""
    if not key:
        raise GateRefusal(MISSING_PARAMETER, "Missing parameter (apikey)")
    state = state_of(request)
    state.key_throttle.check(request, key)
    client = await state.gate.clients.by_key(key)
    state.key_throttle.note(request, key, is_right=client is not None)
    if client is None:
        raise GateRefusal(_BAD_CREDENTIALS, "Incorrect user credentials")
    return client


def _base_of(request: AnyRequest) -> str:
    return f"{str(request.base_url).rstrip('/')}{parts_of(request).environment.settings.web.url_base.rstrip('/')}"


_MAGNET_SAFE: Final = "%/:=&?~#+!$,;'@()*[]"
"""What an address may hold; sites write names of all alphabets into magnets, and a header takes none but ours."""


def _file(fetched: Download) -> Answer:
    if fetched.magnet is not None:
        return Response(b"", status_code=302, headers={"Location": quote(fetched.magnet, safe=_MAGNET_SAFE)})
    media_type, ending = _FILES[fetched.kind]
    name = _FILE_NAME.sub("_", fetched.name or "download")[:_FILE_NAME_MAX].strip(" .") or "download"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return Response(fetched.body, media_type=media_type, headers=headers)
