"""A watching process is killed at any moment: what can be asked has each release once, the others as is set for them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from cormorant.rules.watch.wants import Want
from storage.watch import wants
from tests.chaos.conftest import Tell
from tests.chaos.crew import Crew, Forge
from tests.chaos.journal import Journal, Pen
from tests.chaos.ledger import Ledger
from tests.chaos.sizes import IS_SOAK, PATIENCE_S
from tests.chaos.watched_town import Town, town
from tests.chaos.watcher import AT_HOME, SERVED, WatchOrders

KILLS = 50 if IS_SOAK else 3
RELEASES = 12 if IS_SOAK else 1
"""Of each artist."""
LAG_S, DOUBT_S = (5.0, 15.0) if IS_SOAK else (0.5, 5.0)
"""How long targets hide what they have, and after how long they are asked. A slow target gets the rest to take it in."""
LINGER_S = 0.3 if IS_SOAK else 0.2
ENDED = {"handed over", "done"}


@pytest.fixture
def watchers() -> Iterator[Forge]:
    """Where watching processes come from."""
    with Forge("tests.chaos.watcher") as made:
        yield made


def all_wants(ledger: Ledger) -> list[Want]:
    return ledger.run(lambda connection: wants.recent(connection, limit=10_000))


async def kill_again_and_again(crew: Crew, place: Town, chance: random.Random) -> None:
    """Half of them in the moment in which a target is given something, if one comes soon."""
    for number in range(KILLS):
        if number * RELEASES // KILLS >= place.released:
            place.release()
        worker = await crew.start().ready()
        place.hit = trio.Event()
        if not IS_SOAK or chance.random() < 0.5:
            with trio.move_on_after(4.0):
                await place.hit.wait()
            await trio.sleep(chance.uniform(0.0, LINGER_S))
        else:
            await trio.sleep(chance.uniform(0.0, 3.0))
        await worker.kill()


async def until_all_has_ended(ledger: Ledger, number: int, within_s: float) -> list[Want]:
    """Wait until each release is where it belongs, or held for a person."""
    with trio.move_on_after(within_s):
        while True:
            there = all_wants(ledger)
            left = [want for want in there if want.state.value not in ENDED and "decide by hand" not in want.reason]
            if len(there) == number and not left:
                return there
            await trio.sleep(0.1)
    states = Counter((want.watch, want.state.value, want.reason) for want in all_wants(ledger))
    raise AssertionError(f"not ended within {within_s:g} s: {states}")


async def kill_and_let_end(ledger: Ledger, crew: Crew, place: Town) -> list[Want]:
    """Kill, go on with what is out by then, and wait until each release is where it belongs."""
    place.release()
    await kill_again_and_again(crew, place, random.Random(1))
    while place.released < RELEASES:
        place.release()
    last = await crew.start().ready()
    ended = await until_all_has_ended(ledger, len(place.artists) * RELEASES, PATIENCE_S)
    await last.kill()
    return ended


def orders_for(ledger: Ledger, place: Town, artists: dict[str, str]) -> WatchOrders:
    return WatchOrders(
        url=ledger.url,
        journal=str(place.folder / "journal"),
        ports=place.ports,
        artists=artists,
        sabnzbd_key=place.sabnzbd.key,
        slskd_key=place.slskd.key,
        doubt_s=DOUBT_S,
        linger_s=LINGER_S,
    )


@pytest.mark.slow("kills a process that hands over; fifty times with SOAK=1")
async def test_a_release_is_handed_over_once_however_often_the_process_is_killed(
    sqlite_ledger: Ledger, watchers: Forge, tmp_path: Path, tell: Tell
) -> None:
    journal = tmp_path / "journal"
    async with town(SERVED, tmp_path, lag_s=LAG_S, linger_s=LINGER_S) as place:
        crew = Crew(watchers, orders_for(sqlite_ledger, place, SERVED), Journal(journal), Pen(journal))
        ended = await kill_and_let_end(sqlite_ledger, crew, place)

    told = {name: place.times_told(name) for name in ("hold", "resend")}
    held = sum("decide by hand" in want.reason for want in ended)
    tell(
        f"{KILLS} kills, {RELEASES} releases for each target: qbittorrent has {len(place.qbittorrent.held)}, sabnzbd"
        f" {len(place.sabnzbd.jobs)}; hold was told of {len(told['hold'])} with {held} held, resend of"
        f" {len(told['resend'])} in {told['resend'].total()} calls"
    )
    assert len(place.qbittorrent.held) == RELEASES
    assert Counter(job.name for job in place.sabnzbd.jobs).total() == RELEASES
    assert max(told["hold"].values(), default=0) <= 1
    assert RELEASES - held <= len(told["hold"]) <= RELEASES
    assert len(told["resend"]) == RELEASES
    crew.assert_nobody_crashed()
    crew.pen.close()


@pytest.mark.slow("kills a process that hands over; fifty times with SOAK=1")
async def test_slskd_a_folder_and_a_command_get_each_release_once_however_often_the_process_is_killed(
    sqlite_ledger: Ledger, watchers: Forge, tmp_path: Path, tell: Tell
) -> None:
    journal = tmp_path / "journal"
    async with town(AT_HOME, tmp_path, lag_s=LAG_S, linger_s=LINGER_S) as place:
        crew = Crew(watchers, orders_for(sqlite_ledger, place, AT_HOME), Journal(journal), Pen(journal))
        ended = await kill_and_let_end(sqlite_ledger, crew, place)

    fetched = Counter(transfer.filename for transfer in place.slskd.transfers)
    told, held = place.commands_told(), sum("decide by hand" in want.reason for want in ended)
    tell(
        f"{KILLS} kills, {RELEASES} releases for each target: slskd fetches {fetched.total()} files in"
        f" {len(place.slskd.batches)} batches, the folder got {place.files_taken.total()}, the command was told of"
        f" {len(told)} with {held} held"
    )
    assert set(fetched.values()) == {1}
    assert len(place.slskd.batches) == RELEASES
    assert len(place.files_taken) == place.files_taken.total() == RELEASES
    assert max(told.values(), default=0) <= 1
    assert RELEASES - held <= len(told) <= RELEASES
    crew.assert_nobody_crashed()
    crew.pen.close()
