"""Routes, guards, headers, health."""

from __future__ import annotations

from typing import Any, Final

import trio
from attrs import frozen
from litestar import Litestar, Response, Router, get
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler
from litestar.plugins.attrs import AttrsSchemaPlugin
from litestar.types import Message, Scope

from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.services.gate.gate import GateService
from cormorant.services.keys import Keys
from cormorant.web.api.clients import client_routes
from cormorant.web.api.jobs import job_routes
from cormorant.web.api.overview import overview_routes
from cormorant.web.api.scheduler import scheduler_routes
from cormorant.web.api.searches import RunningSearches, search_routes
from cormorant.web.api.session import session_routes
from cormorant.web.api.sources import source_routes
from cormorant.web.api.wants import want_routes
from cormorant.web.api.watches import price_routes, subscription_routes, watch_routes
from cormorant.web.auth import BrowserSessions, KeyThrottle, SignOuts, check_change, given_key
from cormorant.web.event_stream import EventStreams
from cormorant.web.gate_routes import download, torznab
from cormorant.web.gauges import metrics_route
from cormorant.web.head_requests import allowing_head
from cormorant.web.listener import SERVICE
from cormorant.web.openapi import openapi_config
from cormorant.web.page_files import page_routes
from cormorant.web.parts import PATIENCE_S, Shutdown, WebParts, WebState, state_of
from cormorant.web.problems import (
    ANSWER_HEADERS,
    AnyRequest,
    BoundedRequest,
    Crashes,
    parts_of,
    problem,
    problem_handlers,
)
from storage.overview import check

OPEN: Final = "open"
"""In the `opt` of a handler: it needs no key of the API, because it is harmless or has keys of its own."""


def make_app(parts: WebParts, keys: Keys, closing: Shutdown, searches: RunningSearches) -> Litestar:
    """The application. `closing` ends its streams and makes it unready."""
    routes = [
        source_routes(),
        search_routes(),
        watch_routes(),
        want_routes(),
        subscription_routes(),
        price_routes(),
        job_routes(),
        scheduler_routes(),
        client_routes(),
        overview_routes(),
        session_routes(),
    ]
    api = Router("/api/v1", route_handlers=routes)
    environment = parts.environment
    state = WebState(
        parts=parts,
        keys=keys,
        closing=closing,
        gate=GateService(environment, searches=parts.searches, keys=keys),
        searches=searches,
        sign_outs=SignOuts(environment, sessions=BrowserSessions(environment, keys=keys)),
        feeds=EventStreams(parts, closing),
        key_throttle=KeyThrottle(environment),
        crashes=Crashes(environment),
    )
    return Litestar(
        path=environment.settings.web.url_base,
        route_handlers=[
            health,
            ready,
            metrics_route(is_open=environment.settings.web.metrics_open),
            torznab,
            download,
            api,
            scheduler_routes(is_shown=False),
            page_routes(),
        ],
        guards=[_needs_key],
        exception_handlers=problem_handlers(),
        before_send=[_add_headers],
        state=State({"web": state}),
        request_class=BoundedRequest,
        plugins=[AttrsSchemaPlugin()],
        openapi_config=openapi_config(),
        request_max_body_size=environment.settings.web.body_max_bytes,
        logging_config=None,
        pdb_on_exception=False,
    )


async def _needs_key(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    if handler.opt.get(OPEN):
        return
    state, given = state_of(connection), given_key(connection)
    if given:
        state.key_throttle.check(connection, given)
        is_right = state.keys.opens_api(given)
        state.key_throttle.note(connection, given, is_right=is_right)
    elif session := await state.sign_outs.session_in(connection):
        check_change(connection, session)
        is_right = True
    else:
        is_right = False
    if not is_right:
        raise NotAuthorizedException("the key is missing or wrong; send it as the header X-Api-Key")


async def _add_headers(message: Message, scope: Scope) -> None:  # noqa: ARG001 - Litestar's signature
    if message["type"] == "http.response.start":
        given = {name.lower() for name, _ in message["headers"]}  # the page brings a policy of its own
        message["headers"] = [
            *allowing_head(message["headers"]),
            *[each for each in ANSWER_HEADERS if each[0] not in given],
        ]


@frozen(kw_only=True)
class Health:
    """That it is alive, or ready. `service` tells it from other programs at the same port."""

    status: str
    service: str = SERVICE


@get("/health", opt={"open": True}, summary="Whether the process is alive")
async def health() -> Health:
    """Alive, if it answers at all."""
    await trio.lowlevel.checkpoint()
    return Health(status="alive")


@get("/ready", opt={"open": True}, summary="Whether it can do its work")
async def ready(request: AnyRequest) -> Response[Health] | Response[bytes]:
    """Ready, if every child of the tree is up and the database answers."""
    parts = parts_of(request)
    if state_of(request).closing.is_stopping or not parts.monitor.is_ready():
        return problem(503, "it is starting or stopping")
    try:
        with trio.fail_after(PATIENCE_S):
            await parts.environment.database.read(check)
    except (StorageUnavailable, CommitUnknown, trio.TooSlowError):
        return problem(503, "the database does not answer")
    return Response(Health(status="ready"))
