"""A thousand events of a real supervised tree with storage, in a simulation; prints the hash of their trace.

Run as `python -m tests.simulated_run SEED`, so that another process, or another Python, can be compared.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from functools import partial

import trio
import trio.testing
from attrs import define, frozen
from sqlalchemy import Connection, text

from actors.actor import Actor, Address, Reply
from cormorant.rules.errors import ActorCrashed
from cormorant.rules.events import StorageLost
from cormorant.testing import Recorder, Simulation, memory_gateway, settings, simulated
from storage.database import Database
from supervisors import ChildSpec, OnExhausted, Strategy, Supervisor
from supervisors.service import Service

EVENTS = 1_000


@frozen(kw_only=True)
class Count:
    """Question: how many rows does the table have after adding one?"""

    name: str
    reply: Reply[int]


def count_up(connection: Connection, name: str) -> int:
    connection.execute(text("CREATE TABLE IF NOT EXISTS counted (name TEXT)"))
    connection.execute(text("INSERT INTO counted VALUES (:name)"), {"name": name})
    number: int = connection.execute(text("SELECT count(*) FROM counted")).scalar_one()
    return number


@define(eq=False)
class Counter(Actor[Count]):
    """Writes to the real gateway, and crashes now and then."""

    service: Service
    simulation: Simulation

    async def handle(self, message: Count) -> None:
        number = await self.service.transaction(count_up, message.name)
        if self.simulation.chance.random() < 0.2:
            raise ValueError(f"crashed at {number}")
        message.reply.answer(number)


async def main(simulation: Simulation, recorder: Recorder) -> None:
    with memory_gateway() as gateway:
        await live(simulation, recorder, gateway)
    assert trio.testing.active_thread_count() == 0
    assert recorder.of(StorageLost)


async def live(simulation: Simulation, recorder: Recorder, gateway: Database) -> None:
    async with simulation.open_service(settings(), gateway=gateway, listeners=[recorder]) as service:
        emit = service.emit
        addresses = [Address[Count](f"counter {n}", emit=emit) for n in range(5)]
        children = [
            ChildSpec(address.name, address.served_by(partial(Counter, service, simulation))) for address in addresses
        ]
        kit = Supervisor(
            children, name="kit", strategy=Strategy.REST_FOR_ONE, intensity=1_000, emit=emit, chance=simulation.chance
        )
        above = [ChildSpec("kit", kit, on_exhausted=OnExhausted.SET_ASIDE)]
        async with Supervisor(above, name="above", emit=emit, chance=simulation.chance), trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask_for_ever, address, simulation)
            nursery.start_soon(outages, gateway.go_away, gateway.come_back)
            while len(recorder.heard) < EVENTS:
                await trio.sleep(1)
            nursery.cancel_scope.cancel()


async def ask_for_ever(address: Address[Count], simulation: Simulation) -> None:
    while True:
        await trio.sleep(simulation.chance.expovariate(1.0))
        with trio.move_on_after(20), suppress(ActorCrashed):  # crashes are the point; their order is in the trace
            await address.ask(partial(Count, name=address.name))


async def outages(go_away: object, come_back: object) -> None:
    assert callable(go_away)
    assert callable(come_back)
    while True:
        await trio.sleep(50)
        go_away()
        await trio.sleep(10)
        come_back()


def trace(seed: int) -> str:
    simulation, recorder = simulated(seed), Recorder()
    simulation.run(main, simulation, recorder)
    return hashlib.sha256("\n".join(recorder.lines()[:EVENTS]).encode()).hexdigest()


if __name__ == "__main__":
    sys.stdout.write(f"{trace(int(sys.argv[1]))}\n")
