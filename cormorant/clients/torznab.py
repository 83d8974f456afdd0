"""Asks a Torznab or Newznab indexer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, TypeVar, cast
from urllib.parse import urljoin

from attrs import frozen

from cormorant.clients.files import Download, download_from_magnet, parse_download
from cormorant.clients.http.transport import Answer, FetchLimits, Transport
from cormorant.clients.torznab_items import ItemReader
from cormorant.clients.torznab_replies import IndexerReply, StatedError, error_of, parse_page, read_caps, read_reply
from cormorant.rules.ports import Ports
from cormorant.rules.search.outcomes import SourceError, SourceRefused
from cormorant.rules.search.requests import Caps, Protocol, SearchKind, SearchPage, SearchRequest
from cormorant.rules.secrets import Secret, secret_texts, shortened, spellings

Found = TypeVar("Found", Caps, SearchPage, Download)

_FUNCTIONS: Final[Mapping[SearchKind, str]] = {
    "search": "search",
    "tv": "tvsearch",
    "movie": "movie",
    "music": "music",
    "book": "book",
}
_ACCEPT_XML: Final = "application/rss+xml, application/xml, text/xml"
_ACCEPT_FILE: Final = "application/x-bittorrent, application/x-nzb, */*"


@frozen(kw_only=True)
class TorznabOptions:
    """How long an indexer may take, how much it may send, and which protocol is wanted where a find offers both."""

    protocol: Protocol | None = None
    timeout_s: float = 30.0
    body_max_bytes: int = 10_000_000
    download_max_bytes: int = 50_000_000


class TorznabClient:
    """Talks to one indexer through `transport`, which knows its address as written. Every failure is a `SourceError`.

    `url` is that of the API, such as `http://prowlarr:9696/1/api`. `protocol` decides where a find offers both.
    """

    def __init__(
        self, url: str, key: Secret, transport: Transport, environment: Ports, options: TorznabOptions | None = None
    ) -> None:
        self._url = url
        self._key = key
        self._transport = transport
        self._environment = environment
        self._options = options or TorznabOptions()
        self._reader = ItemReader(url, protocol=self._options.protocol, secrets=secret_texts([key]))

    async def caps(self) -> Caps:
        """What the indexer can do."""
        answer = await self._ask([("t", "caps")])
        return await self._understand(answer, partial(_parse_caps, answer.body, charset=answer.charset))

    async def search(self, request: SearchRequest) -> SearchPage:
        """One page of results; without query and parameters what is new."""
        answer = await self._ask(_search_params(request))
        headers = {name.lower(): value for name, value in answer.headers.items()}
        parse = partial(parse_page, answer.body, self._reader, headers, charset=answer.charset)
        return await self._understand(answer, parse)

    async def download(self, link: str) -> Download:
        """Fetch what a result links to, and make sure that it is a torrent or an NZB."""
        if link.startswith("magnet:"):
            return download_from_magnet(link)
        answer = await self._transport.get(
            _joined(self._url, link),
            headers={"Accept": _ACCEPT_FILE},
            secrets=[self._key],
            limits=FetchLimits(timeout_s=self._options.timeout_s, body_max_bytes=self._options.download_max_bytes),
        )
        if answer.magnet is not None:
            return download_from_magnet(answer.magnet)
        return await self._understand(answer, partial(parse_download, answer.body))

    async def _ask(self, params: list[tuple[str, str]]) -> Answer:
        key = [("apikey", self._key.reveal())] if self._key else []
        limits = FetchLimits(timeout_s=self._options.timeout_s, body_max_bytes=self._options.body_max_bytes)
        return await self._transport.get(
            self._url,
            params=[*params, *key],
            headers={"Accept": _ACCEPT_XML},
            secrets=[self._key],
            limits=limits,
        )

    async def _understand(self, answer: Answer, parse: partial[Found | StatedError]) -> Found:
        """What the body says, read in a thread; an error wherever it is stated."""
        try:
            said = await self._environment.offload(parse)
        except SourceError:
            # What the status says weighs more than that the body says nothing.
            self._refuse(answer)
            raise
        self._refuse(answer, said if isinstance(said, StatedError) else None)
        return cast("Found", said)

    def _refuse(self, answer: Answer, stated: StatedError | None = None) -> None:
        error = error_of(self._reply(answer, stated))
        if error is not None:
            raise error

    def _reply(self, answer: Answer, stated: StatedError | None = None) -> IndexerReply:
        wait_s = answer.retry_after_s(self._environment.clock.now())
        if stated is None:
            return IndexerReply(status=answer.status, retry_after_s=wait_s)
        return IndexerReply(
            status=answer.status,
            code=stated.code,
            words=shortened(stated.description, spellings([self._key])) or "an error without words",
            retry_after_s=stated.retry_after_s if wait_s is None else wait_s,
            key_was_sent=bool(self._key),
        )


def _search_params(request: SearchRequest) -> list[tuple[str, str]]:
    params = [("t", _FUNCTIONS[request.kind])]
    if request.query.strip():
        params.append(("q", request.query))
    if request.categories:
        params.append(("cat", ",".join(map(str, request.categories))))
    params += request.params.items()
    params.append(("extended", "1"))
    if request.offset:
        params.append(("offset", str(request.offset)))
    if request.limit is not None:
        params.append(("limit", str(request.limit)))
    return params


def _parse_caps(body: bytes, *, charset: str) -> Caps | StatedError:
    reply = read_reply(body, charset=charset)
    return reply if isinstance(reply, StatedError) else read_caps(reply)


def _joined(base: str, link: str) -> str:
    try:
        return urljoin(base, link)
    except ValueError:
        # Not as its cause: the text of the error holds the link, and the link may hold a key.
        raise SourceRefused("the link of the result is no address") from None
