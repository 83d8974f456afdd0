"""Latest releases for apps: polls of sources, merged items, rendered pages cached."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

import trio
from attrs import define, evolve, field, frozen

from actors.environment import Environment
from actors.search.search import Terms
from cormorant.rules.latest_polls import LatestState, Times, asked_for, is_fresh, poll_for
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus
from cormorant.rules.search.requests import Result
from cormorant.services.gate.items import GateItems, GateResult, placeholder
from cormorant.services.gate.source_caps import SourceCaps
from cormorant.services.gate.torznab_documents import TorznabItem, TorznabPage, feed_document
from cormorant.services.searches import Searches
from storage import gate
from storage.search.sources import SourceRecord

LIFE_S: Final = 60.0
"""Finds that are forgotten because they are too old are shown so much longer."""
BYTES_MAX: Final = 8_000_000
LOOK_S: Final = 1.0
"""How long a read of the polls of a source is believed: what another process brings is shown so much later."""
PAGING_S: Final = 600.0
"""So much older may be what the second page of an app comes from: it goes on with what it has read."""
PAGES_MAX: Final = 500
"""What is known beside the documents is not counted in bytes."""

Version = Sequence[tuple[SourceRecord, Times, int]]
"""The sources as they are asked, when each category was, and how often this process has kept an answer: what a page is made of
changes with nothing else."""


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


@define(eq=False)
class _KeptPoll:
    """The answer to a poll of one source that was kept last."""

    turn: trio.Lock = field(factory=trio.Lock)
    results: Sequence[Result] | None = None
    count: int = 0
    """How many were kept."""


@define(eq=False, kw_only=True)
class LatestReleases:
    """Shows what is new from what is kept of it: also of sources that do not answer now, so that pages stay in step."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    items: GateItems
    abilities: SourceCaps
    pages: PageCache = field(init=False, factory=PageCache)
    _seen: dict[int, tuple[float, LatestState]] = field(init=False, factory=dict)
    """What is known of the polls of each source, and since when."""
    _kept: dict[int, _KeptPoll] = field(init=False, factory=dict)

    async def poll(self, terms: Terms, source: SourceRecord, categories: Sequence[int], *, goes_on: bool) -> Outcome:
        """See to it that what is new at a source in these categories is kept. Without an answer: why it is not.

        `goes_on` is for an app that has read the first page already.
        """
        wanted = asked_for(categories)
        state = self._seen_lately(source) or await self._look(source)
        if not self._is_fresh(state, wanted, goes_on=goes_on):
            state = await self.environment.database.run(gate.want, source.id, wanted, now=self.environment.now())
            self._note(source, state)
        if self._is_fresh(state, wanted, goes_on=goes_on):
            return Outcome(job_id=0, source=source.name, status=OutcomeStatus.FOUND, coverage=(source.name,))
        ttl_s = self.environment.settings.search.rss_ttl_s
        poll = poll_for(state, wanted, now=self.environment.now(), ttl_s=ttl_s)
        (outcome,) = await self.searches.outcomes(poll.request, evolve(terms, poll=poll.kind), sources=[source.name])
        if outcome.is_answer:
            await self._keep(source, outcome, poll.asked)
        return outcome

    async def _keep(self, source: SourceRecord, outcome: Outcome, asked: frozenset[int]) -> None:
        """Merge what a poll has brought, once for all apps that have joined it. Each notes what it has asked for."""
        kept = self._kept_of(source)
        async with kept.turn:
            is_new = outcome.results is not kept.results
            # A cached answer is older than now: the process that has polled notes what was asked for.
            fetched = frozenset[int]() if outcome.is_cached else asked
            results = outcome.results if is_new else ()
            now = self.environment.now()
            await self.environment.database.run(gate.keep, source.id, results, asked=fetched, now=now)
            kept.results = outcome.results
            kept.count += is_new
            self._seen.pop(source.id, None)

    def _kept_of(self, source: SourceRecord) -> _KeptPoll:
        return self._kept.setdefault(source.id, _KeptPoll())

    def _is_fresh(self, state: LatestState, wanted: frozenset[int], *, goes_on: bool) -> bool:
        ttl_s = self.environment.settings.search.rss_ttl_s + (PAGING_S if goes_on else 0.0)
        return is_fresh(state, wanted, now=self.environment.now(), ttl_s=ttl_s)

    def _seen_lately(self, source: SourceRecord) -> LatestState | None:
        seen_at, state = self._seen.get(source.id, (-math.inf, None))
        return state if trio.current_time() - seen_at < LOOK_S else None

    async def _look(self, source: SourceRecord) -> LatestState:
        return self._note(source, await self.environment.database.read(gate.look, source.id))

    def _note(self, source: SourceRecord, state: LatestState) -> LatestState:
        self._seen[source.id] = (trio.current_time(), state)
        return state

    async def _version(self, source: SourceRecord) -> tuple[SourceRecord, Times, int]:
        """What changes with every poll of a source. What is read after it is at least as new."""
        count = self._kept_of(source).count
        return source, (self._seen_lately(source) or await self._look(source)).fetched, count

    async def document(self, wanted: LatestQuery) -> bytes:
        """A page as it is sent."""
        # Links of ours name the app and the address by which it came, so that each has pages of its own.
        asked = (wanted.client, wanted.base, wanted.where, wanted.categories, wanted.offset, wanted.limit)
        version = [await self._version(record) for record in wanted.records]
        document = self.pages.get(asked, version)
        if document is None:
            page, is_kept = await self._page(wanted)
            document = feed_document(page)
            if is_kept:
                self.pages.put(asked, version, document)
        return document

    async def _page(self, wanted: LatestQuery) -> tuple[TorznabPage, bool]:
        """The page, and whether anything is kept; if not, it says what depends on more than the last poll."""
        records = {record.id: record for record in wanted.records}
        kept = await self.environment.database.read(
            gate.page, list(records), wanted.categories, offset=wanted.offset, limit=wanted.limit
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
