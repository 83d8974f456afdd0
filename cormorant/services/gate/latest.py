"""Latest releases for apps, rendered pages cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

import trio
from attrs import define, field, frozen

from actors.environment import Environment
from cormorant.rules.latest_polls import Times
from cormorant.services.gate.items import GateItems, GateResult, placeholder
from cormorant.services.gate.latest_poller import LatestPoller
from cormorant.services.gate.source_caps import SourceCaps
from cormorant.services.gate.torznab_documents import TorznabItem, TorznabPage, feed_document
from storage import gate as feeds
from storage.search.sources import SourceRecord

LIFE_S: Final = 60.0
"""Finds that are forgotten because they are too old are shown so much longer."""
BYTES_MAX: Final = 8_000_000
PAGES_MAX: Final = 500
"""What is known beside the documents is not counted in bytes."""

Version = Sequence[tuple[SourceRecord, Times]]
"""The sources as they are asked, and when each category was: what a page is made of changes with nothing else."""


@frozen
class _CachedPage:
    document: bytes
    version: Version
    written_at: float


@define(eq=False)
class PageCache:
    """Pages as they were sent; when there are too many the one that was not asked for for longest is forgotten."""

    bytes_max: int = BYTES_MAX
    size_bytes: int = field(init=False, default=0)
    _kept: OrderedDict[Hashable, _CachedPage] = field(init=False, factory=OrderedDict)

    def get(self, asked: Hashable, version: Version) -> bytes | None:
        """A page that is still as it would be written now."""
        kept = self._kept.get(asked)
        if kept is None or kept.version != version or trio.current_time() - kept.written_at >= LIFE_S:
            return None
        self._kept.move_to_end(asked)
        return kept.document

    def put(self, asked: Hashable, version: Version, document: bytes) -> None:
        """Keep a page in the place of the one before."""
        self._forget(asked)
        self._kept[asked] = _CachedPage(document, version, trio.current_time())
        self.size_bytes += len(document)
        while self.size_bytes > self.bytes_max or len(self._kept) > PAGES_MAX:
            self._forget(next(iter(self._kept)))

    def _forget(self, asked: Hashable) -> None:
        kept = self._kept.pop(asked, None)
        if kept is not None:
            self.size_bytes -= len(kept.document)


@frozen(kw_only=True)
class LatestQuery:
    """A page that an app wants. `is_whole` says that all sources have answered."""

    client: str
    base: str
    where: str
    title: str
    categories: tuple[int, ...]
    offset: int
    limit: int
    records: tuple[SourceRecord, ...]
    is_whole: bool


@define(eq=False, kw_only=True)
class LatestReleases:
    """Shows what is new from what is kept of it: also of sources that do not answer now, so that pages stay in step."""

    environment: Environment = field(kw_only=False)
    feeds: LatestPoller
    items: GateItems
    abilities: SourceCaps
    pages: PageCache = field(init=False, factory=PageCache)

    async def document(self, wanted: LatestQuery) -> bytes:
        """A page as it is sent."""
        # Links of ours name the app and the address by which it came, so that each has pages of its own.
        asked = (wanted.client, wanted.base, wanted.where, wanted.categories, wanted.offset, wanted.limit)
        version = [(record, await self.feeds.version(record)) for record in wanted.records]
        document = self.pages.get(asked, version)
        if document is None:
            page, is_kept = await self._page(wanted)
            document = feed_document(page)
            if is_kept:
                self.pages.put(asked, version, document)
        return document

    async def page(self, wanted: LatestQuery) -> TorznabPage:
        """The same as data."""
        page, _ = await self._page(wanted)
        return page

    async def _page(self, wanted: LatestQuery) -> tuple[TorznabPage, bool]:
        """The page, and whether anything is kept; if not, it says what depends on more than the last poll."""
        records = {record.id: record for record in wanted.records}
        kept = await self.environment.database.read(
            feeds.page, list(records), wanted.categories, offset=wanted.offset, limit=wanted.limit
        )
        finds = [GateResult(record=records[row.source_id], result=row.result, at=row.sort_at) for row in kept.rows]
        items = await self.items.of(wanted.client, finds, base=wanted.base)
        if not kept.kept and not wanted.offset and wanted.is_whole:
            items = await self._stand_in(wanted)
        total = max(kept.total, len(items))
        page = TorznabPage(title=wanted.title, link=f"{wanted.base}/", items=items, offset=wanted.offset, total=total)
        return page, bool(kept.rows)

    async def _stand_in(self, wanted: LatestQuery) -> list[TorznabItem]:
        records = wanted.records
        may_come = [record for record in records if await self.abilities.may_support(record, wanted.categories)]
        if records and not may_come:
            return []
        return [placeholder(wanted.where, may_come, wanted.categories, title=wanted.title, base=wanted.base)]
