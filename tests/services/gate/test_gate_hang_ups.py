"""An app that hangs up, joins late or comes while the database is away costs nobody else anything."""

from __future__ import annotations

import pytest
import trio

from actors.search import rate_limiter
from actors.search.search import Terms
from cormorant.rules.errors import StorageUnavailable
from cormorant.rules.search.caps import DEFAULT_CAPS
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import Caps, SearchRequest
from cormorant.rules.settings.service import ClientSettings
from cormorant.services.gate.client_apps import LOOK_S, AppShare, ClientApps
from cormorant.services.gate.gate import GateService, NothingAnswered
from cormorant.testing import START, ScriptedSource, simulated
from storage import access
from storage.access import ClientRecord, digest_of
from storage.search.sources import SourceRecord
from tests.services.gate.test_gate_day import requests
from tests.web.gate_alone import app, ask, gate_alone, new_titles

pytestmark = pytest.mark.slow("makes the tables of a database and a tree of searches")

WINDOW_S = 0.005
"""So long the dispatcher gathers searches."""
WEEK_S = 7 * 86_400.0
SAID = Caps(searching={"search": frozenset({"q"})}, categories=())
POINTS = 12
"""So many points at which somebody may hang up or come, one after the other."""


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else writes here, and no clock jumps: looks every minute would be most of the work of a week."""
    monkeypatch.setattr(rate_limiter, "WAIT_S_MAX", WEEK_S)


def test_an_app_that_hangs_up_while_it_waits_has_not_used_its_share() -> None:
    async def live() -> None:
        red = ScriptedSource(["x"])
        async with gate_alone(simulation, {"red": red}, spacing_s=30.0, per_day=4) as (gate, _):
            sonarr = app(share=0.25, hold_s=60.0)  # one request a day
            await ask(gate, app("person"), "red", "somebody was faster")
            with trio.move_on_after(1) as hung_up:
                await ask(gate, sonarr, "red", "first")
            found = await ask(gate, sonarr, "red", "second")
            with pytest.raises(NothingAnswered) as refused:
                await ask(gate, sonarr, "red", "third")

        assert hung_up.cancelled_caught
        assert [item.result.title for item in found.items] == ["x"]
        assert [request.query for request in red.requests] == ["somebody was faster", "second"]
        assert refused.value.retry_after_s is not None

    simulation = simulated(1)
    simulation.run(live)


def test_wherever_an_app_hangs_up_its_share_is_used_by_what_was_reserved_alone() -> None:
    async def live() -> None:
        red, sonarr, share = ScriptedSource(["x"]), app(share=0.25), POINTS + 3
        async with gate_alone(simulation, {"red": red}, per_day=4 * share) as (gate, gateway):
            interrupted = 0
            for point in range(POINTS):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask, gate, sonarr, "red", f"{point}")
                    await trio.sleep(WINDOW_S / (1 + point % 2))  # every other one hangs up before it is reserved
                    for _ in range(point):
                        await trio.lowlevel.checkpoint()
                    interrupted += len(nursery.child_tasks)
                    nursery.cancel_scope.cancel()
            spent = len((await gateway.read(requests)).get("red", ()))
            for number in range(share - spent):
                await ask(gate, sonarr, "red", f"again {number}")
            with pytest.raises(NothingAnswered):
                await ask(gate, sonarr, "red", "one too many")

        assert interrupted > POINTS // 2
        assert 0 < spent <= POINTS // 2

    simulation = simulated(1)
    simulation.run(live)


def test_whenever_an_app_joins_a_poll_its_own_categories_are_asked_for() -> None:
    async def live() -> None:
        red = ScriptedSource(["x"], takes_s=1.0)
        async with gate_alone(simulation, {"red": red}) as (gate, gateway):
            for point in range(POINTS):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(new_titles, gate, app(), "red", f"{5000 + point}")
                    if point % 2:  # the first is held at its reservation, or runs already
                        await trio.sleep(WINDOW_S / 2)
                        gateway.go_away()
                        await trio.sleep(1)
                        gateway.come_back()
                    for _ in range(point):
                        await trio.lowlevel.checkpoint()
                    nursery.start_soon(new_titles, gate, app("radarr", share=0.5), "red", f"{2000 + point}")
                asked = {category for request in red.requests for category in request.categories}
                assert {5000 + point, 2000 + point} <= asked
                assert len((await gate.news._look(gate._record("red"))).fetched) == 2 * (point + 1)  # noqa: SLF001 - what was noted is the question

        together = [request for request in red.requests if len(request.categories) > 1]
        assert (
            len(together) >= POINTS // 2
        )  # an app that came in time was asked for with the first, one that was late alone

    simulation = simulated(1)
    simulation.run(live)


def test_a_poll_goes_on_for_those_who_joined_it_when_the_first_app_hangs_up() -> None:
    async def live() -> None:
        red = ScriptedSource(["x"], takes_s=1.0)
        async with gate_alone(simulation, {"red": red}) as (gate, _):
            async with trio.open_nursery() as nursery:
                with trio.move_on_after(0.5):
                    nursery.start_soon(found_by, gate, app("radarr"))
                    await new_titles(gate, app(), "red")
            after = await new_titles(gate, app(), "red")

        assert shown == [["x"]]
        assert after == ["x"]
        assert len(red.requests) == 1

    async def found_by(gate: GateService, client: AppShare) -> None:
        shown.append(await new_titles(gate, client, "red"))

    shown: list[list[str]] = []
    simulation = simulated(1)
    simulation.run(live)


def test_an_answer_that_no_app_waited_for_is_shown_to_the_next_and_is_fresh_no_longer_for_it() -> None:
    async def live() -> None:
        red = ScriptedSource(["old"], ["new"])
        async with gate_alone(simulation, {"red": red}) as (gate, _):
            before = await new_titles(gate, app(), "red", cat="5000")
            await trio.sleep(60)
            # As by another process, or for an app that hung up before its answer was merged.
            poll = Terms(priority=Priority.RSS, max_wait_s=9, timeout_s=9, consumer="radarr", poll="known")
            await gate.searches.outcomes(SearchRequest(categories=[5000], limit=100), poll, sources=["red"])
            await trio.sleep(30)
            shown = [await new_titles(gate, app(), "red", cat="5000") for _ in range(2)]
            asked_at = list(red.asked_at)
            await trio.sleep(31)
            await new_titles(gate, app(), "red", cat="5000")

        titles = [sorted(page) for page in (before, *shown)]
        assert titles == [["old"], ["new", "old"], ["new", "old"]]
        assert len(asked_at) == 2
        assert len(red.asked_at) == 3, "a minute after the second, and not after it was shown"

    simulation = simulated(1)
    simulation.run(live)


def test_caps_that_an_app_hung_up_on_are_asked_for_by_the_next_and_then_kept_for_a_week() -> None:
    async def live() -> None:
        asked_at: list[float] = []

        async def said(_: SourceRecord) -> Caps:
            asked_at.append(trio.current_time())
            await trio.sleep(5)
            return SAID

        async with gate_alone(simulation, {"red": ScriptedSource()}, caps=said) as (gate, _):
            with trio.move_on_after(1) as hung_up:
                await gate.caps(app(), "red")
            again = await gate.caps(app(), "red")
            await trio.sleep(WEEK_S - 60)
            kept = await gate.caps(app("radarr"), "red")
            await trio.sleep(60)
            anew = await gate.caps(app(), "red")

        assert hung_up.cancelled_caught
        assert [each.searching for each in (again, kept, anew)] == [SAID.searching] * 3
        assert SAID.searching != DEFAULT_CAPS.searching
        assert len(asked_at) == 3
        assert asked_at[2] - asked_at[1] > WEEK_S

    simulation = simulated(1)
    simulation.run(live)


def test_nobody_is_a_stranger_because_the_database_is_away() -> None:
    async def live() -> None:
        readarr = ClientRecord(
            name="readarr", key_digest=digest_of("key of readarr"), settings=ClientSettings(), added_at=START
        )
        async with gate_alone(simulation, {"red": ScriptedSource()}) as (gate, gateway):
            await gateway.run(access.add, readarr)
            known, fresh = gate.clients, ClientApps(gate.environment, gate.keys)
            first = await known.by_key("key of readarr")
            gateway.go_away()
            await trio.sleep(LOOK_S)

            again = await known.by_key("key of readarr")
            for each in (known, fresh):
                with pytest.raises(StorageUnavailable):
                    await each.by_key("of somebody who may have been added since")
                with pytest.raises(StorageUnavailable):
                    await each.by_name("whoever")
            with pytest.raises(StorageUnavailable):
                await fresh.by_key("key of readarr")  # not known yet to this one, so neither let in nor refused
            gateway.come_back()
            await trio.sleep(60)
            seen = [await fresh.by_key("key of readarr"), await fresh.by_key("of nobody")]

        assert first == again == seen[0] is not None
        assert seen[1] is None

    simulation = simulated(1)
    simulation.run(live)
