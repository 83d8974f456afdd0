"""Sign in and out."""

from __future__ import annotations

from datetime import datetime

from attrs import field, frozen
from litestar import Response, Router, delete, get, post
from litestar.exceptions import NotAuthorizedException
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import JSONBody

from cormorant.web.auth import BrowserSession, check_own_page
from cormorant.web.parts import state_of
from cormorant.web.problems import AnyRequest

__all__ = ["SessionOut", "session_routes"]


@frozen(kw_only=True)
class SessionOut:
    """Whether this browser is signed in. Every change it makes has `csrf` in the header X-Csrf-Token."""

    is_open: bool
    expires_at: datetime | None = None
    csrf: str | None = None


@frozen(kw_only=True)
class SignIn:
    """The key of the API."""

    key: str = field(repr=False)


_OPEN = {"open": True}
_EXAMPLE = {
    200: ResponseSpec(
        data_container=SessionOut,
        description="Whether this browser is signed in",
        generate_examples=False,
        examples=[
            Example(
                value={"is_open": True, "expires_at": "2026-01-15T12:00:00Z", "csrf": "8c0f…"},
                summary="signed in",
            )
        ],
    )
}


@get("/session", opt=_OPEN, summary="Whether this browser is signed in", responses=_EXAMPLE)
async def show_session(request: AnyRequest) -> SessionOut:
    """Never an error: a page that is opened for the first time has to ask."""
    return _shown(await state_of(request).sign_outs.session_in(request))


@post("/session", opt=_OPEN, summary="Sign a browser in", status_code=200)
async def begin_session(request: AnyRequest, data: JSONBody[SignIn]) -> Response[SessionOut]:
    """The answer sets a cookie that opens the API, as the header X-Api-Key does for programs."""
    check_own_page(request)
    state, given = state_of(request), data.key.strip()
    state.key_throttle.check(request, given)
    is_right = state.keys.opens_api(given)
    state.key_throttle.note(request, given, is_right=is_right)
    if not is_right:
        raise NotAuthorizedException("this is not the key; it is in the file keys/web.key of the data folder")
    sessions = state.sign_outs.sessions
    session = sessions.begin()
    is_secure = request.scope["scheme"] == "https"  # the guard has put in what a trusted proxy says
    return Response(_shown(session), cookies=[sessions.set_cookie(session, is_secure=is_secure)])


@delete("/session", summary="Sign a browser out", status_code=200)
async def end_session(request: AnyRequest) -> Response[SessionOut]:
    """The cookie is worth nothing afterwards, also where it was copied to. Its streams end.

    It is remembered after a restart, too, unless the database is away all the time until then.
    """
    sign_outs = state_of(request).sign_outs
    session = await sign_outs.session_in(request)
    if session is not None:
        await sign_outs.end(session)
    return Response(_shown(None), cookies=[sign_outs.sessions.drop_cookie()])


def _shown(session: BrowserSession | None) -> SessionOut:
    if session is None:
        return SessionOut(is_open=False)
    return SessionOut(is_open=True, expires_at=session.expires_at, csrf=session.change_token)


def session_routes() -> Router:
    """The addresses of this file."""
    return Router("/", route_handlers=[show_session, begin_session, end_session], tags=["session"])
