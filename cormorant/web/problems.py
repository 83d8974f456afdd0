"""Problem documents (RFC 9457); refuses unknown fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import attrs
import msgspec
import trio
from attrs import define, field, frozen
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap
from typing_extensions import override

from actors.environment import Environment
from cormorant.rules.errors import CormorantError
from cormorant.rules.events import WebBodyTooDeep, WebRequestCrashed
from cormorant.rules.json_documents import NestedTooDeep, check_nesting
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.secrets import redact_passwords
from cormorant.rules.web_requests import LogThrottle
from cormorant.web.auth import client_of
from cormorant.web.head_requests import asked_method
from cormorant.web.parts import WebParts, state_of

PROBLEM_TYPE = "application/problem+json"
BUSY_S = 5
"""When to come back if so much waits that nothing more is taken in, or the database is away."""

_COME_BACK = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_SHOWN_AS = {"in_state": "state"}
"""Parameters whose names Litestar keeps for itself."""

AnyRequest = Request[Any, Any, Any]


@frozen(kw_only=True)
class ProblemDocument:
    """A problem document."""

    title: str
    status: int
    detail: str = ""
    errors: tuple[str, ...] = ()


ANSWER_HEADERS: Final = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)
"""The headers of every answer that has no others of these names."""


def retry_after(wait_s: float) -> str:
    """The header Retry-After: whole seconds, at least one."""
    return str(max(1, math.ceil(wait_s)))


def problem_body(status: int, detail: str, errors: tuple[str, ...] = ()) -> bytes:
    """The document that tells of a problem."""
    told = ProblemDocument(title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors)
    return msgspec.json.encode(told)


def problem(
    status: int, detail: str = "", *, errors: tuple[str, ...] = (), headers: Mapping[str, str] | None = None
) -> Response[bytes]:
    """The answer that tells of a problem."""
    body = problem_body(status, detail, errors)
    return Response(body, status_code=status, media_type=PROBLEM_TYPE, headers=dict(headers or {}))


def parts_of(request: AnyRequest) -> WebParts:
    """What the web of this request was put together from."""
    return state_of(request).parts


def _of_http(_: AnyRequest, error: HTTPException) -> Response[bytes]:
    extra: Any = error.extra
    wrong = extra if isinstance(extra, list) else []
    named = [(str(each.get("key", "")), each.get("message", "")) for each in wrong if isinstance(each, dict)]
    errors = tuple(f"{_SHOWN_AS.get(key, key)}: {message}" for key, message in named)
    kept = {name: value for name, value in (error.headers or {}).items() if name.lower() in {"retry-after", "allow"}}
    detail = "" if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR else str(error.detail)
    return problem(error.status_code, detail, errors=errors, headers=kept)


def _of_error(request: AnyRequest, error: CormorantError) -> Response[bytes]:
    """The answer that the class of the error states; one of which nobody thought is logged."""
    if error.http_status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return _crashed(request, error)
    wait_s = error.retry_after_s
    if wait_s is None and error.http_status in _COME_BACK:
        wait_s = BUSY_S
    later = {} if wait_s is None else {"Retry-After": retry_after(wait_s)}
    return problem(error.http_status, redact_passwords(str(error)), headers=later)


def _too_deep(request: AnyRequest, error: NestedTooDeep) -> Response[bytes]:
    state_of(request).crashes.too_deep(client=client_of(request), path=request.scope["path"])
    return problem(400, str(error))


def _crashed(request: AnyRequest, error: Exception) -> Response[bytes]:
    state_of(request).crashes.crashed(error, method=asked_method(request), path=request.scope["path"])
    return problem(500, "it was logged; look for web.request_crashed")


def problem_handlers() -> ExceptionHandlersMap:
    """Which error becomes which problem."""
    return {
        HTTPException: _of_http,
        NestedTooDeep: _too_deep,
        CormorantError: _of_error,
        Exception: _crashed,
    }


class BoundedRequest(Request[Any, Any, Any]):
    """A request whose JSON cannot be nested too deep. Litestar reads every body through it."""

    @override
    async def json(self) -> Any:
        """The body. Raises `NestedTooDeep`."""
        try:
            body = await super().json()
        except RecursionError:
            raise NestedTooDeep from None
        check_nesting(body)
        return body


def refuse_unknown(body: object, model: type[Any]) -> None:
    """Raise `BadRequest` for a field that the model has not."""
    known = sorted(attrs.fields_dict(model))
    unknown = sorted(set(body) - set(known)) if isinstance(body, dict) else []
    if unknown:
        raise BadRequest(str(unknown[0])[:40], f"there is no such field; there are {', '.join(known)}")


_PATH_MAX = 200


@define(eq=False, kw_only=True)
class Crashes:
    """Emits an event for each kind of error at most once a minute in all, with the number of those left out."""

    environment: Environment = field(kw_only=False)
    _said: LogThrottle = field(init=False, factory=LogThrottle)

    def crashed(self, error: BaseException, *, method: str, path: str) -> None:
        """Report a request that was answered with 500."""
        left_out = self._said.log_or_count(kind_of(error), now=trio.current_time())
        if left_out is not None:
            self.environment.emit(
                WebRequestCrashed(method=method, path=path[:_PATH_MAX], error=error, left_out=left_out)
            )

    def too_deep(self, *, client: str, path: str) -> None:
        """Report a body that was refused for its nesting."""
        left_out = self._said.log_or_count("too deep", now=trio.current_time())
        if left_out is not None:
            self.environment.emit(WebBodyTooDeep(client=client, path=path[:_PATH_MAX], left_out=left_out))


def kind_of(error: BaseException) -> str:
    """The type of an error and the line that raised it. Nothing in it comes from a request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__qualname__}{where}"
