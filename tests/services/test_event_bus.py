"""Events reach listeners in order, and slow readers lose the oldest and are told."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from cormorant.rules.events import Event, EventsLost, ListenerFailed, MessageLost, Stamped
from cormorant.services.event_bus import EventBus
from cormorant.testing import START, SimulatedClock


def fact(number: int) -> Event:
    return MessageLost(actor=f"actor {number}", message="Deposit", why="a test")


def actors_of(events: list[Stamped]) -> list[str]:
    return [stamped.event.actor for stamped in events if isinstance(stamped.event, MessageLost)]


async def test_listeners_hear_every_event_in_line_with_number_and_time(clock: MockClock) -> None:
    heard: list[Stamped] = []
    bus = EventBus(SimulatedClock(), [heard.append])

    bus.emit(fact(1))
    await trio.sleep(2.5)
    bus.emit(fact(2))

    assert actors_of(heard) == ["actor 1", "actor 2"]
    assert [stamped.sequence for stamped in heard] == [1, 2]
    assert [(stamped.at - START).total_seconds() for stamped in heard] == [0.0, 2.5]


async def test_a_listener_that_raises_is_reported_and_left_out(clock: MockClock) -> None:
    heard: list[Stamped] = []
    calls = 0

    def raising(stamped: Stamped) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("no")

    bus = EventBus(SimulatedClock(), [raising, heard.append])
    bus.emit(fact(1))
    bus.emit(fact(2))

    assert calls == 1
    assert actors_of(heard) == ["actor 1", "actor 2"]
    assert [stamped.sequence for stamped in heard] == [1, 2, 3]
    assert isinstance(heard[1].event, ListenerFailed)


async def test_what_a_listener_emits_comes_after_what_it_listens_to(clock: MockClock) -> None:
    heard: list[Stamped] = []
    bus = EventBus(SimulatedClock())

    def echoing(stamped: Stamped) -> None:
        if stamped.sequence == 1:
            bus.emit(fact(2))
            bus.close()
            raise ValueError("and then it fails")

    bus.listen(echoing)
    bus.listen(heard.append)
    bus.emit(fact(1))

    assert actors_of(heard) == ["actor 1", "actor 2"]
    assert [stamped.sequence for stamped in heard] == [1, 2, 3]


async def test_a_stream_sees_the_events_from_its_beginning_to_the_end(clock: MockClock) -> None:
    bus = EventBus(SimulatedClock())
    bus.emit(fact(0))
    stream = bus.stream()

    bus.emit(fact(1))
    bus.emit(fact(2))
    bus.close()

    assert actors_of([stamped async for stamped in stream]) == ["actor 1", "actor 2"]


async def test_a_slow_reader_loses_the_oldest_and_is_told_how_many(clock: MockClock) -> None:
    bus = EventBus(SimulatedClock())
    stream = bus.stream(size=3)
    for number in range(10):
        bus.emit(fact(number))
    bus.close()

    read = [stamped async for stamped in stream]

    assert read[0].event == EventsLost(count=7)
    assert actors_of(read) == ["actor 7", "actor 8", "actor 9"]


async def test_a_reader_that_leaves_costs_nothing_any_more(clock: MockClock) -> None:
    bus = EventBus(SimulatedClock())

    async with bus.stream() as stream:
        bus.emit(fact(1))
    bus.emit(fact(2))

    assert actors_of([stamped async for stamped in stream]) == []
    assert bus._streams == []  # noqa: SLF001 - whether anything stays behind


async def test_a_stream_opened_after_the_end_ends_at_once(clock: MockClock) -> None:
    bus = EventBus(SimulatedClock())
    bus.close()

    assert [stamped async for stamped in bus.stream()] == []
