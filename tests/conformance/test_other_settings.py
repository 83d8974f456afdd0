"""Two processes with different settings on one database: a source is asked only where its key is known."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock

from cormorant.rules.secrets import Secret
from cormorant.scripted import ScriptedSource
from cormorant.testing import SimulatedClock, in_line, named_sources, scripted, settings
from storage.database import Database
from storage.search.sources import UnknownSource
from supervisors import Service, open_service
from tests.conformance.searching import all_of
from tests.conformance.watchlist.watching import file_gateway
from tests.environments import environment_of


def service(gateway: Database, asked: dict[str, ScriptedSource], *names: str) -> Service:
    named = named_sources(*names, spacing_s=0.0, pace_s=0.0)
    return open_service(
        settings(sources={name: evolve(each, key=Secret("the-key")) for name, each in named.items()}),
        environment=environment_of(
            clock=SimulatedClock(), chance=random.Random(1), offload=in_line, database=gateway, search=scripted(asked)
        ),
    )


@pytest.mark.slow("two services on one file")
async def test_a_process_does_not_ask_a_source_of_other_settings(clock: MockClock, tmp_path: Path) -> None:
    here, elsewhere = {"attic": ScriptedSource(["x"])}, {"attic": ScriptedSource(["x"])}
    file = tmp_path / "shared.db"

    with file_gateway(file) as first, file_gateway(file) as second:
        async with service(first, here) as without, service(second, elsewhere, "attic") as with_attic:
            await trio.sleep(200)  # both have looked at the table of sources

            with pytest.raises(UnknownSource):
                await without.search("x", sources=["attic"])
            [outcome] = await all_of(await with_attic.search("x", sources=["attic"]))

    assert outcome.status.value == "found"
    assert (len(here["attic"].asked_at), len(elsewhere["attic"].asked_at)) == (0, 1)
