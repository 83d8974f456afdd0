"""Limits hold for all processes together and over restarts. The long version is `tests/chaos/test_limits_shared.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cormorant.testing import ScriptedSource
from tests.bounds import WAIT_S
from tests.chaos.loopback import loopback_site, reserved_at, searching
from tests.chaos.searcher import SearchOrders
from tests.conformance.searching import search_each, search_place

PER_HOUR = 10


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the one kind, then of the other."""
    found: str = (
        f"sqlite:///{tmp_path}/shared.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )
    return found


@pytest.mark.slow("two real processes")
async def test_two_processes_keep_the_limits_of_a_source_together(url: str, tmp_path: Path) -> None:
    limits = {"per_hour": PER_HOUR, "spacing_s": 0.05, "pace_s": 0.0}
    async with loopback_site() as site:
        orders = SearchOrders(url=url, data=str(tmp_path), port=site.port, searches=PER_HOUR, limits=limits)
        with searching(orders, orders):
            await site.until_quiet(least=PER_HOUR)

    assert (len(site.began), site.in_flight_most) == (PER_HOUR, 1)
    site.assert_spaced(0.05)


@pytest.mark.slow("two real processes, one of them killed")
async def test_a_request_that_a_killed_process_never_sent_stays_spent(url: str, tmp_path: Path) -> None:
    limits = {"per_hour": PER_HOUR, "spacing_s": 0.0, "pace_s": 0.0, "in_flight": 4}
    async with loopback_site() as site:
        lives = SearchOrders(url=url, data=str(tmp_path), port=site.port, searches=PER_HOUR, limits=limits)
        dies = SearchOrders(url=url, data=str(tmp_path), port=site.port, searches=1, limits=limits, dies_at=1)
        with searching(dies) as (dying,):
            with trio.fail_after(WAIT_S):
                while dying.poll() is None:
                    await trio.sleep(0.02)
            with searching(lives):
                await site.until_quiet(least=PER_HOUR - 1)

    assert len(site.began) == PER_HOUR - 1
    assert reserved_at(url) == PER_HOUR


@pytest.mark.slow("minutes of three services")
async def test_a_restart_in_the_middle_of_a_day_forgets_nothing_of_the_daily_limit(clock: MockClock) -> None:
    jumped_s = 0.0
    with search_place(a=ScriptedSource(["x"])) as place:
        # The wall clock jumps, because nothing happens in between and hours of that take minutes to simulate.
        for queries, hours_later in ((["one", "two", "three"], 1), (["four", "five"], 22.9), (["six"], 0)):
            async with place.service({"per_day": 5}) as service:
                await search_each(service, queries)
            place.clock.jump(hours_later * 3600)
            jumped_s += hours_later * 3600

    asked = place.sources["a"].asked_at
    assert asked[:5] == [0.005] * 3 + [0.01] * 2
    assert round(asked[5] + jumped_s, 6) == 86_400.005, "a day after the first"
