"""Fetches a feed or a link of a feed, and what its status means."""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus
from typing import Final

import httpx2

from cormorant.clients.feed_documents import FeedDocument, read_feed
from cormorant.clients.files import Download, download_from_magnet, parse_download
from cormorant.clients.http.transport import Answer, FetchLimits, Transport, is_same_party
from cormorant.rules.ports import Ports
from cormorant.rules.search.outcomes import SourceError, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.secrets import keys_in, shortened
from cormorant.rules.watch.feed_items import items_of
from cormorant.rules.watch.feeds import FeedEntryItem, FetchedFeed

_ACCEPT: Final = (
    "application/rss+xml, application/atom+xml, application/feed+json, application/rdf+xml;q=0.9, application/xml;q=0.8, "
    "text/xml;q=0.8, */*;q=0.1"
)
# What a server gives is given back as it was, or not at all.
_VALIDATOR: Final = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,999}")


class FeedClient:
    """Asks for feeds. The transport knows which addresses the operator wrote."""

    def __init__(self, transport: Transport, environment: Ports, limits: FetchLimits | None = None) -> None:
        self._transport = transport
        self._environment = environment
        self._limits = limits or FetchLimits()

    async def fetch(self, url: str, *, etag: str | None = None, last_modified: str | None = None) -> FetchedFeed:
        """What the feed has. With what was kept of the last answer, nothing is sent or read when nothing has changed.

        Raises a `SourceError`.
        """
        conditions = {"If-None-Match": _validator(etag), "If-Modified-Since": _validator(last_modified)}
        sent = {name: value for name, value in conditions.items() if value is not None}
        answer = await self._transport.get(
            url,
            # They go along with redirects: they come from where those led to.
            open_headers={"Accept": _ACCEPT, **sent},
            secrets=keys_in(url, in_path=False),
            limits=self._limits,
        )
        if answer.status == HTTPStatus.NOT_MODIFIED:
            if not sent:
                raise SourceUnavailable(f"{answer.origin} says that nothing has changed, and was never asked before")
            return FetchedFeed(is_unchanged=True, moved_to=_moved_to(url, answer))
        _refuse_status(answer, f"the feed at {answer.origin}", self._environment)
        return await self._page(url, answer)

    async def _page(self, url: str, answer: Answer) -> FetchedFeed:
        document, items = await self._environment.offload(partial(self._read, url, answer))
        return FetchedFeed(
            items=items,
            etag=_validator(answer.headers.get("ETag")),
            last_modified=_validator(answer.headers.get("Last-Modified")),
            moved_to=_moved_to(url, answer),
            left_out=document.left_out,
        )

    def _read(self, url: str, answer: Answer) -> tuple[FeedDocument, tuple[FeedEntryItem, ...]]:
        document = read_feed(answer.body, charset=answer.charset, address=answer.url)
        # What is secret in the address that was asked stays so, wherever it led to.
        return document, items_of(document.entries, addresses=(url, answer.url), now=self._environment.clock.now())


def _validator(text: str | None) -> str | None:
    return text if text and _VALIDATOR.fullmatch(text) else None


def _moved_to(url: str, answer: Answer) -> str | None:
    """Where it is for good. Who we are goes along only to the same party."""
    if not answer.has_moved:
        return None
    old, new = httpx2.URL(url), httpx2.URL(answer.url)
    if old.userinfo and is_same_party(old, new):
        new = new.copy_with(userinfo=old.userinfo)
    return str(new)


def _refuse_status(answer: Answer, asked: str, environment: Ports) -> None:
    error = error_of_feed(answer.status, asked=asked, retry_after_s=answer.retry_after_s(environment.clock.now()))
    if error is not None:
        raise error


_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY}


def error_of_feed(status: int, *, asked: str, retry_after_s: float | None = None) -> SourceError | None:
    """The error, or None when it is fine. `asked` is what was asked for, for people.

    >>> print(error_of_feed(410, asked="the feed at https://x.org"))
    the feed at https://x.org is gone for good (HTTP 410); remove it, or write its new address
    """
    if status in range(200, 300):
        return None
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return SourceLimited(
            f"{asked} was asked for too often (HTTP 429); check it less often", retry_after_s=retry_after_s
        )
    if status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return SourceUnavailable(f"{asked} cannot be had now (HTTP {status})", retry_after_s=retry_after_s)
    return SourceRefused(f"{asked} {_refusal(status)}")


def _refusal(status: int) -> str:
    if status == HTTPStatus.GONE:
        return "is gone for good (HTTP 410); remove it, or write its new address"
    if status == HTTPStatus.NOT_FOUND:
        return "is not there (HTTP 404); check its address"
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}:
        return f"is not given to us (HTTP {status}); check the key or password in its address"
    return f"was refused (HTTP {status}); check its address"


LIMITS: Final = FetchLimits(timeout_s=60.0, body_max_bytes=20_000_000)


async def fetch_link(link: str, transport: Transport, environment: Ports, *, limits: FetchLimits = LIMITS) -> Download:
    """Fetch it, and make sure what it is. Raises a `SourceError`."""
    if link.startswith("magnet:"):
        return download_from_magnet(link)
    secrets = keys_in(link, in_path=False)
    answer = await transport.get(link, secrets=secrets, limits=limits)
    if answer.magnet is not None:
        return download_from_magnet(answer.magnet)
    _refuse_status(answer, f"the download at {answer.origin}", environment)
    found = await environment.offload(partial(parse_download, answer.body))
    if isinstance(found, Download):
        return found
    raise SourceRefused(f"{answer.origin} gave an error instead of a download: {shortened(found.description, secrets)}")
