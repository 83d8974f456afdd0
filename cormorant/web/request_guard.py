"""ASGI middleware: framing, proxies, rate, body."""

from __future__ import annotations

from typing import Any, Final

import trio
from attrs import define, field
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from actors.environment import Environment
from cormorant.rules.events import WebClientTooFast
from cormorant.rules.web_requests import (
    LogThrottle,
    TokenBuckets,
    address_group,
    body_bytes,
    forwarded_client,
    forwarded_host,
    framing_problem,
    headers_of,
    is_within,
    path_problem,
)
from cormorant.web.listener import CONNECTION
from cormorant.web.metrics import Metrics
from cormorant.web.problems import ANSWER_HEADERS, PROBLEM_TYPE, problem_body, retry_after

__all__ = ["RequestGuard"]

_BURST_S: Final = 2.0
_BODIES_BYTES_MAX: Final = 64_000_000
"""Of all requests together that are being read."""
_BUSY_S: Final = 5
_HEADERS: Final = ((b"content-type", PROBLEM_TYPE.encode()), (b"connection", b"close"), *ANSWER_HEADERS)

Headers = dict[str, list[str]]


class _Refused(Exception):
    def __init__(self, status: int, detail: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s


class _ClientGone(Exception):
    """Whoever asked has hung up."""


@define(eq=False, kw_only=True)
class RequestGuard:
    """Looks at every request, reads its body, and hands it to the application."""

    environment: Environment = field(kw_only=False)
    app: ASGIApp
    metrics: Metrics
    _buckets: TokenBuckets = field(init=False)
    _said: LogThrottle = field(init=False, factory=LogThrottle)
    _reading_bytes: int = field(init=False, default=0)
    _health: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        per_s = float(self.environment.settings.web.requests_per_second)
        self._buckets = TokenBuckets(per_s=per_s, burst=max(1.0, per_s * _BURST_S))
        self._health = f"{self.environment.settings.web.url_base.rstrip('/')}/health"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Be an ASGI application."""
        if scope["type"] != ScopeType.HTTP:
            await send({"type": "websocket.close", "code": 1000, "reason": None})
            return
        state: dict[str, Any] = scope.get("state", {})
        state.pop(CONNECTION, None)
        try:
            headers = headers_of(scope["headers"])
            self._check(scope, headers)
            self._believe_proxies(scope, headers)
            self._check_rate(scope)
            body = await self._body(receive)
        except _Refused as refusal:
            self.metrics.answered(refusal.status)
            await _refuse(refusal, receive, send)
        except _ClientGone:
            return
        else:
            await self.app(scope, _Replay(body, receive), self._counting(send))

    def _counting(self, send: Send) -> Send:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.metrics.answered(message["status"])
            await send(message)

        return counting

    def _check(self, scope: HTTPScope, headers: Headers) -> None:
        problem = path_problem(scope["raw_path"]) or framing_problem(headers)
        if problem is not None:
            raise _Refused(400, problem)
        if (body_bytes(headers) or 0) > self.environment.settings.web.body_max_bytes:
            raise _Refused(413, f"the body is larger than {self.environment.settings.web.body_max_bytes} bytes")

    def _believe_proxies(self, scope: HTTPScope, headers: Headers) -> None:
        peer = scope["client"]
        if peer is None or not is_within(peer[0], self.environment.settings.web.trusted_proxies):
            return
        told = ",".join(headers.get("x-forwarded-for", []))
        scope["client"] = (forwarded_client(peer[0], told, self.environment.settings.web.trusted_proxies), peer[1])
        scheme = headers.get("x-forwarded-proto", [""])[-1].rpartition(",")[2].strip().lower()
        if scheme in {"http", "https"}:
            scope["scheme"] = scheme
        host = forwarded_host(headers.get("x-forwarded-host", [""])[-1])
        if host is not None:
            others = [(name, value) for name, value in scope["headers"] if name.lower() != b"host"]
            scope["headers"] = [(b"host", host.encode()), *others]

    def _check_rate(self, scope: HTTPScope) -> None:
        if scope["path"] == self._health:
            return
        client = address_group(scope["client"][0] if scope["client"] else "")
        now = trio.current_time()
        wait_s = self._buckets.take(client, now=now)
        if wait_s > 0:
            if self._said.should_log(client, now=now):
                self.environment.emit(WebClientTooFast(client=client))
            raise _Refused(429, "you ask too fast; wait", retry_after_s=wait_s)

    async def _body(self, receive: Receive) -> bytes:
        """The whole body, within its time: so nothing behind waits for one who sends a byte a minute."""
        kept = 0
        parts: list[bytes] = []
        try:
            with trio.fail_after(self.environment.settings.web.body_timeout_s):
                while True:
                    message: Any = await receive()
                    if message["type"] != "http.request":
                        raise _ClientGone
                    part = message["body"]
                    kept += len(part)
                    self._reading_bytes += len(part)
                    self._check_size(kept)
                    parts.append(part)
                    if not message["more_body"]:
                        return b"".join(parts)
        except trio.TooSlowError:
            raise _Refused(
                408, f"the body took longer than {self.environment.settings.web.body_timeout_s:g} s"
            ) from None
        finally:
            self._reading_bytes -= kept

    def _check_size(self, kept: int) -> None:
        if kept > self.environment.settings.web.body_max_bytes:
            raise _Refused(413, f"the body is larger than {self.environment.settings.web.body_max_bytes} bytes")
        if self._reading_bytes > _BODIES_BYTES_MAX:
            raise _Refused(503, "too many large requests at once; wait", retry_after_s=_BUSY_S)


@define(eq=False)
class _Replay:
    """Receives the body that was read, and after it what still comes: that whoever asked has hung up."""

    body: bytes
    receive: Receive
    _is_told: bool = field(init=False, default=False)

    async def __call__(self) -> Any:
        if self._is_told:
            return await self.receive()
        self._is_told = True
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": self.body, "more_body": False}


async def _refuse(refusal: _Refused, receive: Receive, send: Send) -> None:
    body = problem_body(refusal.status, refusal.detail)
    headers = [*_HEADERS, (b"content-length", str(len(body)).encode())]
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", retry_after(refusal.retry_after_s).encode()))
    # Hypercorn hands on what comes until there is no more room, and ends nothing before it could: somebody has to take it.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_throw_away, receive)
        start: Message = {"type": "http.response.start", "status": refusal.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": body, "more_body": False})
        nursery.cancel_scope.cancel()


async def _throw_away(receive: Receive) -> None:
    while True:
        await receive()
