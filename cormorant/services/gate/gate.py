"""GateService: searches for an app with its priority, share and hold time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, cast

import attrs
import trio
from attrs import define, field, frozen

from actors.environment import Environment
from actors.search.search import Terms
from cormorant.clients.files import Download
from cormorant.rules.errors import CommitUnknown, CormorantError, StorageUnavailable
from cormorant.rules.search import priorities
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import (
    UNKNOWN_WAIT_S,
    Outcome,
    OutcomeStatus,
    SearchQueueFull,
    SourceLimited,
    opens_in_s,
)
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import Caps, SearchRequest
from cormorant.rules.secrets import redact_passwords, secret_filter_of
from cormorant.rules.settings.sources import SEARCHED
from cormorant.rules.torznab_queries import GateQuery
from cormorant.services.gate.client_apps import AppShare, ClientApps
from cormorant.services.gate.items import GateItems, GateResult, client_of_token
from cormorant.services.gate.latest import LatestQuery, LatestReleases
from cormorant.services.gate.source_caps import SourceCaps
from cormorant.services.gate.torznab_documents import TorznabPage, feed_document
from cormorant.services.keys import Keys
from cormorant.services.searches import Searches
from storage.search.sources import SourceRecord, UnknownSource

__all__ = ["COMBINED", "AppShare", "GateService", "NothingAnswered", "SiteLink"]

COMBINED: Final = "combined"

_ANSWER_S: Final = 90.0
"""Waiting and asking together: Sonarr, Radarr and Lidarr give up after 100 s."""
_ASK_S_MIN: Final = 10.0
_TITLE: Final = "Cormorant"
_BUSY: Final = (SearchQueueFull, StorageUnavailable, CommitUnknown)
_LOOKS: Final = 10
_LOOK_S: Final = 0.1


class NothingAnswered(Exception):
    """No source answered. With `retry_after_s` because all of those that could are closed."""

    def __init__(self, why: str, *, retry_after_s: int | None = None, is_gone: bool = False) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s
        self.is_gone = is_gone


@frozen(kw_only=True)
class SiteLink:
    """The link of a site behind a download link of the gate, and the app that got the download link."""

    client: AppShare
    record: SourceRecord
    address: str = field(repr=False)

    @property
    def is_magnet(self) -> bool:
        """Whether it is the download itself, and no site is asked for it."""
        return self.address.startswith("magnet:")


@define(eq=False, kw_only=True)
class GateService:
    """Searches for apps."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    keys: Keys
    clients: ClientApps = field(init=False)
    items: GateItems = field(init=False)
    news: LatestReleases = field(init=False)
    abilities: SourceCaps = field(init=False)

    def __attrs_post_init__(self) -> None:
        environment, searches = self.environment, self.searches
        self.clients = ClientApps(environment, self.keys)
        self.items = GateItems(environment, keys=self.keys)
        self.abilities = SourceCaps(environment, searches=searches)
        self.news = LatestReleases(environment, searches=searches, items=self.items, abilities=self.abilities)

    async def names(self, wanted: str) -> list[str]:
        """The sources that a path names, or `UnknownSource`."""
        directory = self.searches.directory
        await directory.loaded.wait()
        if wanted == COMBINED:
            return self.searches.searched()
        for _ in range(_LOOKS):  # one that was just added by command is known in a moment
            if wanted in directory.by_name:
                break
            await trio.sleep(_LOOK_S)
        return [self._record(wanted).name]

    async def caps(self, client: AppShare, where: str) -> Caps:
        """What a source can do, or all of them together."""
        names = await self.names(where)
        return await self.abilities.of([self._record(name) for name in names], consumer=client.name)

    def _record(self, name: str) -> SourceRecord:
        """A source that apps may ask. One that speaks no Torznab is to them as if it were not there."""
        record = self.searches.directory.record_of(name)
        if record is None or record.kind not in SEARCHED:
            raise UnknownSource(name)
        return record

    async def document(
        self, client: AppShare, query: GateQuery, request: SearchRequest, *, where: str, base: str
    ) -> bytes:
        """The page that answers a request, as it is sent. What is new comes from what is kept."""
        if not request.is_rss:
            return feed_document(await self.find(client, query, request, where=where, base=base))
        return await self.news.document(await self._wanted(client, query, request, where=where, base=base))

    async def find(
        self, client: AppShare, query: GateQuery, request: SearchRequest, *, where: str, base: str
    ) -> TorznabPage:
        """A page of what was found, or `NothingAnswered`. Of several sources those that answered are enough."""
        names = await self.names(where)
        is_one = len(names) == 1
        wanted = request if is_one else attrs.evolve(request, offset=0)
        outcomes = await self.searches.outcomes(wanted, _terms_of(client), sources=names)
        answers = self._answers(outcomes, client, client.settings.rank)
        finds = [
            GateResult(record=self._record(each.source), result=result) for each in answers for result in each.results
        ]
        items = await self.items.of(client.name, finds, base=base)
        link = f"{base}/"
        if is_one:
            total = query.offset + len(items)
            return TorznabPage(title=names[0], link=link, items=items, offset=query.offset, total=total)
        items.sort(key=lambda item: item.published, reverse=True)
        shown = items[query.offset : query.offset + query.limit]
        return TorznabPage(title=_TITLE, link=link, items=shown, offset=query.offset, total=len(items))

    async def _wanted(
        self, client: AppShare, query: GateQuery, request: SearchRequest, *, where: str, base: str
    ) -> LatestQuery:
        """What an app wants to know of what is new, once that is kept."""
        names = await self.names(where)
        answers = self._answers(await self._feeds(client, request, names), client, Priority.RSS)
        return LatestQuery(
            client=client.name,
            base=base,
            where=where,
            title=_TITLE if where == COMBINED else where,
            categories=tuple(request.categories),
            offset=query.offset,
            limit=query.limit,
            records=tuple(map(self._record, names)),
            is_whole=len(answers) == len(names),
        )

    def _answers(self, outcomes: Sequence[Outcome], client: AppShare, priority: Priority) -> list[Outcome]:
        answers = [outcome for outcome in outcomes if outcome.is_answer]
        if outcomes and not answers:
            busy = [each.error for each in outcomes if isinstance(each.error, _BUSY)]
            if busy and not any(map(_is_closed, outcomes)):
                raise busy[0]  # it is ours, and the app is told when to come back
            raise self._nothing(outcomes, client, priority, Lane.QUERY)
        return answers

    async def _feeds(self, client: AppShare, request: SearchRequest, names: Sequence[str]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        terms = attrs.evolve(_terms_of(client), priority=Priority.RSS, timeout_s=priorities.timeout_s(Priority.RSS))

        async def look(name: str) -> None:
            try:
                goes_on = bool(request.offset)
                outcome = await self.news.poll(terms, self._record(name), request.categories, goes_on=goes_on)
            except CormorantError as error:  # the others may answer
                outcome = Outcome(job_id=0, source=name, status=OutcomeStatus.FAILED, error=error)
            outcomes.append(outcome)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(look, name)
        return sorted(outcomes, key=lambda outcome: outcome.source)

    def _nothing(
        self, outcomes: Sequence[Outcome], client: AppShare, priority: Priority, lane: Lane
    ) -> NothingAnswered:
        closed = [outcome for outcome in outcomes if _is_closed(outcome)]
        if closed:
            waits = [self._wait_s(outcome, client, priority, lane) for outcome in closed]
            return NothingAnswered("Request limit reached", retry_after_s=min(waits))
        is_gone = all(outcome.status is OutcomeStatus.REFUSED for outcome in outcomes)
        return NothingAnswered("; ".join(self._why(outcome) for outcome in outcomes), is_gone=is_gone)

    def _wait_s(self, outcome: Outcome, client: AppShare, priority: Priority, lane: Lane) -> int:
        """Whole seconds until the source opens for the app, as it is known now; never too few."""
        share = client.settings.share
        opens_at = self.searches.explain(outcome.source, priority, lane=lane, app=client.name, share=share).opens_at
        stated = opens_in_s(outcome.error)
        until_open = stated if opens_at is None else (opens_at - self.environment.now()).total_seconds()
        wait_s = UNKNOWN_WAIT_S if until_open is None else until_open
        return max(1, math.ceil(wait_s))

    def _why(self, outcome: Outcome) -> str:
        words = outcome.status.value if outcome.error is None else str(outcome.error)
        return f"{outcome.source}: {self._without_keys(words, outcome.source)}"

    def _without_keys(self, text: str, source: str) -> str:
        record = self.searches.directory.record_of(source)
        return redact_passwords(text if record is None else secret_filter_of(record.key, record.proxy).redact(text))

    async def link(self, source: str, token: str) -> SiteLink:
        """What a link of ours stands for, or `NothingAnswered`."""
        await self.searches.directory.loaded.wait()
        record = self._record(source)
        client = await self.clients.by_name(client_of_token(token))
        if client is None or not self.items.is_ours(token, record):
            raise NothingAnswered("there is no such download", is_gone=True)
        address = await self.items.link(token, record)
        if address is None:
            raise NothingAnswered("this download is too old; search again", is_gone=True)
        return SiteLink(client=client, record=record, address=address)

    async def fetch(self, source: str, token: str) -> Download:
        """What a link of ours leads to, fetched as a download of the app that it was given to."""
        link = await self.link(source, token)
        if link.is_magnet:  # nobody is asked
            return Download(kind="magnet", magnet=link.address)
        return await self._grab(link.client, source, link.address)

    async def _grab(self, client: AppShare, name: str, link: str) -> Download:
        terms = attrs.evolve(
            _terms_of(client),
            lane=Lane.GRAB,
            function=lambda record: self.environment.clients.download(record, link),
        )
        outcomes = await self.searches.outcomes(SearchRequest(), terms, sources=[name])
        if not outcomes[0].is_answer:
            raise self._nothing(outcomes, client, terms.priority, Lane.GRAB)
        return cast("Download", outcomes[0].value)


def _is_closed(outcome: Outcome) -> bool:
    return outcome.status is OutcomeStatus.RATE_LIMITED or isinstance(outcome.error, SourceLimited)


def _terms_of(client: AppShare) -> Terms:
    chosen = client.settings
    return Terms(
        priority=chosen.rank,
        max_wait_s=chosen.hold_s,
        timeout_s=min(priorities.timeout_s(chosen.rank), max(_ASK_S_MIN, _ANSWER_S - chosen.hold_s)),
        consumer=client.name,
        share=chosen.share,
    )
