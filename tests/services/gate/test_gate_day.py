"""A day at the gate on the mock clock: five apps, twelve sites with limits, no limit exceeded, nobody refused without need."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio
from attrs import define, field
from sqlalchemy import Connection, text

from actors import Environment
from actors.search import rate_limiter
from cormorant.clients.files import Download
from cormorant.rules.ports import ignore
from cormorant.rules.search.limits import Lane
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.sources import SourceSettings, limits_of
from cormorant.rules.torznab_queries import read_query
from cormorant.services.gate.client_apps import AppShare
from cormorant.services.gate.gate import GateService, NothingAnswered
from cormorant.services.keys import Keys
from cormorant.services.searches import Searches
from cormorant.settings import Settings
from cormorant.testing import START, ScriptedSource, Simulation, memory_gateway, scripted, settings, simulated
from storage.database import Database
from storage.engine.columns import from_micros
from storage.search.sources import SourceRecord
from supervisors.search_assembly import SearchAssembly
from tests.environments import environment_of

DAY_S = 86_400.0
TAKES_S = {"query": 0.5, "grab": 1.0}
APPS = {
    "sonarr": ClientSettings(share=0.4),
    "radarr": ClientSettings(share=0.3, hold_s=20.0),
    "lidarr": ClientSettings(priority="background", share=0.25),
    "cross-seed": ClientSettings(priority="background", share=0.2, hold_s=5.0),
    "person": ClientSettings(priority="interactive"),
}
CATEGORIES = {"sonarr": "5030,5040", "radarr": "2000", "lidarr": "3000", "cross-seed": "", "person": "5000"}


@define
class Asked:
    """A request that reached a site."""

    at: float
    lane: str
    consumer: str


@define
class Refused:
    """A request that the gate refused at one site."""

    began_at: float
    at: float
    app: str
    site: str
    lane: str
    retry_after_s: int | None


@define
class Day:
    """What happened."""

    simulation: Simulation
    sites: dict[str, SourceSettings]
    answered: Counter[str] = field(factory=Counter)
    refused: list[Refused] = field(factory=list)
    spent: dict[str, list[Asked]] = field(factory=dict)


def some_sites(chance: random.Random) -> dict[str, SourceSettings]:
    """Twelve sites: some generous, most not."""
    return {
        f"site{number}": SourceSettings(
            url=f"http://site{number}.test/api",
            key=Secret(""),
            spacing_s=chance.choice([0.0, 2.0, 5.0]),
            pace_s=0.0,
            per_hour=chance.choice([None, 10, 30]),
            per_day=chance.choice([20, 40, 90]),
            grabs_per_day=chance.choice([3, 10]),
        )
        for number in range(12)
    }


async def fetched(_: SourceRecord, __: str) -> Download:
    await trio.sleep(TAKES_S["grab"])
    return Download(kind="torrent", body=b"d4:infode")


def gate_environment(
    simulation: Simulation, sources: dict[str, ScriptedSource], gateway: Database, chosen: Settings, **clients: Any
) -> Environment:
    """What a gate needs, without a server: scripted sources, and downloads that take their time."""
    gateway.adopt(emit=ignore, chance=simulation.chance, clock=simulation.clock)
    return environment_of(
        attrs.evolve(chosen, clients=APPS),
        database=gateway,
        clock=simulation.clock,
        chance=simulation.chance,
        emit=ignore,
        search=scripted(sources),
        download=fetched,
        **clients,
    )


def gate_of(environment: Environment, searches: Searches) -> GateService:
    return GateService(environment, searches=searches, keys=Keys(web=Secret("x" * 43)))


async def live_a_day(day: Day) -> None:
    """Only the branch that searches: what else a service does would be most of the work of this day."""
    sources = {name: ScriptedSource(["x"], takes_s=TAKES_S["query"]) for name in day.sites}
    with memory_gateway() as gateway:
        environment = gate_environment(day.simulation, sources, gateway, settings(sources=day.sites))
        search = SearchAssembly(environment)
        async with trio.open_nursery() as storage:
            await storage.start(gateway)
            async with search.supervisor():
                gate = gate_of(environment, search.searches())
                async with trio.open_nursery() as nursery:
                    for name in APPS:
                        nursery.start_soon(live, day, gate, name)
                day.spent = await gateway.read(requests)
            gateway.stop()


def requests(connection: Connection) -> dict[str, list[Asked]]:
    """What was spent, by site, as the database has it."""
    rows = connection.execute(
        text(
            "SELECT s.name, r.at, r.lane, r.consumer FROM source_requests r JOIN sources s ON s.id = r.source_id ORDER BY r.at"
        )
    )
    found: dict[str, list[Asked]] = {}
    for row in rows:
        at = (from_micros(row.at) - START).total_seconds()
        found.setdefault(row.name, []).append(Asked(at, row.lane, row.consumer))
    return found


async def live(day: Day, gate: GateService, name: str) -> None:
    """An app: it polls, searches in bursts, and grabs, until the day is over."""
    chance = random.Random(f"{day.simulation.seed} {name}")
    client = AppShare(name=name, settings=APPS[name])
    async with trio.open_nursery() as nursery:
        while (wait_s := chance.expovariate(1 / 5_000)) + trio.current_time() < DAY_S:
            await trio.sleep(wait_s)
            sites = chance.sample(sorted(day.sites), chance.choice([1, 2, 4]))
            for number in range(chance.choice([1, 1, 2, 3])):
                words = f"{name} {chance.randrange(10**9)} {number}" if chance.random() < 0.6 else ""
                for site in sites:
                    nursery.start_soon(ask, day, gate, client, site, words)


async def ask(day: Day, gate: GateService, client: AppShare, site: str, words: str) -> None:
    query = read_query([("t", "search"), ("cat", CATEGORIES[client.name]), ("q", words)])
    assert query.request is not None
    began_at, lane = trio.current_time(), "query"
    try:
        if not words:
            await gate.document(client, query, query.request, where=site, base="http://gate")
        else:
            page = await gate.find(client, query, query.request, where=site, base="http://gate")
            lane = "grab"
            began_at = trio.current_time()
            await gate.fetch(site, page.items[0].link.rpartition("/")[2])
    except NothingAnswered as nothing:
        now = trio.current_time()
        day.refused.append(Refused(began_at, now, client.name, site, lane, nothing.retry_after_s))
    else:
        day.answered[client.name] += 1


def windows(site: SourceSettings, lane: Lane) -> Iterator[tuple[float, int]]:
    limits = limits_of(site, {})
    hour, day = (
        (limits.per_hour, limits.per_day) if lane is Lane.QUERY else (limits.grabs_per_hour, limits.grabs_per_day)
    )
    yield from ((width_s, most) for width_s, most in ((3_600.0, hour), (DAY_S, day)) if most is not None)


def part(most: int, chosen: ClientSettings) -> int:
    """What an app may have of a limit."""
    return max(1, int(most * chosen.share + 1e-9))


def most_in(times: list[float], width_s: float) -> int:
    """How many at most fall into any window of this width."""
    return max((sum(at <= other < at + width_s - 1e-3 for other in times) for at in times), default=0)


def is_full(times: list[float], at: float, windows: list[tuple[float, int]]) -> bool:
    """Whether one more at a moment would have been too many."""
    return any(sum(at - width_s < other <= at for other in times) >= most for width_s, most in windows)


def could_go(spent: list[Asked], lane: str, since: float, until: float, spacing_s: float) -> bool:
    """Whether there was a moment at which one more request could have gone without coming too close to another."""
    busy = sorted((each.at - spacing_s - TAKES_S[lane], each.at + TAKES_S[each.lane] + spacing_s) for each in spent)
    free_at = since
    for begins_at, ends_at in busy:
        if begins_at > free_at:
            break
        free_at = max(free_at, ends_at)
    return free_at < until


def check_limits(day: Day) -> None:
    for name, site in day.sites.items():
        spent = day.spent.get(name, [])
        for lane in Lane:
            ours = [each for each in spent if each.lane == lane.value]
            for width_s, most in windows(site, lane):
                assert most_in([each.at for each in ours], width_s) <= most
                for app, chosen in APPS.items():
                    own = [each.at for each in ours if each.consumer == app]
                    assert most_in(own, width_s) <= part(most, chosen), (name, lane, app)
        gaps = [later.at - each.at - TAKES_S[each.lane] for each, later in pairwise(spent)]
        assert min(gaps, default=9.0) >= (site.spacing_s or 0.0) - 1e-3


def check_refusal(day: Day, refused: Refused) -> None:
    site, spent, chosen = day.sites[refused.site], day.spent.get(refused.site, []), APPS[refused.app]
    made = [each for each in spent if each.lane == refused.lane]
    limits = list(windows(site, Lane(refused.lane)))
    own = [(width_s, part(most, chosen)) for width_s, most in limits]
    used = [each.at for each in made if each.consumer == refused.app]
    now = refused.at + 1e-3  # the database counts in microseconds, the clock in finer parts
    if is_full([each.at for each in made], now, limits) or is_full(used, now, own):
        return
    until = refused.began_at + chosen.hold_s
    assert not could_go(spent, refused.lane, refused.began_at, until, site.spacing_s or 0.0), refused


@pytest.mark.slow("a day of five apps, simulated")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_a_day_of_five_apps_no_limit_is_exceeded_and_nobody_is_refused_without_need(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Nobody else writes here, and no clock jumps: looks every minute would be most of the work of this day.
    monkeypatch.setattr(rate_limiter, "WAIT_S_MAX", DAY_S)
    simulation = simulated(seed)
    day = Day(simulation, some_sites(random.Random(seed)))

    simulation.run(live_a_day, day)

    check_limits(day)
    for each in day.refused:
        check_refusal(day, each)
    assert all(each.retry_after_s for each in day.refused)
    assert all(each.at - each.began_at <= APPS[each.app].hold_s + 0.1 for each in day.refused)
    assert len(day.refused) > 30
    assert min(day.answered[app] for app in APPS) > 10
