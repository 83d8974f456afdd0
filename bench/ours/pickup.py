"""How soon does an idle service start a job? `-m bench.ours.pickup here|across SETTINGS`.

`here`: enqueued by `service.enqueue`. `across`: by another process, with nothing but `storage.jobs.jobs.enqueue` and COMMIT.
Times are monotonic, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import trio
from attrs import define, field

from actors.jobs.handler import JobContext
from bench.ours.backlog import settings_for
from bench.ours.seeding import KIND
from cormorant.rules.events import Stamped
from cormorant.rules.jobs.events import JobCompleted
from supervisors import Service, open_service
from tests.environments import environment_of

SPACING_S = 0.02
WARM_UP = 10


@define
class Watch:
    """Takes down when each job was started, and knows when the service is idle again."""

    started_at: dict[int, float] = field(factory=dict)
    completed: int = 0
    changed: trio.Event = field(factory=trio.Event)

    async def handle(self, context: JobContext) -> None:
        self.started_at[context.payload["n"]] = time.monotonic()

    def listen(self, stamped: Stamped) -> None:
        if type(stamped.event) is JobCompleted:
            self.completed += 1
            self.changed.set()
            self.changed = trio.Event()

    async def until_completed(self, count: int) -> None:
        while self.completed < count:
            await self.changed.wait()


async def enqueue_here(service: Service, watch: Watch, samples: int) -> list[tuple[int, float, float]]:
    """Enqueue one job after the other, each when the last has been idle for a while."""
    calls = []
    for number in range(samples):
        called_at = time.monotonic()
        await service.enqueue(KIND, {"n": number})
        calls.append((number, called_at, time.monotonic()))
        await watch.until_completed(number + 1)
        await trio.sleep(SPACING_S)
    return calls


async def enqueue_elsewhere(watch: Watch, chosen: dict[str, Any], samples: int) -> list[tuple[int, float, float]]:
    """Let another process enqueue, at a pace at which the service is idle in between."""
    words = json.dumps(chosen | {"samples": samples, "spacing_s": SPACING_S})
    done = await trio.run_process(
        [sys.executable, "-m", "bench.ours.enqueuing", words], capture_stdout=True, stderr=None
    )
    await watch.until_completed(samples)
    return [(number, called_at, returned_at) for number, called_at, returned_at in json.loads(done.stdout)]


async def measure(place: str, chosen: dict[str, Any]) -> dict[str, float]:
    """Milliseconds from the call of enqueue, and from its return, to the first line of the handler."""
    watch = Watch()
    samples = WARM_UP + chosen["samples"]
    with trio.fail_after(chosen["limit_s"]):
        async with open_service(
            settings_for(chosen), environment=environment_of(listeners=[watch.listen]), handlers={KIND: watch.handle}
        ) as service:
            if place == "here":
                calls = await enqueue_here(service, watch, samples)
            else:
                calls = await enqueue_elsewhere(watch, chosen, samples)
    calls = calls[WARM_UP:]
    started_at = watch.started_at
    from_call = [started_at[number] - called_at for number, called_at, _ in calls]
    # A handler may begin before its caller is told: then there was nothing to wait for.
    from_return = [max(0.0, started_at[number] - returned_at) for number, _, returned_at in calls]
    return {
        "from_call_ms": statistics.median(from_call) * 1000,
        "from_return_ms": statistics.median(from_return) * 1000,
        "p99_from_call_ms": statistics.quantiles(from_call, n=100)[98] * 1000,
    }


if __name__ == "__main__":
    print(json.dumps(trio.run(measure, sys.argv[1], json.loads(sys.argv[2]))))
