"""Requests to targets translated to TargetErrors: taken, not now, never, in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import httpx2
from attrs import field, frozen

from cormorant.clients.http.transport import Answer, FetchLimits, Transport, read_url, shown_origin
from cormorant.rules.json_documents import parse_json
from cormorant.rules.ports import Clock
from cormorant.rules.search.outcomes import NoAnswer, SourceError, SourceRefused, SourceUnavailable
from cormorant.rules.secrets import Secret, shortened, spellings
from cormorant.rules.watch.handovers import (
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)

T = TypeVar("T", list[Any], dict[str, Any])

ANSWER_MAX_BYTES: Final = 10_000_000
_WORDS_MAX_BYTES: Final = 2_000


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

    def __init__(self, name: str, url: str, transport: Transport, clock: Clock, *, timeout_s: float = 30.0) -> None:
        self.name = name
        self._transport = transport
        self._clock = clock
        self._limits = FetchLimits(timeout_s=timeout_s, body_max_bytes=ANSWER_MAX_BYTES)
        self._secrets: tuple[Secret, ...] = ()
        try:
            self._base = read_url(url)
        except SourceRefused:
            raise TargetMisconfigured(
                f"the address of {name} is none; write http://host:port or https://host"
            ) from None
        if self._base.userinfo:
            self.keep_secret([Secret(self._base.password), Secret(str(self._base.userinfo, "ascii"))])

    def keep_secret(self, secrets: Iterable[Secret]) -> None:
        """Never show these."""
        self._secrets += tuple(secrets)

    def keep_path_secret(self) -> None:
        """Never show path and query of the address either: that of a webhook is often all that protects it."""
        self.keep_secret(Secret(part) for part in (self._base.path.strip("/"), self._base.query.decode("ascii")))

    async def call(self, call: TargetRequest) -> Answer:
        """Send it and read the answer, whatever its status. Raises `TargetUnavailable`, or `TargetInDoubt` if it gives."""
        typed = {"Content-Type": call.content.type} if call.content.type else {}
        try:
            return await self._transport.ask(
                call.method,
                self._address(call),
                body=call.content.body,
                headers=typed | dict(call.headers),
                secrets=self._secrets,
                limits=self._limits,
                redirects="give",
            )
        except SourceError as error:
            raise self._translated(error, call) from None

    def _translated(self, error: SourceError, call: TargetRequest) -> TargetError:
        no_answer = error.no_answer if isinstance(error, SourceUnavailable) else None
        if no_answer is None:
            return TargetMisconfigured(f"{self.name} cannot be called: {error}")
        message = self._lost(no_answer)
        is_doubtful = call.gives and no_answer.may_have_arrived
        return TargetInDoubt(f"{message}; it may have arrived") if is_doubtful else TargetUnavailable(message)

    def _address(self, call: TargetRequest) -> httpx2.URL:
        url = self._base
        if call.path:
            url = url.copy_with(path=f"{url.path.rstrip('/')}{call.path}")
        return url.copy_merge_params(list(call.params)) if call.params else url

    def _lost(self, no_answer: NoAnswer) -> str:
        where = f"{self.name} at {shown_origin(self._base)}"
        match no_answer.cause:
            case "late":
                return f"{where} did not answer within {self._limits.timeout_s:g} s"
            case "too large":
                return f"the answer of {self.name} has more than {ANSWER_MAX_BYTES:,} bytes"
            case "unreadable":
                return f"the answer of {self.name} cannot be read: {no_answer.said}"
            case "connection" if no_answer.may_have_arrived:
                return f"the connection to {where} was lost: {no_answer.said}"
            case "connection":
                return f"{where} cannot be reached: {no_answer.said}"

    def refuse_status(self, answer: Answer, *, gives: bool = False) -> None:
        """Raise what the status of an answer stands for."""
        wait_s = answer.retry_after_s(self._clock.now())
        error = error_of_status(self.name, answer.status, words=self.words(answer), retry_after_s=wait_s)
        if error is not None:
            raise error if gives or not isinstance(error, TargetInDoubt) else TargetUnavailable(str(error))

    def read(self, answer: Answer, kind: type[T], *, gives: bool = False) -> T:
        """The JSON of a good answer. Raises what its status stands for, and `strange` for what is of another kind."""
        self.refuse_status(answer, gives=gives)
        said = as_json(answer)
        if not isinstance(said, kind):
            raise self.strange(answer, gives=gives)
        return said

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
        return self.told(answer.body[:_WORDS_MAX_BYTES].decode("utf-8", "replace"))

    def told(self, text: str) -> str:
        """Foreign text, fit for a message."""
        return shortened(text, spellings(self._secrets))


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


def error_of_status(
    name: str, status: int, *, words: str = "", retry_after_s: float | None = None
) -> TargetError | None:
    """The error that the status of a reply stands for; None when it is good. `words` are the server's own, without secrets.

    >>> for status in 200, 302, 401, 404, 413, 429, 500, 502, 503:
    ...     print(status, type(error_of_status("x", status)).__name__)
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
    said = f"HTTP {status}, {words}" if words else f"HTTP {status}"
    remedy = _remedy(status)
    if status in _GOOD:
        return None
    if remedy is not None:
        return TargetMisconfigured(f"{name} {remedy[0]} ({said}); {remedy[1]}")
    if status in _NOT_NOW:
        return TargetUnavailable(f"{name} cannot take it now ({said})", retry_after_s=retry_after_s)
    if status in _CLIENT_ERRORS:
        return TargetRefused(f"{name} refused it ({said})")
    return TargetInDoubt(f"{name} failed while it had it ({said})", retry_after_s=retry_after_s)


def _remedy(status: int) -> tuple[str, str] | None:
    """What is wrong with how the target is set up, and what to do; None when the status says nothing of it."""
    if status in _REDIRECTS:
        return "redirects", "write the address that it leads to into the settings"
    if status in _CREDENTIALS:
        return "does not let us in", "check user, password and key"
    if status in _MISSING:
        return "is not at this address", "check host, port and path"
    return None
