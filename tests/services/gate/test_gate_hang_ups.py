"""An app that hangs up, joins late or comes while the database is away costs nobody else anything."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from actors.search import rate_limiter, source_reconciler
from cormorant.rules.errors import StorageUnavailable
from cormorant.rules.search.caps import DEFAULT_CAPS
from cormorant.rules.search.outcomes import Outcome
from cormorant.rules.search.requests import Caps, SearchRequest
from cormorant.rules.settings.service import ClientSettings
from cormorant.services.gate.client_apps import LOOK_S, ClientApps
from cormorant.services.gate.gate import NothingAnswered
from cormorant.services.gate.latest_poller import GATHER_S
from cormorant.services.gate.shares import ShareClaim
from cormorant.testing import START, ScriptedSource, simulated
from storage import access
from storage.access import ClientRecord, digest_of
from storage.search.sources import SourceRecord
from tests.web.gate_alone import app, ask, gate_alone

pytestmark = pytest.mark.slow("makes the tables of a database and a tree of searches")

NAMES = ("red", "blue", "green")
WEEK_S = 7 * 86_400.0
SAID = Caps(searching={"search": frozenset({"q"})}, categories=())
POINTS = 12
"""So many points at which somebody may hang up or come, one after the other."""


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else writes here, and no clock jumps: looks every minute would be most of the work of a week."""
    monkeypatch.setattr(source_reconciler, "LOOK_S", WEEK_S)
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


def test_wherever_an_app_hangs_up_while_it_claims_several_sources_all_are_given_back() -> None:
    async def live() -> None:
        async with gate_alone(simulation, {name: ScriptedSource(["x"]) for name in NAMES}, per_day=4) as (gate, _):
            await gate.names("combined")
            sonarr, interrupted = app(share=0.25), 0  # one request a day of each

            async def claim() -> Sequence[ShareClaim | Outcome]:
                until = trio.current_time()
                claims = list(
                    (await gate.shares.claim_all(sonarr, SearchRequest(query="x"), NAMES, until=until)).values()
                )
                for each in claims:
                    assert isinstance(each, ShareClaim)
                    each.release()
                return claims

            for point in range(POINTS):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(claim)
                    for _ in range(point):
                        await trio.lowlevel.checkpoint()
                    interrupted += len(nursery.child_tasks)
                    nursery.cancel_scope.cancel()
                assert len(await claim()) == len(NAMES)

        assert 1 < interrupted < POINTS  # some points lie within, and some after it

    simulation = simulated(1)
    simulation.run(live)


def test_whenever_an_app_joins_a_poll_its_own_categories_are_asked_for() -> None:
    async def live() -> None:
        red = ScriptedSource(["x"])
        async with gate_alone(simulation, {"red": red}) as (gate, gateway):
            for point in range(POINTS):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask, gate, app(), "red", "", f"{5000 + point}")
                    await trio.sleep(GATHER_S / 2)
                    if (
                        point % 2
                    ):  # the first is held while it takes its turn, and goes on at the same moment as the second
                        gateway.go_away()
                        await trio.sleep(GATHER_S)
                    nursery.start_soon(ask, gate, app("radarr"), "red", "", f"{2000 + point}")
                    await trio.sleep(GATHER_S)
                    gateway.come_back()
                asked = {category for request in red.requests for category in request.categories}
                assert {5000 + point, 2000 + point} <= asked

        together = [request for request in red.requests if len(request.categories) > 1]
        assert len(together) == POINTS // 2  # who came in time was asked for with the first, who came late alone

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
