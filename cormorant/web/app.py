"""Which addresses are there, who may ask them, and what goes with every answer?"""

from __future__ import annotations

from typing import Any, Final

from litestar import Litestar, Router
from litestar.connection import ASGIConnection
from litestar.datastructures import MutableScopeHeaders, State
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.plugins.attrs import AttrsSchemaPlugin
from litestar.types import Message, Scope

from cormorant import __version__
from cormorant.rules.events import WebKeyRefused
from cormorant.web.api_clients import client_routes
from cormorant.web.api_jobs import job_routes
from cormorant.web.api_overview import overview_routes
from cormorant.web.api_searches import search_routes
from cormorant.web.api_session import session_routes
from cormorant.web.api_sources import source_routes
from cormorant.web.closing import Closing
from cormorant.web.event_feed import EventFeeds
from cormorant.web.gate import Gate
from cormorant.web.gate_routes import download, torznab
from cormorant.web.health import health, ready
from cormorant.web.keys import Keys
from cormorant.web.page_files import page_routes
from cormorant.web.port import WebParts
from cormorant.web.problems import problem_handlers
from cormorant.web.search_desk import SearchDesk
from cormorant.web.sessions import Sessions, is_signed_in

__all__ = ["OPEN", "make_app"]

BODY_BYTES_MAX: Final = 1_000_000
OPEN: Final = "open"
"""In the `opt` of a handler: it needs no key of the API, because it is harmless or has keys of its own."""

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def make_app(parts: WebParts, keys: Keys, closing: Closing, searches: SearchDesk) -> Litestar:
    """The application. `closing` ends its streams and makes it unready."""
    routes = [source_routes(), search_routes(), job_routes(), client_routes(), overview_routes(), session_routes()]
    api = Router("/api/v1", route_handlers=routes)
    gate = Gate(parts=parts, keys=keys)
    sessions = Sessions(keys=keys, life_s=parts.web.session_s, path=parts.web.url_base, clock=parts.clock)
    feeds = EventFeeds(parts, closing)
    return Litestar(
        path=parts.web.url_base,
        route_handlers=[health, ready, torznab, download, api, page_routes()],
        guards=[_needs_key],
        exception_handlers=problem_handlers(),
        before_send=[_add_headers],
        state=State(
            {
                "parts": parts,
                "keys": keys,
                "closing": closing,
                "gate": gate,
                "searches": searches,
                "sessions": sessions,
                "feeds": feeds,
            }
        ),
        plugins=[AttrsSchemaPlugin()],
        openapi_config=OpenAPIConfig(
            title="Cormorant",
            version=__version__,
            path="/api/v1",
            render_plugins=[JsonRenderPlugin(path="/openapi.json")],
        ),
        request_max_body_size=BODY_BYTES_MAX,
        logging_config=None,
        pdb_on_exception=False,
    )


def _needs_key(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    if handler.opt.get(OPEN):
        return
    keys: Keys = connection.app.state["keys"]
    given = connection.headers.get("x-api-key") or connection.query_params.get("apikey") or ""
    if keys.opens_api(given) or (not given and is_signed_in(connection, connection.app.state["sessions"])):
        return
    parts: WebParts = connection.app.state["parts"]
    if given:
        client = connection.client.host if connection.client else ""
        parts.emit(WebKeyRefused(path=connection.scope["path"][:200], client=client))
    raise NotAuthorizedException("the key is missing or wrong; send it as the header X-Api-Key")


async def _add_headers(message: Message, scope: Scope) -> None:  # noqa: ARG001 - Litestar's signature
    if message["type"] == "http.response.start":
        headers = MutableScopeHeaders(message)
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)  # the page brings a policy of its own
        headers.setdefault("Cache-Control", "no-store")
