"""Processes that are killed between paying for a request and sending it, again and again: no limit is ever exceeded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from cormorant.rules.search.reservations import PROBE_GRACE_S
from tests.bounds import WAIT_S
from tests.chaos.conftest import Tell
from tests.chaos.ledger import Ledger
from tests.chaos.loopback import LOOK_S, least_distance_s, loopback_site, reserved_at, searching
from tests.chaos.searcher import SearchOrders
from tests.chaos.sizes import IS_SOAK, KILLS

PER_HOUR = 10 * KILLS
SPACING_S = 0.03
TIMEOUT_S = 5.0
IN_HAND = 3
"""How many requests a process may have in hand when it dies: their leases stay for a minute."""


@pytest.mark.slow("processes killed one after the other")
async def test_processes_that_die_with_a_request_in_hand_never_exceed_the_limit(
    ledger: Ledger, tmp_path: Path, tell: Tell
) -> None:
    in_flight = IN_HAND * KILLS + 4
    limits = {"per_hour": PER_HOUR, "spacing_s": SPACING_S, "pace_s": 0.0, "in_flight": in_flight}
    async with loopback_site() as site:
        words = {"url": ledger.url, "data": str(tmp_path), "port": site.port, "limits": limits}
        lives = SearchOrders(**words, searches=PER_HOUR)  # type: ignore[arg-type]  # the words are of several types
        dies = SearchOrders(**words, searches=IN_HAND, dies_at=IN_HAND)  # type: ignore[arg-type]  # as above
        for _ in range(KILLS):
            with searching(dies) as (dying,), trio.fail_after(WAIT_S):
                while dying.poll() is None:
                    await trio.sleep(0.02)
        with searching(lives, lives):
            with trio.fail_after(WAIT_S):
                while reserved_at(ledger.url) < PER_HOUR:
                    await trio.sleep(LOOK_S)
            await site.until_quiet(least=PER_HOUR - IN_HAND * KILLS)

    assert reserved_at(ledger.url) == PER_HOUR
    assert least_distance_s(ledger.url) >= SPACING_S, "also after one that died before it sent what it had paid for"
    assert PER_HOUR - IN_HAND * KILLS <= len(site.began) <= PER_HOUR - KILLS
    tell(f"{len(site.began)} of {PER_HOUR} requests arrived, {PER_HOUR - len(site.began)} died on the way")


@pytest.mark.skipif(not IS_SOAK, reason="a lease lasts half a minute: SOAK=1")
@pytest.mark.slow("waits for the lease of a killed process")
async def test_a_killed_process_keeps_the_source_busy_until_its_lease_expires_and_no_longer(
    ledger: Ledger, tmp_path: Path
) -> None:
    limits = {"per_hour": 3, "spacing_s": 0.0, "pace_s": 0.0, "timeout_s": TIMEOUT_S}
    async with loopback_site() as site:
        words = {"url": ledger.url, "data": str(tmp_path), "port": site.port, "limits": limits}
        began_at = datetime.now(UTC)
        dies = SearchOrders(**words, searches=1, dies_at=1)  # type: ignore[arg-type]  # the words are of several types
        lives = SearchOrders(**words, searches=5)  # type: ignore[arg-type]  # as above
        with searching(dies) as (dying,), trio.fail_after(WAIT_S):
            while dying.poll() is None:
                await trio.sleep(0.02)
        with searching(lives):
            await site.until_quiet(least=2)

    assert len(site.began) == 2
    waited_s = (site.began[0] - began_at).total_seconds()
    assert waited_s >= TIMEOUT_S + PROBE_GRACE_S, "its time-out and 30 s more"
