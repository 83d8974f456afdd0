"""What a source states of its own limits is learned, kept over a restart, and the stricter holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.search.requests import SearchPage, StatedLimits
from cormorant.testing import ScriptedSource
from tests.conformance.searching import all_of, search_place

DAY_S = 86_400.0


def stating(limits: StatedLimits, asked: list[float]) -> Callable[..., Any]:
    async def execute(source: object, request: object) -> SearchPage:
        asked.append(round(trio.current_time(), 3))
        return SearchPage(results=(), limits=limits)

    return execute


@pytest.mark.slow("a simulated day")
async def test_a_daily_limit_that_the_source_states_holds_also_after_a_restart(clock: MockClock) -> None:
    asked: list[float] = []
    execute = stating(StatedLimits(api_max=2), asked)
    with search_place(a=ScriptedSource()) as place:
        async with place.service({"per_day": 100}) as service:
            await all_of(await service.search("one", execute=execute))
        async with place.service({"per_day": 100}) as service:
            for query in ("two", "three"):
                await all_of(await service.search(query, execute=execute))

    assert asked == [0.005, 0.01, DAY_S + 0.005]


@pytest.mark.slow("four simulated hours")
async def test_a_quota_that_others_have_used_up_closes_the_source(clock: MockClock) -> None:
    asked: list[float] = []
    with search_place(a=ScriptedSource()) as place:
        async with place.service() as service:
            oldest_at = place.clock.now() - timedelta(hours=20)
            spent = StatedLimits(api_current=100, api_max=100, api_oldest_at=oldest_at)
            await all_of(await service.search("one", execute=stating(spent, asked)))
            reasons = service.explain("a").reasons
            await all_of(await service.search("two", execute=stating(StatedLimits(), asked)))

    assert [gate.name for gate in reasons] == ["cooldown"]
    assert asked == [0.005, 4 * 3600.0]
