"""Searches through slskd by a whole service, on the mock clock: whatever the time-out is, what peers answered is found."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define, frozen
from trio.testing import MockClock

from cormorant.clients.http.transport import Transport
from cormorant.playground.http import StandInRequest
from cormorant.playground.slskd import SlskdStandIn
from cormorant.rules.search.events import SearchFinished
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchPage, SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.settings.watch import TargetSettings, WatchlistSettings
from cormorant.rules.watch.soulseek import PeerFile, PeerResponse
from cormorant.scripted import ScriptedCatalogue, ScriptedTarget, album
from cormorant.services.source_clients import SourceClients
from cormorant.testing import Recorder, ScriptedSource, SimulatedClock, in_line, memory_gateway, settings
from storage.search.sources import SourceRecord
from supervisors import Service, open_service
from tests.clients.mounted import Mounted
from tests.clients.wired import wired
from tests.conformance.watchlist.watching import watch
from tests.environments import environment_of

FOLDER = "@@x\\Music\\A1\\New"
FEW = 2
MANY = 250
"""So many peers that they still answer when the time-out comes: such a search is never silent."""


def peers(count: int) -> list[PeerResponse]:
    files = tuple(PeerFile(filename=f"{FOLDER}\\{number:02} - Song.flac", size_bytes=100) for number in (1, 2))
    return [PeerResponse(username=f"peer {number}", files=files, has_free_slot=True) for number in range(count)]


@frozen(kw_only=True)
class WiredAsker(SourceClients):
    """The asker of the product; only its connections lead to the stand-in."""

    transports: Callable[..., Transport]

    def _transport(self, record: SourceRecord) -> Transport:
        return self.transports(written=[record.url])


@define(kw_only=True)
class Peers:
    """A service with a slskd and an artist who has just released something."""

    service: Service
    slskd: SlskdStandIn
    target: ScriptedTarget
    server: Mounted
    heard: Recorder

    async def outcome(self, wanted: str = "a1 new", **how: Any) -> Outcome:
        search = await self.service.search(wanted, sources=["slskd"], **how)
        async with search:
            [outcome] = [each async for each in search]
        return outcome


@asynccontextmanager
async def peers_of(
    count: int,
    *,
    source: dict[str, Any] | None = None,
    watchlist: dict[str, Any] | None = None,
    indexer: ScriptedSource | None = None,
    **habits: Any,
) -> AsyncIterator[Peers]:
    slskd = SlskdStandIn(peers=peers(count), **habits)
    clock, chance, heard = SimulatedClock(), random.Random(1), Recorder()
    target = ScriptedTarget()
    catalogue = ScriptedCatalogue(scripts={"a1": [[album("New", "2026-01-01", tracks=2)]]})
    async with wired(slskd.answer) as wire:
        asker = WiredAsker(environment_of(offload=in_line, clock=clock, chance=chance), transports=wire.transport)
        sources = {"slskd": SourceSettings(kind="slskd", url=wire.server.url, key=Secret(slskd.key), **source or {})}
        names: tuple[str, ...] = ("slskd",)
        if indexer is not None:
            sources["indexer"] = SourceSettings(url="http://indexer.test/api")
            names = ("indexer", "slskd")

        async def ask(record: SourceRecord, request: SearchRequest) -> SearchPage:
            if record.name == "indexer":
                assert indexer is not None
                return await indexer(record, request)
            return await asker.search(record, request)

        with memory_gateway() as gateway:
            service = open_service(
                settings(
                    mode="live",
                    sources=sources,
                    watchlist=WatchlistSettings(search=names, hand_to=("slskd",), **watchlist or {}),
                    targets={"slskd": TargetSettings(kind="slskd", source="slskd")},
                ),
                environment=environment_of(
                    clock=clock,
                    chance=chance,
                    offload=in_line,
                    database=gateway,
                    listeners=[heard],
                    search=ask,
                    catalogue=catalogue,
                    targets={"slskd": target},
                ),
            )
            async with service:
                yield Peers(service=service, slskd=slskd, target=target, server=wire.server, heard=heard)


def of(outcome: Outcome) -> tuple[str, float, int, bool]:
    """What a search came to."""
    return outcome.status.value, round(outcome.took_s, 6), len(outcome.results), outcome.was_cut


@pytest.mark.slow("a whole service")
@pytest.mark.parametrize(("count", "took_s", "results"), [(FEW, 16.5, 2), (MANY, 55.5, 27)])
async def test_with_the_default_settings_a_want_is_found_through_slskd(
    clock: MockClock, count: int, took_s: float, results: int
) -> None:
    async with peers_of(count, answers_every_s=2.0) as place:
        await watch(place.service, "a1")
        await trio.sleep(200)

        [finished] = place.heard.of(SearchFinished)
        assert (finished.status, round(finished.took_s, 6), finished.results) == ("found", took_s, results)
        assert finished.was_cut == (count == MANY)
        assert len(place.target.given) == 1
        assert place.slskd.searches == {}


@pytest.mark.slow("a whole service, and dozens of polls")
@pytest.mark.parametrize(("count", "took_s", "results"), [(FEW, 14.5, 2), (MANY, 25.5, 12)])
async def test_with_the_default_settings_a_manual_search_finds_something_through_slskd(
    clock: MockClock, count: int, took_s: float, results: int
) -> None:
    async with peers_of(count, answers_every_s=2.0) as place:
        outcome = await place.outcome(priority=Priority.INTERACTIVE)

    assert of(outcome) == ("found", took_s, results, count == MANY)
    assert place.slskd.searches == {}


@pytest.mark.slow("hundreds of polls")
@pytest.mark.parametrize(
    ("of_search_s", "of_source_s", "took_s"),
    [
        (300.0, None, 295.5),
        (60.0, None, 55.5),
        (15.0, None, 10.25),
        (9.0, None, 6.15),
        (60.0, 30.0, 25.5),
        (9.0, 30.0, 6.15),
        (3.0, None, 2.15),
        (1.0, None, 0.816667),
    ],
)
async def test_a_busy_search_is_cut_in_time_for_its_caller_and_has_found_what_came_until_then(
    clock: MockClock, of_search_s: float, of_source_s: float | None, took_s: float
) -> None:
    timeout_s = of_search_s if of_source_s is None else min(of_search_s, of_source_s)
    async with peers_of(MANY, source={"timeout_s": of_source_s}, answers_every_s=timeout_s / 30) as place:
        outcome = await place.outcome(timeout_s=of_search_s)

    assert outcome.took_s < timeout_s
    assert of(outcome)[:2] == ("found", took_s)
    assert outcome.was_cut
    assert len(outcome.results) >= 15
    assert place.slskd.searches == {}


@pytest.mark.slow("hundreds of polls")
async def test_what_a_cut_search_found_is_not_kept_for_a_caller_who_has_more_time(clock: MockClock) -> None:
    async with peers_of(20, answers_every_s=1.0) as place:
        short = await place.outcome(timeout_s=15.0)
        long = await place.outcome(timeout_s=60.0)
        kept = await place.outcome(timeout_s=15.0)

    assert of(short) == ("found", 10.25, 10, True)
    assert of(long) == ("found", 32.5, 20, False)
    assert (kept.is_cached, len(kept.results)) == (True, 20)


@pytest.mark.slow("a whole service, and dozens of polls")
async def test_two_searches_that_slskd_is_asked_for_at_the_same_time_both_find_everything(clock: MockClock) -> None:
    together = {"in_flight": 2, "spacing_s": 0.0}
    async with peers_of(FEW, source=together, starting_takes_s=0.7) as place:
        outcomes: list[Outcome] = []

        async def search(wanted: str) -> None:
            outcomes.append(await place.outcome(wanted, priority=Priority.INTERACTIVE))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(search, "a1 new")
            nursery.start_soon(search, "new song")

    # Refused at 0 and 0.5 s, started at 1.5 s.
    assert [of(each) for each in outcomes] == [("found", 12.0, 2, False), ("found", 13.5, 2, False)]
    assert [each.line for each in place.slskd.asked].count("POST /api/v0/searches") == 4


@pytest.mark.slow("a whole service, and dozens of polls")
async def test_a_search_that_slskd_never_began_is_no_empty_answer(clock: MockClock) -> None:
    async with peers_of(FEW, running_max=1) as place:
        # Another program searches for something that never ends.
        place.slskd.peers += [
            PeerResponse(username=f"x {n}", files=(PeerFile(filename="else", size_bytes=1),)) for n in range(99)
        ]
        headers = {"x-api-key": place.slskd.key, "content-type": "application/json"}
        other = StandInRequest(
            method="POST", path="/api/v0/searches", headers=headers, body=b'{"id": "other", "searchText": "else"}'
        )
        await place.slskd.answer(other)
        outcome = await place.outcome(priority=Priority.INTERACTIVE)

    assert outcome.status is OutcomeStatus.FAILED
    assert str(outcome.error) == "slskd kept the search in its queue for 25.5 s and did not begin it"
    assert list(place.slskd.searches) == ["other"]


@pytest.mark.slow("a whole service")
async def test_the_longest_search_through_slskd_fits_into_its_job_also_after_a_slow_indexer(clock: MockClock) -> None:
    indexer = ScriptedSource([], takes_s=20.0)
    async with peers_of(
        MANY, watchlist={"slskd_search_timeout_s": 300.0}, indexer=indexer, answers_every_s=10.0
    ) as place:
        await watch(place.service, "a1")
        await trio.sleep(500)

        finished = [each for each in place.heard.of(SearchFinished) if each.source == "slskd"]
        assert [(each.status, round(each.took_s, 6), each.results) for each in finished] == [("found", 295.5, 29)]
        assert len(place.target.given) == 1
