"""Bounded, safe HTTP requests; says whether a failed one may have arrived."""

from __future__ import annotations

import base64
import logging
import re
import ssl
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from typing import Any, Final, Literal, NoReturn, Protocol, cast

import httpcore2
import httpx2
import trio
from attrs import define, field, frozen

from cormorant import __version__
from cormorant.clients.http.bodies import BodyTooLarge, BodyUnreadable, read_body, refuse_length, stream_body
from cormorant.clients.http.dialer import Dialer, Place
from cormorant.clients.http.headers import charset_of, retry_after_s
from cormorant.rules.addresses import is_for_good
from cormorant.rules.search.outcomes import NoAnswer, SourceError, SourceRefused, SourceUnavailable, Unreachable
from cormorant.rules.secrets import Secret, redact_link, shortened, spellings

USER_AGENT: Final = f"Cormorant/{__version__}"
REDIRECTS_MAX: Final = 5
_CLOSING_S: Final = 1.0
_REDIRECTS: Final = {301, 302, 303, 307, 308}
_GOOD: Final = range(200, 300)
_PORTS: Final = {"http": 80, "https": 443}
_HEADER: Final = re.compile(r"[\x20-\x7e]*")
# httpcore2 has no common base for its errors.
_FOREIGN: Final = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
    trio.BrokenResourceError,
    OSError,
)
_NOT_SENT: Final = (httpcore2.ConnectError, httpcore2.ConnectTimeout)
_SENDING: Final = ".send_request_headers.started"

Redirects = Literal["follow", "refuse", "give"]


class AnswerTooLarge(SourceUnavailable):
    """There was more than the limit; the rest was not read."""


@frozen(kw_only=True)
class FetchLimits:
    """How long a request may take from its first byte to its last, redirects included, and how large the answer may be."""

    timeout_s: float = 30.0
    body_max_bytes: int = 10_000_000
    idle_s: float | None = None
    """How long nothing may come; None: as long as the whole may take."""


class Sink(Protocol):
    """Takes a body that is too large to be held. What it raises ends the fetch and goes on up."""

    async def begin(self, headers: httpx2.Headers) -> None:
        """The answer is good and its body follows."""
        ...

    async def take(self, piece: bytes) -> None:
        """The next piece of the body."""
        ...


@frozen(kw_only=True)
class Answer:
    """What came back, whatever its status. A redirect to a magnet is no body but a `magnet`. `url` may hold a key.

    `has_moved`: `url` is not what was asked for, and every redirect on the way there was meant to last and can be believed.
    """

    status: int
    headers: httpx2.Headers = field(repr=False)
    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")
    url: str = field(repr=redact_link)
    magnet: str | None = field(default=None, repr=False)
    has_moved: bool = False

    @property
    def is_good(self) -> bool:
        """Whether its status says so."""
        return self.status in _GOOD

    @property
    def is_page(self) -> bool:
        """Whether it is a web page."""
        return "html" in self.headers.get("Content-Type", "").lower()

    @property
    def charset(self) -> str:
        """The encoding that it states."""
        return charset_of(self.headers.get("Content-Type", ""))

    @property
    def origin(self) -> str:
        """Where it came from: no path and no query."""
        return shown_origin(httpx2.URL(self.url))

    def retry_after_s(self, now: datetime) -> float | None:
        """Seconds after which asking again may work, where it says so."""
        return retry_after_s(self.headers.get("Retry-After"), now=now)


class Transport:
    """Sends requests for one source, each over a connection of its own.

    `written` are the addresses the operator wrote: their hosts may be private. `proxy` is one of them.
    """

    def __init__(self, *, written: Iterable[str] = (), proxy: Secret | None = None) -> None:
        self._written = frozenset(place_of(read_url(address)) for address in written)
        self._proxy = None if proxy is None else _proxy(proxy)
        on_the_way = self._written if self._proxy is None else {place_of(self._proxy)}
        self._names = Dialer(self._written)
        self._dialer = Dialer(on_the_way)

    async def get(
        self,
        url: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        open_headers: Mapping[str, str] | None = None,
        secrets: Iterable[Secret] = (),
        limits: FetchLimits = FetchLimits(),  # noqa: B008 - frozen, so that sharing it is harmless
    ) -> Answer:
        """Fetch `url`, following redirects. Raises a `SourceError`; `headers` and `params` never reach another origin.

        `open_headers` do: they hold no secret.
        """
        trip = self._exchange(url, limits, headers, secrets)
        trip.open = _own_headers(httpx2.URL(), open_headers or {})
        trip.url = trip.url.copy_merge_params(list(params)) if params else trip.url
        return await trip.run()

    async def fetch_into(self, url: str, sink: Sink, *, limits: FetchLimits) -> Answer:
        """As `get`, but the body of a good answer goes to `sink` piece by piece, and the answer has none."""
        trip = self._exchange(url, limits, None, ())
        trip.sink = sink
        return await trip.run()

    async def ask(  # noqa: PLR0913 - all that a request may have, by name
        self,
        method: str,
        url: str | httpx2.URL,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[Secret] = (),
        limits: FetchLimits = FetchLimits(),  # noqa: B008 - frozen, so that sharing it is harmless
        redirects: Redirects = "refuse",
    ) -> Answer:
        """Send to one address, by any method. No redirect is followed. Raises a `SourceError`, or gives any answer."""
        trip = self._exchange(url, limits, headers, secrets)
        trip.method, trip.content, trip.redirects = method, body, redirects
        return await trip.run()

    def _exchange(
        self, url: str | httpx2.URL, limits: FetchLimits, headers: Mapping[str, str] | None, secrets: Iterable[Secret]
    ) -> _Exchange:
        address = read_url(url)
        bare = address.copy_with(userinfo=b"", fragment=None)
        return _Exchange(self, bare, limits, own=_own_headers(address, headers or {}), secrets=spellings(secrets))

    def pool_for(self, url: httpx2.URL) -> httpcore2.AsyncConnectionPool:
        """What sends one request to this address. Raises `SourceRefused` where it may not be sent."""
        self._names.check_name(place_of(url))
        # No connection is kept: a source is asked seconds apart, and each request has its address checked.
        tls = _tls()
        if self._proxy is None:
            return httpcore2.AsyncConnectionPool(
                ssl_context=tls, max_keepalive_connections=0, network_backend=self._dialer
            )
        url = self._proxy
        return httpcore2.AsyncHTTPProxy(
            proxy_url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/"),
            proxy_auth=(url.username, url.password) if url.userinfo else None,
            ssl_context=tls,
            max_keepalive_connections=0,
            network_backend=self._dialer,
        )


@define(eq=False)
class _Exchange:
    """One request with its redirects."""

    transport: Transport
    url: httpx2.URL
    limits: FetchLimits
    own: dict[str, str]
    """The headers for the first origin alone."""
    secrets: tuple[Secret, ...]
    open: dict[str, str] = field(factory=dict)
    sink: Sink | None = None
    method: str = "GET"
    content: bytes = b""
    redirects: Redirects = "follow"
    steps: list[bool] = field(factory=list)
    has_begun: bool = False
    """Whether the first byte of the last request may have left."""

    async def run(self) -> Answer:
        """Follow redirects until there is an answer, or time is up."""
        with trio.move_on_after(self.limits.timeout_s), _silence_http_logging():
            return await self._follow()
        late = SourceUnavailable(f"{shown_origin(self.url)} did not answer in full within {self.limits.timeout_s:g} s")
        late.no_answer = NoAnswer(cause="late", may_have_arrived=self.has_begun)
        raise late

    async def _trace(self, name: str, _told: Mapping[str, Any]) -> None:
        """Hear of each step of httpcore2. That of connecting through a proxy counts, too: rather ask once too often."""
        self.has_begun = self.has_begun or name.endswith(_SENDING)

    async def _follow(self) -> Answer:
        seen: list[str] = []
        while len(seen) <= REDIRECTS_MAX:
            if str(self.url) in seen:
                raise SourceUnavailable(f"{shown_origin(self.url)} redirects in a circle")
            seen.append(str(self.url))
            answer = await self._step()
            if answer is not None:
                return answer
        raise SourceUnavailable(f"{shown_origin(self.url)} redirects more than {REDIRECTS_MAX} times")

    async def _step(self) -> Answer | None:
        self.has_begun = False
        try:
            answer = await self._send()
            try:
                return await self._read(answer)
            finally:
                with trio.move_on_after(_CLOSING_S, shield=True):
                    await answer.aclose()
        except _FOREIGN as error:
            self._translate(error)

    async def _send(self) -> httpcore2.Response:
        """Send the request and give its answer, unread. Raises the errors of httpcore2."""
        common = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "gzip, deflate", "Connection": "close"}
        waits = {} if self.limits.idle_s is None else {"timeout": {"read": self.limits.idle_s}}
        url, sent = self.url, common | self.open | self.own
        return await self.transport.pool_for(url).handle_async_request(
            httpcore2.Request(
                method=self.method,
                url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=httpx2.Request(self.method, url, headers=sent, content=self.content).headers.raw,
                content=self.content,
                extensions={"trace": self._trace, **waits},
            )
        )

    async def _read(self, answer: httpcore2.Response) -> Answer | None:
        headers = httpx2.Headers(answer.headers)
        leads_away = answer.status in _REDIRECTS and self.redirects != "give"
        location = headers.get("Location") if leads_away else None
        magnet = location if location and location.lower().startswith("magnet:") else None
        if location and not magnet:
            if self.redirects == "refuse":
                raise SourceRefused(f"{shown_origin(self.url)} redirects; write the address that it redirects to")
            old = self.url.scheme
            self._go_to(location)
            self.steps.append(is_for_good(answer.status, old=old, new=self.url.scheme))
            return None
        return Answer(
            status=answer.status,
            headers=headers,
            body=b"" if magnet else await self._body(answer, headers),
            url=str(self.url),
            magnet=magnet,
            has_moved=bool(self.steps) and all(self.steps),
        )

    def _go_to(self, location: str) -> None:
        try:
            target = self.url.join(location).copy_with(userinfo=b"", fragment=None)
        except (httpx2.InvalidURL, ValueError, TypeError):
            # Not as its cause: the text of the error holds the link, and the link may hold our key.
            raise SourceUnavailable(f"{shown_origin(self.url)} redirects to what is no address") from None
        if target.scheme not in _PORTS or not target.host:
            raise SourceRefused(f"{shown_origin(self.url)} redirects to what is neither http nor https")
        if not is_same_party(self.url, target):
            self.own = {}
            self._keep_keys_from(target)
        self.url = target

    def _keep_keys_from(self, target: httpx2.URL) -> None:
        if not self._holds_secret(target):
            return
        where = "another address" if self._holds_secret(target.copy_with(query=None)) else shown_origin(target)
        raise SourceRefused(
            f"{shown_origin(self.url)} redirects to {where} with our key, which is not sent to others; "
            "if it is the same site, write that address into the settings of the source"
        )

    def _holds_secret(self, url: httpx2.URL) -> bool:
        return any(secret.reveal() in str(url) for secret in self.secrets)

    async def _body(self, answer: httpcore2.Response, headers: httpx2.Headers) -> bytes:
        most = self.limits.body_max_bytes
        if self.sink is not None and answer.status not in _GOOD:
            return b""
        try:
            refuse_length(headers.get("Content-Length", ""), bytes_max=most)
            stream = cast("AsyncIterable[bytes]", answer.stream)
            return await self._kept(stream, headers, bytes_max=most)
        except BodyTooLarge as error:
            large = AnswerTooLarge(f"the answer of {shown_origin(self.url)} has more than {most:,} bytes")
            large.no_answer = NoAnswer(cause="too large", may_have_arrived=True)
            raise large from error
        except BodyUnreadable as error:
            odd = SourceUnavailable(f"the answer of {shown_origin(self.url)} cannot be read: {error}")
            odd.no_answer = NoAnswer(cause="unreadable", may_have_arrived=True, said=str(error))
            raise odd from error

    async def _kept(self, stream: AsyncIterable[bytes], headers: httpx2.Headers, *, bytes_max: int) -> bytes:
        encoding = headers.get("Content-Encoding", "")
        if self.sink is None:
            return await read_body(stream, encoding=encoding, bytes_max=bytes_max)
        await self.sink.begin(headers)
        await stream_body(stream, self.sink.take, encoding=encoding, bytes_max=bytes_max)
        return b""

    def _translate(self, error: Exception) -> NoReturn:
        said = _error_text(error)
        shown = shortened(said, self.secrets)
        # A foreign error that holds a secret is not shown as the cause either.
        cause = error if shown == " ".join(said.split()) else None
        kind = Unreachable if isinstance(error, _NOT_SENT) else SourceUnavailable
        lost = kind(f"{shown_origin(self.url)} cannot be reached or does not speak HTTP: {shown}")
        lost.no_answer = NoAnswer(cause="connection", may_have_arrived=self.has_begun, said=shown)
        raise lost from cause


def _error_text(error: BaseException) -> str:
    """What an error says, or what caused it: a refused certificate lies two errors deep."""
    inner: BaseException | None = error
    while inner is not None:
        if str(inner):
            return str(inner)
        inner = inner.__cause__ or inner.__context__
    return type(error).__name__


@cache
def _tls() -> ssl.SSLContext:
    """One for all: reading the certificates of the world takes 50 ms."""
    return httpx2.create_ssl_context(trust_env=False)


def place_of(url: httpx2.URL) -> Place:
    """Host and port, as they are connected to."""
    return url.raw_host.decode("ascii"), url.port or _PORTS.get(url.scheme, 0)


def is_same_party(one: httpx2.URL, other: httpx2.URL) -> bool:
    """Whether what may be sent to the one may be sent to the other: one origin, or its own step up to https.

    >>> is_same_party(httpx2.URL("http://x.org/a"), httpx2.URL("https://x.org/b"))
    True
    >>> is_same_party(httpx2.URL("https://x.org/a"), httpx2.URL("http://x.org/a"))
    False
    """
    if one.scheme == other.scheme:
        return place_of(one) == place_of(other)
    is_step_up = (one.scheme, other.scheme) == ("http", "https")
    return is_step_up and place_of(one) == (place_of(other)[0], 80) and place_of(other)[1] == _PORTS["https"]


def shown_origin(url: httpx2.URL) -> str:
    """Scheme, host and port: no path and no query, where keys are."""
    port = "" if url.port is None else f":{url.port}"
    return f"{url.scheme}://{url.host}{port}"


def read_url(text: str | httpx2.URL) -> httpx2.URL:
    """The address that a text means. Raises `SourceRefused`, which shows nothing of it."""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, TypeError, ValueError):
        # Not as its cause: the text of the error holds the address, and the address may hold a key.
        raise SourceRefused("what was given is no address; write http://host/path or https://host/path") from None
    if url.scheme not in _PORTS or not url.host:
        raise SourceRefused("the address is neither http nor https; write http://host/path or https://host/path")
    return url


def _proxy(proxy: Secret) -> httpx2.URL:
    try:
        return read_url(proxy.reveal())
    except SourceError:
        raise SourceRefused("the proxy must be written as http://host:port or https://host:port") from None


def _own_headers(url: httpx2.URL, headers: Mapping[str, str]) -> dict[str, str]:
    """What is sent to the first origin alone: the given headers, and who we are if the address says so."""
    own = dict(headers)
    for name, value in own.items():
        # httpcore2 would refuse it, too, and show the value in its error.
        if not _HEADER.fullmatch(name) or not _HEADER.fullmatch(value):
            raise SourceRefused(f"the header {name[:40]!r} holds a character that no header can; check the key")
    if url.userinfo:
        pair = f"{url.username}:{url.password}".encode()
        own.setdefault("Authorization", f"Basic {base64.b64encode(pair).decode('ascii')}")
    return own


_is_ours: ContextVar[bool] = ContextVar("cormorant_request", default=False)


for _name in ("http11", "http2", "connection", "proxy", "socks"):
    logging.getLogger(f"httpcore2.{_name}").addFilter(lambda _record: not _is_ours.get())


@contextmanager
def _silence_http_logging() -> Iterator[None]:
    """Keep the log of the HTTP library silent in this task. What other tasks and programs do with it is still logged."""
    token = _is_ours.set(True)
    try:
        yield
    finally:
        _is_ours.reset(token)
