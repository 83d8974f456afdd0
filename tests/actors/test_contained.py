"""Tests of `contained`: what becomes a failed item, and what passes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from actors.contained import Failed, contained
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.events import Event, ItemFailed
from cormorant.rules.secrets import Secret


async def raise_it(error: BaseException) -> None:
    await trio.lowlevel.checkpoint()
    raise error


class Items:
    """Runs steps of one item and remembers the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def run(self, step: Callable[[], Awaitable[object]], *expected: type[Exception]) -> object:
        return await contained(
            step, kind="artist", item="A1", emit=self.events.append, expected=expected, secrets=[Secret("hunter2")]
        )


async def test_a_step_that_succeeds_gives_its_result() -> None:
    async def step() -> int:
        await trio.lowlevel.checkpoint()
        return 7

    items = Items()

    assert await items.run(step) == 7
    assert items.events == []


async def test_an_unexpected_exception_is_told_with_its_traceback_and_without_secrets() -> None:
    items = Items()

    failed = await items.run(partial(raise_it, KeyError("albums of hunter2 at https://x.test/?passkey=abcdef")))

    said = "KeyError: 'albums of *** at https://x.test/?passkey=***"
    assert isinstance(failed, Failed)
    assert failed.reason.startswith(f"an unexpected error, please report it: {said}")
    [event] = items.events
    assert isinstance(event, ItemFailed)
    assert (event.kind, event.item) == ("artist", "A1")
    assert event.error.startswith(said)
    assert "in raise_it" in event.traceback
    assert not [word for word in ("hunter2", "abcdef") if word in event.traceback]


@pytest.mark.parametrize("outage", [StorageUnavailable("away"), CommitUnknown("lost")], ids=["away", "lost"])
async def test_an_outage_passes_and_is_not_counted(outage: Exception) -> None:
    items = Items()

    with pytest.raises(type(outage)):
        await items.run(partial(raise_it, outage))

    assert items.events == []


async def test_an_expected_exception_passes() -> None:
    items = Items()

    with pytest.raises(LookupError):
        await items.run(partial(raise_it, LookupError("gone")), LookupError)

    assert items.events == []


async def test_cancellation_passes() -> None:
    items = Items()

    with trio.CancelScope() as scope:
        scope.cancel()
        await items.run(trio.sleep_forever)

    assert scope.cancelled_caught
    assert items.events == []


async def test_an_exception_raised_while_it_is_cancelled_is_told_and_the_cancellation_passes() -> None:
    async def raises_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("in finally")

    async def two_tasks() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises_when_cancelled)
            nursery.start_soon(trio.sleep_forever)

    items = Items()
    with trio.CancelScope() as scope:
        scope.cancel()
        await items.run(two_tasks)

    assert scope.cancelled_caught
    assert [event.error for event in items.events if isinstance(event, ItemFailed)] == ["ValueError: in finally"]


async def test_of_a_group_only_the_outage_passes() -> None:
    items = Items()

    with pytest.RaisesGroup(StorageUnavailable):
        await items.run(partial(raise_it, ExceptionGroup("both", [KeyError("x"), StorageUnavailable("away")])))

    assert [event.error for event in items.events if isinstance(event, ItemFailed)] == ["KeyError: 'x'"]
