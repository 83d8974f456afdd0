"""The service under the load of `bench/web.py`, in a process of its own. `-m bench.ours.serving SETTINGS`.

Says where it listens; at the end of its input it says how late its loop was and how much memory it had.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import time
from typing import Any

import attrs
import trio

from actors.jobs.handler import JobContext
from bench.ours.memory import rss_bytes
from cormorant.rules.errors import CormorantError
from cormorant.rules.events import Stamped, WebListening
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings, WebSettings
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SourceSettings
from supervisors.service import Service, open_service
from tests.environments import environment_of

TICK_S = 0.01
WARM_UP_S = 2.0
STEP_MS_MIN = 1.0
SAMPLE_S = 1.0
SEARCHES_EVERY_S = 0.1
JOBS_EVERY_S = 0.05


class Steps(trio.abc.Instrument):
    """How much of the processor does one step of one task take? The loop is held up for so long, however busy the machine is."""

    def __init__(self) -> None:
        self.began = math.inf  # of the step in which it is added nobody saw the beginning
        self.took_ms: list[float] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A step begins."""
        self.began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """A step ends. Those that nobody could notice are not kept."""
        took_ms = (time.thread_time() - self.began) * 1000
        if took_ms > STEP_MS_MIN:
            self.took_ms.append(took_ms)


async def main(chosen: dict[str, Any]) -> None:
    """Serve, search and work until told to end."""
    late_ms: list[float] = []
    rss_mb: list[float] = []
    used_s: list[tuple[float, float]] = []
    steps = Steps()

    def tell(stamped: Stamped) -> None:
        if isinstance(stamped.event, WebListening):
            print(json.dumps({"address": stamped.event.address}), flush=True)

    async with (
        open_service(
            settings_for(chosen), environment=environment_of(listeners=[tell]), handlers={"noop": noop}
        ) as service,
        trio.open_nursery() as nursery,
    ):
        await trio.sleep(WARM_UP_S)  # what is loaded and made at the first request is not held against the rest
        gc.freeze()  # as `cormorant run` does
        trio.lowlevel.add_instrument(steps)
        nursery.start_soon(watch, late_ms)
        nursery.start_soon(weigh, rss_mb, used_s)
        nursery.start_soon(search, service)
        nursery.start_soon(enqueue, service)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()
    told = {"late_ms": late_ms, "rss_mb": rss_mb, "steps_ms": steps.took_ms, "used_s": used_s}
    print(json.dumps(told), flush=True)


def settings_for(chosen: dict[str, Any]) -> Settings:
    """Two sources of one upstream: one that is searched, and one that is paused, for searches that wait."""
    source = SourceSettings(url=chosen["upstream"], key=Secret("the-key-of-the-site"), spacing_s=0.0, pace_s=0.0)
    return attrs.evolve(
        Settings(),
        data=chosen["folder"],
        sources={"red": source, "blue": attrs.evolve(source, url=f"{chosen['upstream']}/blue")},
        clients={"sonarr": ClientSettings(key=Secret(chosen["client_key"]))},
        web=WebSettings(listen="127.0.0.1:0", key=Secret(chosen["key"])),
    )


async def noop(context: JobContext) -> None:
    """A job."""


async def watch(late_ms: list[float]) -> None:
    """How late is what is due every few milliseconds?"""
    while True:
        due = trio.current_time() + TICK_S
        await trio.sleep_until(due)
        late_ms.append((trio.current_time() - due) * 1000)


async def weigh(rss_mb: list[float], used_s: list[tuple[float, float]]) -> None:
    """How much memory is in use, and how much of the processor was by which time?"""
    while True:
        rss_mb.append(rss_bytes() / 1e6)
        used_s.append((time.time(), time.process_time()))
        await trio.sleep(SAMPLE_S)


async def search(service: Service) -> None:
    """Search, one after the other."""
    number = 0
    while True:
        number += 1
        try:
            async with await service.search(f"some show {number}", sources=["red"]) as found:
                await found.wait()
        except CormorantError as error:
            print(error, file=sys.stderr)
        await trio.sleep(SEARCHES_EVERY_S)


async def enqueue(service: Service) -> None:
    """Enqueue, one after the other."""
    while True:
        await service.enqueue("noop", {"n": 1})
        await trio.sleep(JOBS_EVERY_S)


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]))
