"""The client for each kind of source."""

from __future__ import annotations

from attrs import frozen

from actors.environment import Environment
from cormorant.clients.feeds import FeedClient, fetch_link
from cormorant.clients.files import Download
from cormorant.clients.http.transport import FetchLimits, Transport
from cormorant.clients.price_sites import PriceClient, PriceRecipe
from cormorant.clients.slskd import SlskdClient
from cormorant.clients.torznab import TorznabClient, TorznabOptions
from cormorant.rules.search.outcomes import SourceRefused
from cormorant.rules.search.requests import Caps, SearchPage, SearchRequest
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SEARCHED
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed
from cormorant.rules.watch.soulseek import offered
from storage.search.sources import SourceRecord

TIMEOUT_S = 120.0
"""Longer than any search may take: the limiter's own time-out is the one that counts."""
FEED_TIMEOUT_S = 900.0
"""Longer than any check may take, for the same reason."""


@frozen
class SourceClients:
    """Asks sources by the clients that come with the service."""

    environment: Environment

    async def search(self, record: SourceRecord, request: SearchRequest) -> SearchPage:
        """One page of results."""
        if record.kind == "spotify":
            raise SourceRefused(f"{record.name} knows artists, and is not searched")
        if record.kind == "slskd":
            return await self._peers(record, request)
        if record.kind == "prices":
            recipe = price_recipes(self.environment.settings).get(record.name, PriceRecipe())
            client = PriceClient(record.url, record.key, self._transport(record), self.environment, recipe=recipe)
            return await client.search(request)
        return await self._client(record).search(request)

    async def _peers(self, record: SourceRecord, request: SearchRequest) -> SearchPage:
        """What peers offer, each album or file as one result."""
        client = SlskdClient(record.url, record.key, self._transport(record), self.environment)
        found = await client.search(request.query)
        results = await self.environment.offload(offered, found.responses, request)
        return SearchPage(results=results, was_cut=found.was_cut)

    async def download(self, record: SourceRecord, link: str) -> Download:
        """What a link leads to, checked to be a torrent, an NZB or a magnet."""
        return await self._client(record).download(link)

    async def fetch_link(self, link: str) -> Download:
        """What a link of a feed leads to. Nobody wrote its address down, so that it leads to nothing private."""
        return await fetch_link(link, Transport(), self.environment)

    async def feed(self, subscription: DueFeed) -> FetchedFeed:
        """What a feed has now, or that nothing has changed. Its address is the operator's, until it moves to another host."""
        transport = Transport(written=[] if subscription.has_moved else [subscription.url])
        client = FeedClient(transport, self.environment, FetchLimits(timeout_s=FEED_TIMEOUT_S))
        return await client.fetch(subscription.url, etag=subscription.etag, last_modified=subscription.last_modified)

    async def caps(self, record: SourceRecord) -> Caps:
        """What the source can do."""
        return await self._client(record).caps()

    def _transport(self, record: SourceRecord) -> Transport:
        proxy = record.proxy or None
        written = [record.url] if proxy is None else [record.url, proxy.reveal()]
        return Transport(written=written, proxy=proxy)

    def _client(self, record: SourceRecord) -> TorznabClient:
        if record.kind not in SEARCHED:
            raise SourceRefused(f"{record.name} is of kind {record.kind}, and speaks no Torznab")
        options = TorznabOptions(protocol="usenet" if record.kind == "newznab" else None, timeout_s=TIMEOUT_S)
        return TorznabClient(record.url, record.key, self._transport(record), self.environment, options)


def price_recipes(settings: Settings) -> dict[str, PriceRecipe]:
    """How the sources of prices of the settings file are asked."""
    return {
        name: PriceRecipe(query=source.query, items=source.items, fields=source.fields)
        for name, source in settings.sources.items()
        if source.kind == "prices"
    }
