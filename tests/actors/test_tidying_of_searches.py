"""What searches leave behind is forgotten in time, and nothing that a limit still needs."""

from __future__ import annotations

from datetime import timedelta

import pytest
import trio
from sqlalchemy import Connection, text
from trio.testing import MockClock

from cormorant.rules.settings.settings import SearchSettings
from cormorant.testing import ScriptedSource
from tests.conformance.searching import all_of, search_place

DAY_S = 86_400.0


def counts(connection: Connection) -> dict[str, int]:
    tables = ("search_history", "search_cache", "source_requests")
    found = {}
    for table in tables:
        statement = f"SELECT count(*) FROM {table}"  # noqa: S608 - a table of ours
        found[table] = connection.execute(text(statement)).scalar_one()
    return found


@pytest.mark.slow("a month of looking every ten minutes")
async def test_what_is_old_goes_and_a_month_of_requests_stays(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service(search=SearchSettings(history_keep_s=10 * DAY_S)) as service:
            await all_of(await service.search("one"))
            await trio.sleep(700)
            fresh = await service.transaction(counts)
            await trio.sleep(4000)
            an_hour_later = await service.transaction(counts)
        place.clock.jump(11 * DAY_S)
        async with place.service(search=SearchSettings(history_keep_s=10 * DAY_S)) as service:
            await trio.sleep(700)
            days_later = await service.transaction(counts)
        place.clock.jump(timedelta(days=31).total_seconds())
        async with place.service() as service:
            await trio.sleep(700)
            a_month_later = await service.transaction(counts)

    assert fresh == {"search_history": 1, "search_cache": 1, "source_requests": 1}
    assert an_hour_later == fresh | {"search_cache": 0}
    assert days_later == {"search_history": 0, "search_cache": 0, "source_requests": 1}
    assert a_month_later == {"search_history": 0, "search_cache": 0, "source_requests": 1}, (
        "old beside the last one, too"
    )


async def test_only_so_many_are_kept(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service(search=SearchSettings(history_max=3)) as service:
            for number in range(5):
                await all_of(await service.search(f"{number}"))
            await trio.sleep(70)

            assert (await service.transaction(counts))["search_history"] == 3
