"""How is a source asked in the usual way? With the client of its kind, over a transport of its own."""

from __future__ import annotations

from attrs import frozen

from cormorant.clients.downloads import Download
from cormorant.clients.torznab import TorznabClient, TorznabOptions
from cormorant.clients.transport import Transport
from cormorant.rules.ports import Clock, Offload
from cormorant.rules.searches import Caps, SearchPage, SearchRequest
from storage.sources import SourceRecord

TIMEOUT_S = 120.0
"""Longer than any search may take: the limiter's own time-out is the one that counts."""


@frozen(kw_only=True)
class Asker:
    """Asks sources by the clients that come with the service."""

    offload: Offload
    clock: Clock

    async def search(self, record: SourceRecord, request: SearchRequest) -> SearchPage:
        """One page of results."""
        async with self._transport(record) as transport:
            return await self._client(record, transport).search(request)

    async def download(self, record: SourceRecord, link: str) -> Download:
        """What a link leads to, checked to be a torrent, an NZB or a magnet."""
        async with self._transport(record) as transport:
            return await self._client(record, transport).download(link)

    async def caps(self, record: SourceRecord) -> Caps:
        """What the source can do."""
        async with self._transport(record) as transport:
            return await self._client(record, transport).caps()

    def _transport(self, record: SourceRecord) -> Transport:
        proxy = record.proxy or None
        written = [record.url] if proxy is None else [record.url, proxy.reveal()]
        return Transport(written=written, proxy=proxy)

    def _client(self, record: SourceRecord, transport: Transport) -> TorznabClient:
        options = TorznabOptions(protocol="usenet" if record.kind == "newznab" else None, timeout_s=TIMEOUT_S)
        return TorznabClient(record.url, record.key, transport, offload=self.offload, clock=self.clock, options=options)
