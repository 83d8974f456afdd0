"""What does the gate do for an app? It searches with the app's urgency, waits as long as the app may wait, and shows no key."""

from __future__ import annotations

import hashlib
import hmac
import math
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import attrs
import trio
from attrs import define, field

from cormorant.clients.downloads import Download
from cormorant.rules import priorities
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.gate_caps import is_wanted
from cormorant.rules.gate_queries import GateQuery
from cormorant.rules.limits import Lane
from cormorant.rules.outcomes import Outcome, OutcomeStatus, RateLimitWaitError, SearchError
from cormorant.rules.priorities import Priority
from cormorant.rules.redaction import HIDDEN
from cormorant.rules.searches import Caps, Result, SearchPage, SearchRequest
from cormorant.rules.secrets import hide_passwords
from cormorant.rules.shares import ShareUsedUp
from cormorant.rules.source_errors import SourceLimited
from cormorant.rules.source_settings import SEARCHED
from cormorant.rules.web_settings import ClientSettings
from cormorant.web.abilities import Abilities
from cormorant.web.feeds import FeedAsker, Feeds
from cormorant.web.keys import Keys
from cormorant.web.port import WebParts
from cormorant.web.screens import Screen, screen_of
from cormorant.web.shares import Client, Shares
from cormorant.web.torznab_documents import PASSED_ON, FeedItem, FeedPage
from storage import gate_links
from storage.gate_links import GateLink
from storage.sources import SourceRecord, UnknownSource

__all__ = ["COMBINED", "Client", "Gate", "NothingAnswered"]

COMBINED: Final = "combined"

_ANSWER_S: Final = 90.0
"""Waiting and asking together: Sonarr, Radarr and Lidarr give up after 100 s."""
_ASK_S_MIN: Final = 10.0
_UNKNOWN_WAIT_S: Final = 300.0
"""When to come back where nobody knows when a source opens: it is paused, or its credentials are refused."""
_LONG_AGO: Final = datetime(1970, 1, 2, tzinfo=UTC)


class NothingAnswered(Exception):
    """No source answered. With `retry_after_s` because all of those that could are closed."""

    def __init__(self, why: str, *, retry_after_s: int | None = None, is_gone: bool = False) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s
        self.is_gone = is_gone


@define(eq=False, kw_only=True)
class Gate:
    """Searches for apps."""

    parts: WebParts
    keys: Keys
    feeds: Feeds = field(init=False)
    abilities: Abilities = field(init=False)
    shares: Shares = field(init=False)

    def __attrs_post_init__(self) -> None:
        parts = self.parts
        self.feeds = Feeds(searches=parts.searches, clock=parts.clock, ttl_s=parts.rss_ttl_s)
        self.abilities = Abilities(parts)
        self.shares = Shares(parts)

    def client(self, key: str) -> Client | None:
        """The app whose key this is."""
        name = self.keys.client(key)
        return None if name is None else Client(name=name, settings=self.parts.clients[name])

    async def names(self, wanted: str) -> list[str]:
        """The sources that a path names, or `UnknownSource`."""
        desks = self.parts.searches.desks
        await desks.have_come.wait()
        if wanted == COMBINED:
            return sorted(name for name, desk in desks.by_name.items() if desk.record.kind in SEARCHED)
        return [self._record(wanted).name]

    async def caps(self, client: Client, names: Sequence[str]) -> Caps:
        """What these sources can do, one or together."""
        return await self.abilities.of([self._record(name) for name in names], consumer=client.name)

    def _record(self, name: str) -> SourceRecord:
        """A source that apps may ask. One that speaks no Torznab is to them as if it were not there."""
        desk = self.parts.searches.desks.by_name.get(name)
        if desk is None or desk.record.kind not in SEARCHED:
            raise UnknownSource(name)
        return desk.record

    async def find(
        self, client: Client, query: GateQuery, request: SearchRequest, *, names: Sequence[str], base: str
    ) -> FeedPage:
        """A page of what was found, or `NothingAnswered`. Of several sources those that answered are enough."""
        is_one = len(names) == 1
        if request.is_rss:
            outcomes = await self._feeds(client, request, names)
        else:
            outcomes = await self._search(client, request if is_one else attrs.evolve(request, offset=0), names)
        answers = [outcome for outcome in outcomes if outcome.is_answer]
        if outcomes and not answers:
            raise self._nothing(outcomes, Priority.RSS if request.is_rss else client.settings.rank, Lane.QUERY)
        items = await self._items(client, answers, base=base)
        if request.is_rss:
            items = [item for item in items if is_wanted(item.result, request.categories)]
        if not is_one:
            items.sort(key=lambda item: item.published, reverse=True)
        if is_one and not request.is_rss:
            return FeedPage(title=names[0], items=items, offset=query.offset, total=query.offset + len(items))
        shown = items[query.offset : query.offset + query.limit]
        title = names[0] if is_one else "Cormorant"
        return FeedPage(title=title, items=shown, offset=query.offset, total=len(items))

    async def _search(self, client: Client, request: SearchRequest, names: Sequence[str]) -> list[Outcome]:
        chosen = client.settings
        refused = await self.shares.refusals(client, request, names)
        search = await self.parts.searches.search(
            request,
            sources=[name for name in names if name not in refused],
            priority=chosen.rank,
            max_wait_s=chosen.hold_s,
            timeout_s=_time_to_ask(chosen),
            consumer=client.name,
        )
        async with search:
            return [*refused.values(), *[outcome async for outcome in search]]

    async def _feeds(self, client: Client, request: SearchRequest, names: Sequence[str]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        refusal = partial(self.shares.refusal, client, lane=Lane.QUERY, priority=Priority.RSS)
        asker = FeedAsker(name=client.name, hold_s=client.settings.hold_s, refusal=refusal)

        async def look(name: str) -> None:
            try:
                outcome = await self.feeds.page(asker, name, request.categories)
            except (SearchError, StorageUnavailable, CommitUnknown) as error:  # the others may answer
                outcome = Outcome(job_id=0, source=name, status=OutcomeStatus.FAILED, error=error)
            outcomes.append(outcome)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(look, name)
        return sorted(outcomes, key=lambda outcome: outcome.source)

    def _nothing(self, outcomes: Sequence[Outcome], priority: Priority, lane: Lane) -> NothingAnswered:
        closed = [outcome for outcome in outcomes if _is_closed(outcome)]
        if closed:
            waits = [self._wait_s(outcome, priority, lane) for outcome in closed]
            return NothingAnswered("Request limit reached", retry_after_s=min(waits))
        is_gone = all(outcome.status is OutcomeStatus.REFUSED for outcome in outcomes)
        return NothingAnswered("; ".join(self._why(outcome) for outcome in outcomes), is_gone=is_gone)

    def _wait_s(self, outcome: Outcome, priority: Priority, lane: Lane) -> int:
        """Whole seconds until the source opens, as it is known now; never too few."""
        opens_at = self.parts.searches.explain(outcome.source, priority, lane=lane).opens_at
        stated = outcome.error.wait_s if isinstance(outcome.error, RateLimitWaitError) else None
        until_open = stated if opens_at is None else (opens_at - self.parts.clock.now()).total_seconds()
        wait_s = _UNKNOWN_WAIT_S if until_open is None else until_open
        if isinstance(outcome.error, ShareUsedUp):
            wait_s = max(wait_s, stated or 0.0)
        return max(1, math.ceil(wait_s))

    def _why(self, outcome: Outcome) -> str:
        words = outcome.status.value if outcome.error is None else str(outcome.error)
        return f"{outcome.source}: {self._without_keys(words, outcome.source)}"

    def _without_keys(self, text: str, source: str) -> str:
        desk = self.parts.searches.desks.by_name.get(source)
        return hide_passwords(text if desk is None else screen_of(desk.record).hidden(text))

    async def _items(self, client: Client, answers: Iterable[Outcome], *, base: str) -> list[FeedItem]:
        """Finds as the app is shown them: with links of ours, and without any key."""
        found = [
            (self._record(outcome.source), result) for outcome in answers for result in outcome.results if result.link
        ]
        links = [
            GateLink(ref=self._ref(record, result.link), source_id=record.id, link=result.link)
            for record, result in found
        ]
        seen = await self.parts.database.run(gate_links.remember, links, now=self.parts.clock.now()) if links else {}
        screens = {record.name: screen_of(record) for record, _ in found}
        return [
            self._item(
                self._token(client.name, record, link.ref),
                record,
                screens[record.name],
                result,
                base=base,
                first_seen=seen.get(link.ref, _LONG_AGO),
            )
            for (record, result), link in zip(found, links, strict=True)
        ]

    def _item(
        self, token: str, record: SourceRecord, screen: Screen, result: Result, *, base: str, first_seen: datetime
    ) -> FeedItem:
        clean = attrs.evolve(
            result,
            title=screen.hidden(result.title),
            attributes={
                name: tuple(value for value in values if HIDDEN not in screen.hidden(value))
                for name, values in result.attributes.items()
                if name in PASSED_ON
            },
        )
        details = result.details if result.details.startswith(("http://", "https://")) else ""
        digest = hashlib.sha256(f"{record.identity}\0{result.guid}".encode(errors="replace")).hexdigest()[:40]
        return FeedItem(
            result=clean,
            # Not the site's own: it may hold a key where nobody looks for one.
            guid=f"cormorant-{record.name}-{digest}",
            link=f"{base}/gate/{record.name}/download/{token}",
            published=result.published or first_seen.replace(microsecond=0),
            # Part of an address is no address: one in which something was hidden is left out.
            details="" if HIDDEN in hide_passwords(screen.hidden(details)) else details,
        )

    def _ref(self, record: SourceRecord, link: str) -> str:
        return _text(self.keys.sign("ref", str(record.id), link))

    def _token(self, client: str, record: SourceRecord, ref: str) -> str:
        return f"{client}.{ref}.{_text(self.keys.sign('token', client, str(record.id), ref))}"

    async def fetch(self, source: str, token: str) -> Download:
        """What a link of ours stands for, fetched as a download of the app that it was given to."""
        await self.parts.searches.desks.have_come.wait()
        record = self._record(source)
        who, _, rest = token.partition(".")
        ref = rest.partition(".")[0]
        settings = self.parts.clients.get(who)
        if settings is None or not _is_same(self._token(who, record, ref), token):
            raise NothingAnswered("there is no such download", is_gone=True)
        link = await self.parts.database.read(gate_links.find, ref, source_id=record.id)
        if link is None:
            raise NothingAnswered("this download is too old; search again", is_gone=True)
        return await self._grab(Client(name=who, settings=settings), source, link)

    async def _grab(self, client: Client, name: str, link: str) -> Download:
        fetched: list[Download] = []

        async def execute(record: SourceRecord, _: SearchRequest) -> SearchPage:
            fetched.append(await self.parts.fetch(record, link))
            return SearchPage(results=())

        if link.startswith("magnet:"):  # nobody is asked
            return Download(kind="magnet", magnet=link)
        chosen = client.settings
        refusal = await self.shares.refusal(client, name, lane=Lane.GRAB, priority=chosen.rank)
        if refusal is not None:
            raise self._nothing([refusal], chosen.rank, Lane.GRAB)
        search = await self.parts.searches.search(
            SearchRequest(),
            sources=[name],
            priority=chosen.rank,
            max_wait_s=chosen.hold_s,
            timeout_s=_time_to_ask(chosen),
            lane=Lane.GRAB,
            consumer=client.name,
            execute=execute,
        )
        async with search:
            outcomes = [outcome async for outcome in search]
        if not fetched or not outcomes[0].is_answer:
            raise self._nothing(outcomes, chosen.rank, Lane.GRAB)
        return fetched[0]


def _is_closed(outcome: Outcome) -> bool:
    return outcome.status is OutcomeStatus.RATE_LIMITED or isinstance(outcome.error, SourceLimited)


def _time_to_ask(chosen: ClientSettings) -> float:
    usual_s = priorities.timeout_s(chosen.rank)
    return min(usual_s, max(_ASK_S_MIN, _ANSWER_S - chosen.hold_s))


def _text(signature: bytes) -> str:
    return urlsafe_b64encode(signature).rstrip(b"=").decode()


def _is_same(ours: str, given: str) -> bool:
    return hmac.compare_digest(ours.encode(), given.encode(errors="replace"))
