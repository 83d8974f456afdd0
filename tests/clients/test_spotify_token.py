"""When a token is asked for: before it ends, once at a time, and not again by those who saw it fail."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from cormorant.clients.spotify import Token, TokenCache
from cormorant.rules.search.outcomes import SourceLimited
from cormorant.rules.secrets import Secret


class Giver:
    """Gives tokens that last as long as it is told, after a second."""

    def __init__(self, *lasts_s: float) -> None:
        self.lasts_s = list(lasts_s)
        self.asked_at: list[float] = []

    async def __call__(self) -> Token:
        self.asked_at.append(trio.current_time())
        await trio.sleep(1)
        return Token(text=Secret(f"token {len(self.asked_at)}"), lasts_s=self.lasts_s.pop(0))


async def test_a_token_is_renewed_a_minute_before_it_ends(autojump_clock: MockClock) -> None:
    giver = Giver(3600, 3600)
    keeper = TokenCache()

    first = await keeper.token(giver)
    await trio.sleep(3538.5)
    assert await keeper.token(giver) is first
    await trio.sleep(1)

    assert await keeper.token(giver) is not first
    assert giver.asked_at == [0.0, 3540.5]


async def test_a_short_token_is_used_for_most_of_its_life(autojump_clock: MockClock) -> None:
    giver = Giver(50, 50)
    keeper = TokenCache()

    await keeper.token(giver)
    await trio.sleep(43.5)
    await keeper.token(giver)
    await trio.sleep(1)
    await keeper.token(giver)

    assert giver.asked_at == [0.0, 45.5]


async def test_whoever_asks_is_cancelled_and_the_next_asks(autojump_clock: MockClock) -> None:
    giver = Giver(3600)
    keeper = TokenCache()
    got: list[Token] = []

    async def wait() -> None:
        got.append(await keeper.token(giver))

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.5):
            await keeper.token(giver)
        nursery.start_soon(wait)
        nursery.start_soon(wait)

    assert giver.asked_at == [0.0, 0.5]
    assert got[0] is got[1]


async def test_a_token_that_was_refused_is_forgotten_and_a_newer_one_is_not(autojump_clock: MockClock) -> None:
    giver = Giver(3600, 3600)
    keeper = TokenCache()

    old = await keeper.token(giver)
    keeper.forget(old)
    new = await keeper.token(giver)
    keeper.forget(old)

    assert await keeper.token(giver) is new
    assert len(giver.asked_at) == 2


async def test_a_failure_is_shared_by_those_who_waited_and_tried_anew_by_those_who_come_later(
    autojump_clock: MockClock,
) -> None:
    tries: list[float] = []

    async def fail() -> Token:
        tries.append(trio.current_time())
        await trio.sleep(1)
        raise SourceLimited("slowly", retry_after_s=86_400)

    keeper = TokenCache()
    waits: list[float | None] = []

    async def ask() -> None:
        with pytest.raises(SourceLimited, match="slowly") as caught:
            await keeper.token(fail)
        waits.append(caught.value.retry_after_s)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    await ask()

    assert tries == [0.0, 1.0]
    assert waits == [86_400] * 4
