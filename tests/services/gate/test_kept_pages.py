"""What is new is written once for each poll, and shown again without asking the database; counts are as old as they were dear."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.secrets import HIDDEN, Secret
from cormorant.services.gate.items import GateResult
from cormorant.services.gate.latest import LIFE_S, PAGES_MAX, PageCache, Version
from cormorant.testing import START, ScriptedSource, simulated
from cormorant.web.parts import KEPT_S_MAX, TIMES, CountCache
from storage.search.sources import SourceRecord
from tests.bounds import WAIT_S
from tests.web.gate_alone import app, ask, gate_alone
from tests.web.web_place import web_place

RED = SourceRecord(id=1, name="red", identity="red", kind="torznab", url="http://red")
VERSION: Version = [(RED, {5000: START}, 1)]


async def test_a_page_is_kept_until_a_source_was_polled_anew_or_is_asked_in_another_way() -> None:
    pages = PageCache()

    pages.put("sonarr", VERSION, b"page")

    assert pages.get("sonarr", [(RED, {5000: START}, 1)]) == b"page"
    assert pages.get("radarr", VERSION) is None
    assert pages.get("sonarr", [(RED, {5000: START}, 2)]) is None
    assert pages.get("sonarr", [(RED, {5000: START, 2000: START}, 1)]) is None
    assert (
        pages.get(
            "sonarr", [(SourceRecord(id=1, name="red", identity="red", kind="newznab", url=""), {5000: START}, 1)]
        )
        is None
    )


async def test_so_many_pages_are_kept_however_small_they_are() -> None:
    pages = PageCache()

    for number in range(PAGES_MAX + 3):
        pages.put(number, VERSION, b"")

    kept = [number for number in range(PAGES_MAX + 3) if pages.get(number, VERSION) is not None]
    assert kept == list(range(3, PAGES_MAX + 3))


async def test_a_page_is_forgotten_after_its_time(autojump_clock: MockClock) -> None:
    pages = PageCache()
    pages.put("sonarr", VERSION, b"page")

    await trio.sleep(LIFE_S - 1)
    assert pages.get("sonarr", VERSION) == b"page"
    await trio.sleep(1)
    assert pages.get("sonarr", VERSION) is None


async def test_pages_never_take_more_than_their_bytes_and_the_least_wanted_goes_first() -> None:
    pages = PageCache(bytes_max=10)
    for name in ("a", "b"):
        pages.put(name, VERSION, b"12345")
    pages.put("b", VERSION, b"54321")  # in the place of the one before
    pages.get("a", VERSION)

    pages.put("c", VERSION, b"x")

    assert [pages.get(name, VERSION) for name in ("a", "b", "c")] == [b"12345", None, b"x"]
    assert pages.size_bytes == 6
    pages.put("too large", VERSION, b"x" * 11)
    assert (pages.size_bytes, pages.get("too large", VERSION)) == (0, None)


async def test_a_count_is_shown_for_twenty_times_as_long_as_it_took(autojump_clock: MockClock) -> None:
    counts: CountCache[int] = CountCache()
    known = [counts.known]

    counts.keep(7, took_s=0.1)
    for wait_s in (0.1 * TIMES - 0.1, 0.2):
        await trio.sleep(wait_s)
        known.append(counts.known)
    counts.keep(8, took_s=1000.0)
    for wait_s in (KEPT_S_MAX - 1, 1):
        await trio.sleep(wait_s)
        known.append(counts.known)

    assert known == [None, 7, None, 8, None]


@pytest.mark.slow("real sockets")
async def test_an_app_that_asks_again_is_answered_without_the_database_and_sees_the_next_poll(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    with web_place(tmp_path, red=ScriptedSource(["one"], ["one", "two"])) as place:
        async with place.served() as (_, client):
            first = await place.torznab(client, "red", t="search")
            written = await place.torznab(client, "red", t="search")  # what was seen of the poll is known from here on
            place.gateway.go_away()
            again = await place.torznab(client, "red", t="search")
            place.gateway.come_back()
            other = await place.torznab(client, "red", t="search", cat="5000")
            with trio.fail_after(WAIT_S):
                while "two" not in (shown := await place.torznab(client, "red", t="search")).text:
                    await trio.sleep(0.05)

    assert first.content == written.content == again.content
    assert other.status_code == shown.status_code == 200
    assert len(place.sources["red"].asked_at) == 2


@pytest.mark.slow("makes the tables of a database and a tree of searches")
def test_what_was_made_of_a_find_is_for_all_apps_until_it_or_its_source_changes() -> None:
    async def live() -> None:
        async with gate_alone(simulation, {"red": ScriptedSource(["some show"])}) as (gate, _):
            [one] = (await ask(gate, app("sonarr"), "red", "some")).items
            [two] = (await ask(gate, app("radarr"), "red", "some")).items
            requests = gate.searches.directory.by_name["red"]
            seeded = GateResult(record=requests.record, result=attrs.evolve(one.result, seeders=7))
            secret = GateResult(record=attrs.evolve(requests.record, key=Secret("some show")), result=one.result)
            [changed] = await gate.items.of("sonarr", [seeded], base="http://gate")
            [redact] = await gate.items.of("sonarr", [secret], base="http://gate")

        assert one.shown is two.shown
        assert [item.link.rpartition("/")[2].partition(".")[0] for item in (one, two)] == ["sonarr", "radarr"]
        assert (one.result.seeders, changed.result.seeders) == (None, 7)
        assert changed.link == one.link
        assert redact.result.title == HIDDEN

    simulation = simulated(1)
    simulation.run(live)
