"""Requests to targets translated to TargetErrors: taken, not now, never, in doubt."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, cast
from urllib.parse import urlencode

import httpcore2
import httpx2
import trio
from attrs import field, frozen

from cormorant.clients.http.bodies import BodyTooLarge, BodyUnreadable, read_body, refuse_length
from cormorant.clients.http.headers import retry_after_s
from cormorant.clients.http.transport import (
    CLOSING_S,
    FOREIGN,
    USER_AGENT,
    Answer,
    Transport,
    error_text,
    own_headers,
    shown_origin,
    silence_http_logging,
)
from cormorant.rules.json_documents import parse_json
from cormorant.rules.ports import Clock
from cormorant.rules.search.outcomes import SourceError
from cormorant.rules.secrets import Secret, shortened, spellings
from cormorant.rules.watch.handovers import (
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)

ANSWER_MAX_BYTES: Final = 10_000_000
_WORDS_MAX_BYTES: Final = 2_000
_SENDING: Final = ".send_request_headers.started"


@frozen(kw_only=True)
class RequestBody:
    """The body of a request and its type."""

    type: str
    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")


NOTHING: Final = RequestBody(type="", body=b"")


def form(fields: Mapping[str, str]) -> RequestBody:
    """Fields as a form of a page is sent."""
    return RequestBody(type="application/x-www-form-urlencoded", body=urlencode(fields).encode("ascii"))


def multipart(fields: Mapping[str, str], files: Mapping[str, tuple[str, bytes, str]] | None = None) -> RequestBody:
    """Fields, and files given as name, body and type."""
    given = [(name, (None, text.encode("utf-8", "replace"))) for name, text in fields.items()]
    sent = httpx2.Request("POST", "http://x/", files=[*given, *(files or {}).items()])
    return RequestBody(type=sent.headers["Content-Type"], body=sent.read())


@frozen(kw_only=True)
class TargetRequest:
    """One request. `gives`: it hands something over, so that to lose its answer is to be in doubt."""

    path: str
    method: str = "POST"
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    content: RequestBody = NOTHING
    gives: bool = False


class TargetCaller:
    """Calls one target at the address the operator wrote. Follows no redirects: what we give is for this address alone."""

    def __init__(self, name: str, url: str, transport: Transport, *, clock: Clock, timeout_s: float = 30.0) -> None:
        self.name = name
        self._transport = transport
        self._clock = clock
        self._timeout_s = timeout_s
        self._secrets: tuple[Secret, ...] = ()
        try:
            self._base = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError, ValueError):
            # Not as its cause: the text of the error holds the address, and the address may hold a password.
            raise TargetMisconfigured(
                f"the address of {name} is none; write http://host:port or https://host"
            ) from None
        if self._base.scheme not in {"http", "https"} or not self._base.host:
            raise TargetMisconfigured(f"the address of {name} is none; write http://host:port or https://host")
        if self._base.userinfo:
            self.keep_secret([Secret(self._base.password), Secret(str(self._base.userinfo, "ascii"))])

    def keep_secret(self, secrets: Iterable[Secret]) -> None:
        """Never show these."""
        self._secrets += spellings(secrets)

    def keep_path_secret(self) -> None:
        """Never show path and query of the address either: that of a webhook is often all that protects it."""
        self.keep_secret(Secret(part) for part in (self._base.path.strip("/"), self._base.query.decode("ascii")))

    async def call(self, call: TargetRequest) -> Answer:
        """Send it and read the answer, whatever its status. Raises `TargetUnavailable`, or `TargetInDoubt` if it gives."""
        asked_at = trio.current_time()
        trip = _Sending(call)
        with trio.move_on_after(self._timeout_s), silence_http_logging():
            return await self._send(trip, asked_at)
        raise trip.error(f"{self.name} at {shown_origin(self._base)} did not answer within {self._timeout_s:g} s")

    def refuse_status(self, answer: Answer, *, gives: bool = False) -> None:
        """Raise what the status of an answer stands for."""
        error = error_of_reply(self._reply(answer))
        if error is not None:
            raise error if gives or not isinstance(error, TargetInDoubt) else TargetUnavailable(str(error))

    def strange(self, answer: Answer, *, gives: bool = False) -> TargetError:
        """The error for a good status with a body that the target cannot have written."""
        said = self.words(answer)
        message = (
            f"what answers at {shown_origin(self._base)} is not {self.name}: it says {said!r}; "
            "check the address, and whether a login page stands before it"
        )
        return TargetInDoubt(message) if gives else TargetUnavailable(message)

    def words(self, answer: Answer) -> str:
        """What the body of an answer says, fit for a message."""
        return shortened(answer.body[:_WORDS_MAX_BYTES].decode("utf-8", "replace"), self._secrets)

    def told(self, text: str) -> str:
        """Foreign text, fit for a message."""
        return shortened(text, self._secrets)

    def _reply(self, answer: Answer) -> TargetReply:
        wait_s = retry_after_s(answer.headers.get("Retry-After"), now=self._clock.now())
        return TargetReply(name=self.name, status=answer.status, words=self.words(answer), retry_after_s=wait_s)

    async def _send(self, trip: _Sending, asked_at: float) -> Answer:
        call = trip.call
        url = self._base.copy_with(fragment=None)
        if call.path:
            url = url.copy_with(path=f"{url.path.rstrip('/')}{call.path}")
        url = url.copy_merge_params(list(call.params)) if call.params else url
        try:
            headers = self._headers(call)
            bare = url.copy_with(userinfo=b"")
            answer = await self._transport.send(
                bare, headers, method=call.method, content=call.content.body, extensions={"trace": trip.trace}
            )
            try:
                body = await self._body(answer, trip)
            finally:
                with trio.move_on_after(CLOSING_S, shield=True):
                    await answer.aclose()
        except FOREIGN as error:
            self._translate(error, trip)
        except SourceError as error:
            raise TargetMisconfigured(f"{self.name} cannot be called: {error}") from None
        took_s = trio.current_time() - asked_at
        return Answer(
            status=answer.status, headers=httpx2.Headers(answer.headers), body=body, url=str(bare), took_s=took_s
        )

    def _headers(self, call: TargetRequest) -> dict[str, str]:
        common = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "gzip, deflate", "Connection": "close"}
        typed = {"Content-Type": call.content.type} if call.content.type else {}
        return common | typed | own_headers(self._base, call.headers)

    async def _body(self, answer: httpcore2.Response, trip: _Sending) -> bytes:
        headers = httpx2.Headers(answer.headers)
        try:
            refuse_length(headers.get("Content-Length", ""), bytes_max=ANSWER_MAX_BYTES)
            stream = cast("AsyncIterable[bytes]", answer.stream)
            encoding = headers.get("Content-Encoding", "")
            return await read_body(stream, encoding=encoding, bytes_max=ANSWER_MAX_BYTES)
        except BodyTooLarge:
            raise trip.error(f"the answer of {self.name} has more than {ANSWER_MAX_BYTES:,} bytes") from None
        except BodyUnreadable as error:
            raise trip.error(f"the answer of {self.name} cannot be read: {error}") from error

    def _translate(self, error: Exception, trip: _Sending) -> NoReturn:
        # Not as its cause: a foreign error may hold headers, and headers hold keys.
        said = self.told(error_text(error))
        where = f"{self.name} at {shown_origin(self._base)}"
        lost = f"the connection to {where} was lost: {said}"
        raise trip.error(lost if trip.was_begun else f"{where} cannot be reached: {said}") from None


class _Sending:
    """Whether the first byte of a request may have left."""

    def __init__(self, call: TargetRequest) -> None:
        self.call = call
        self.was_begun = False

    async def trace(self, name: str, _told: Mapping[str, Any]) -> None:
        """Hear of each step of httpcore2. That of connecting through a proxy counts, too: rather ask once too often."""
        self.was_begun = self.was_begun or name.endswith(_SENDING)

    def error(self, message: str) -> TargetError:
        """The error for a request that ended without its answer."""
        is_doubtful = self.was_begun and self.call.gives
        return TargetInDoubt(f"{message}; it may have arrived") if is_doubtful else TargetUnavailable(message)


def as_json(answer: Answer) -> Any:
    """The body as JSON; None when it is none."""
    try:
        return parse_json(answer.body)
    except ValueError:
        return None


_GOOD = range(200, 300)
_REDIRECTS = range(300, 400)
_CLIENT_ERRORS = range(400, 500)
_CREDENTIALS = {401, 403, 407}
_MISSING = {404, 405}
# Said before anything is done with a request. 502 and 504 come from a proxy that may have passed it on.
_NOT_NOW = {408, 425, 429, 503, 507}


@frozen(kw_only=True)
class TargetReply:
    """What of a reply decides. `words` are the server's own, without secrets."""

    name: str
    """How the target is called in messages."""
    status: int
    words: str = ""
    retry_after_s: float | None = None


def error_of_reply(reply: TargetReply) -> TargetError | None:
    """The error that a reply stands for; None when the status is good.

    >>> for status in 200, 302, 401, 404, 413, 429, 500, 502, 503:
    ...     print(status, type(error_of_reply(TargetReply(name="x", status=status))).__name__)
    200 NoneType
    302 TargetMisconfigured
    401 TargetMisconfigured
    404 TargetMisconfigured
    413 TargetRefused
    429 TargetUnavailable
    500 TargetInDoubt
    502 TargetInDoubt
    503 TargetUnavailable
    """
    status, name = reply.status, reply.name
    said = f"HTTP {status}, {reply.words}" if reply.words else f"HTTP {status}"
    remedy = _remedy(status)
    if status in _GOOD:
        return None
    if remedy is not None:
        return TargetMisconfigured(f"{name} {remedy[0]} ({said}); {remedy[1]}")
    if status in _NOT_NOW:
        return TargetUnavailable(f"{name} cannot take it now ({said})", retry_after_s=reply.retry_after_s)
    if status in _CLIENT_ERRORS:
        return TargetRefused(f"{name} refused it ({said})")
    return TargetInDoubt(f"{name} failed while it had it ({said})", retry_after_s=reply.retry_after_s)


def _remedy(status: int) -> tuple[str, str] | None:
    """What is wrong with how the target is set up, and what to do; None when the status says nothing of it."""
    if status in _REDIRECTS:
        return "redirects", "write the address that it leads to into the settings"
    if status in _CREDENTIALS:
        return "does not let us in", "check user, password and key"
    if status in _MISSING:
        return "is not at this address", "check host, port and path"
    return None
