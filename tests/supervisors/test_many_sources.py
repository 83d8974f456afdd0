"""Starting and stopping the limiter of one more source costs the same, however many there are."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Self

import pytest

from cormorant.rules.settings.sources import SourceSettings
from cormorant.testing import memory_gateway, settings, simulated
from supervisors import supervisor

FOLDERS = tuple(supervisor.__file__.replace("supervisors/supervisor.py", each) for each in ("supervisors/", "actors/"))


class Steps:
    """Counts the lines of supervisors and actors that are executed. Every turn of a loop is at least one."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Steps | None:
        if not frame.f_code.co_filename.startswith(FOLDERS):
            return None
        self.count += 1
        return self

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)


def steps_to_run(sources: int) -> int:
    """What it takes until the limiters of so many sources have run."""
    chosen = settings(sources={f"s{number}": SourceSettings(url=f"http://s{number}") for number in range(sources)})
    simulation, steps = simulated(1), Steps()

    async def main() -> None:
        async with simulation.open_service(chosen, gateway=gateway) as service:
            assert len((await service.sources.find("s0")).record.name) == 2
            running = [
                child for view in (await service.status()).tree for child in view.children if child.name == "sources"
            ]
            assert len(running[0].children) == sources

    with memory_gateway() as gateway, steps:
        simulation.run(main)
    return steps.count


@pytest.mark.slow("starts a service with 150 sources, line by line")
def test_the_limiter_of_one_more_source_starts_and_stops_in_as_many_steps_as_those_before() -> None:
    steps_to_run(1)  # what is loaded late is loaded now
    few, more, most = (steps_to_run(sources) for sources in (50, 100, 150))

    assert most - more <= 1.05 * (more - few)
