"""Feeds, artists, saved searches, prices and handovers of a lost process are claimed by another as its jobs are, and done once.

A process is killed, frozen or cut off from the database. An outage for all processes makes none of them lose anything.
"""

from __future__ import annotations

import resource
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio
from sqlalchemy import Connection, make_url, text

from cormorant.rules.jobs.events import WorkerDeclaredDead, WorkerUnconfirmed
from cormorant.rules.schedules import Schedule
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.artists import Artist, Start
from cormorant.rules.watch.events import HandoverEnded, SavedSearchChecked, WatchlistDownload
from cormorant.rules.watch.feeds import Subscription
from cormorant.rules.watch.handovers import Handover, HandoverState
from cormorant.rules.watch.prices import PriceCollected, PriceWatch
from cormorant.rules.watch.wants import Want, WantState
from cormorant.rules.watch.watches import FirstCheck, SavedSearch
from storage.watch import artists, feeds, handovers, prices, saved_searches, wants
from tests.bounds import WAIT_S
from tests.chaos.claimer import (
    ARTIST,
    CLAIMED,
    FEED,
    HANDOVER,
    INDEXER,
    PRICE,
    SAVED,
    SECOND_PRICE,
    SHOP,
    TARGET,
    ClaimOrders,
)
from tests.chaos.conftest import Hire, Tell
from tests.chaos.crew import Crew, Forge, Worker, crew
from tests.chaos.journal import BEGAN, LOOK_S, overlaps
from tests.chaos.ledger import Ledger, open_ledger
from tests.chaos.test_frozen_workers import lines_that_hang
from tests.chaos.worker import DEAD_AFTER_S, NEVER_S
from tests.postgres import PostgresServer
from tests.watch_kinds import added

DAY_S: Final = 86_400.0
SWEEPS: Final = 3
"""After so many further sweeps nothing more is expected to happen."""
PROBE_S: Final = 1.0
"""Longer than a living process holds a lock."""
LOST_AFTER_S: Final = 2 * DEAD_AFTER_S
OUTAGE_S: Final = 1.5 * LOST_AFTER_S
SWEEP_S: Final = 0.2
ONCE: Final = {"checks of the feed": 1, FEED: 1, ARTIST: 1, SAVED: 1, PRICE: 1, HANDOVER: 1}
COUNTED: Final = {
    "checks of the feed": "SELECT count(*) FROM subscription_checks",
    FEED: "SELECT count(*) FROM wants WHERE title LIKE 'feed call %'",
    ARTIST: "SELECT count(*) FROM wants WHERE title LIKE 'artist call %'",
    SAVED: "SELECT count(*) FROM wants WHERE title LIKE 'saved call %'",
    PRICE: "SELECT count(*) FROM price_points",
    HANDOVER: "SELECT count(*) FROM downloads WHERE state = 'done'",
}
TOLD: Final = (WatchlistDownload, SavedSearchChecked, PriceCollected, HandoverEnded)
"""Each is told once for each item that is done."""
RENEWALS: Final = "SELECT COALESCE(sum(renewals), 0) FROM leases"
BUSY: Final = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'cormorant' AND datname = current_database() AND state <> 'idle'
"""


@pytest.fixture(scope="module")
def claimer_forge() -> Iterator[Forge]:
    """Where the processes come from."""
    with Forge("tests.chaos.claimer") as made:
        yield made


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that every stand-in waits for."""
    return tmp_path / "gate"


@pytest.fixture
def hire_claimers(claimer_forge: Forge, tmp_path: Path, gate: Path) -> Iterator[Hire]:
    """Opens a crew for a database, to be asked for after the database: it is gone before it."""
    journal = str(tmp_path / "journal")
    with ExitStack() as stack:
        yield lambda ledger, **words: stack.enter_context(
            crew(claimer_forge, ClaimOrders(url=ledger.url, journal=journal, gate=str(gate), **words))
        )


def open_gate(gate: Path) -> None:
    """Let every stand-in answer."""
    gate.touch()


def add_due(connection: Connection) -> None:
    """One feed, artist, saved search, price and handover, each due now and then not for a day."""
    now = datetime.now(UTC)
    added(
        connection,
        feeds.FEED,
        Subscription(
            name=FEED,
            url="http://feed.test/rss",
            schedule=Schedule(every_s=DAY_S),
            takes_first=True,
            next_attempt_at=now,
            added_at=now,
        ),
    )
    artist = Artist(source="spotify", artist_id="a1", name=ARTIST, start=Start.ALL, next_attempt_at=now, added_at=now)
    added(connection, artists.ARTIST, artist)
    added(
        connection,
        saved_searches.SAVED,
        SavedSearch(
            name=SAVED,
            request=SearchRequest(query=SAVED),
            every_s=DAY_S,
            sources=(INDEXER,),
            first_check=FirstCheck.TAKE,
            next_attempt_at=now,
            added_at=now,
        ),
    )
    add_price(connection, PRICE)
    add_handover(connection, now)


def add_price(connection: Connection, name: str) -> None:
    """A due price."""
    now = datetime.now(UTC)
    added(
        connection, prices.PRICE, PriceWatch(name=name, title=name, sources=(SHOP,), next_attempt_at=now, added_at=now)
    )


def add_handover(connection: Connection, now: datetime) -> None:
    """A due handover of a want."""
    want = wants.want(
        connection,
        Want(key="k", kind="item", title="x", state=WantState.HANDED_OVER, found_at=now, changed_at=now),
    )
    assert want is not None
    handover = Handover(
        want_id=want.id,
        ref="s/1",
        target=TARGET,
        key="key-1",
        title=HANDOVER,
        state=HandoverState.HANDED_OVER,
        sent=1,
        next_at=now,
        created_at=now - timedelta(seconds=1),
        changed_at=now,
    )
    assert handovers.begin(connection, handover) is not None


def begun_by(workers: Crew, worker: Worker) -> set[str]:
    """What a process has begun."""
    return {entry.facts["job"] for entry in workers.journal.of(BEGAN, pid=worker.pid)}


async def until_begun(workers: Crew, worker: Worker, items: frozenset[str] = CLAIMED) -> None:
    """Wait until a process has begun all of these."""
    await workers.journal.until(
        lambda: begun_by(workers, worker) >= items,
        why=f"{worker.pid} to begin all; it began {begun_by(workers, worker)}",
    )


def done(ledger: Ledger) -> dict[str, int]:
    """How often each item was done."""
    return ledger.run(lambda c: {what: c.execute(text(query)).scalar_one() for what, query in COUNTED.items()})


async def until_done(ledger: Ledger, workers: Crew, expected: dict[str, int]) -> None:
    """Wait until each item was done as often as expected, and see that nothing more happens."""
    await workers.journal.until(
        lambda: all(times >= expected[what] for what, times in done(ledger).items()), why="each item to be done"
    )
    begun = len(workers.journal.of(BEGAN))
    await until_swept(ledger, workers, SWEEPS)

    assert done(ledger) == expected
    assert len(workers.journal.of(BEGAN)) == begun
    told = {event.name: len(workers.journal.of(event.name)) for event in TOLD}
    assert told == {event.name: expected[PRICE] if event is PriceCollected else 1 for event in TOLD}
    workers.assert_nobody_crashed()


async def until_swept(ledger: Ledger, workers: Crew, times: int) -> None:
    """Wait for further sweeps."""
    before = renewals(ledger)
    await workers.journal.until(lambda: renewals(ledger) >= before + times, why=f"{times} further sweeps")


def renewals(ledger: Ledger) -> int:
    """How often the lease of the sweeper was renewed: at each sweep of its holder."""
    number: int = ledger.run(lambda connection: connection.execute(text(RENEWALS)).scalar_one())
    return number


@pytest.mark.slow("kills a process and waits until it is declared dead")
@pytest.mark.parametrize("is_first_gone", [True, False], ids=["starts afterwards", "runs already"])
async def test_what_a_killed_process_has_claimed_is_done_once_by_another(
    ledger: Ledger,
    hire_claimers: Hire,
    gate: Path,
    tell: Tell,
    is_first_gone: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    # On SQLite only the file lock shows the death: silence would take an hour. Nor does a process look by itself for what was
    # freed: the sweeper wakes the tickers, as it wakes the producer of jobs.
    is_file = ledger.url.startswith("sqlite")
    workers = hire_claimers(ledger, **({"lock_timeout_s": NEVER_S, "look_s": NEVER_S} if is_file else {}))
    ledger.run(add_due)
    killed = await workers.start().ready()
    await until_begun(workers, killed)

    if is_first_gone:
        await killed.kill()
    other = workers.start()
    began_s = trio.current_time()
    if not is_first_gone:
        await other.ready()
        await until_swept(ledger, workers, SWEEPS)
        began_s = trio.current_time()
        await killed.kill()
    await until_begun(workers, other)
    took_s = trio.current_time() - began_s
    open_gate(gate)

    await until_done(ledger, workers, ONCE)
    assert begun_by(workers, killed) == begun_by(workers, other) == CLAIMED
    assert overlaps(workers.journal.executions()) == []
    tell(f"all of {len(CLAIMED)} begun again after {took_s:.2f} s; after the process was known {_when(workers, other)}")


def _when(workers: Crew, worker: Worker) -> str:
    """When a process has begun each item, after it was known."""
    (known, *_) = workers.journal.of("worker.registered", pid=worker.pid)
    begun = workers.journal.of(BEGAN, pid=worker.pid)
    return ", ".join(f"{each.facts['job']} {each.at - known.at:.2f} s" for each in begun)


@pytest.mark.slow("freezes a process for longer than the lock time-out")
async def test_what_a_frozen_process_has_claimed_is_done_once_by_another(
    ledger: Ledger, hire_claimers: Hire, gate: Path
) -> None:
    workers = hire_claimers(ledger)
    ledger.run(add_due)
    frozen = await workers.start().ready()
    await until_begun(workers, frozen)
    other = await workers.start().ready()

    await freeze(ledger, frozen)
    await until_begun(workers, other)
    open_gate(gate)
    frozen.send(signal.SIGCONT)
    await workers.journal.heard("worker.registered", pid=frozen.pid, times=2)

    await until_done(ledger, workers, ONCE)
    for first, second in overlaps(workers.journal.executions()):
        assert (first.pid, second.pid) == (frozen.pid, other.pid), "only the frozen process knew nothing of the other"
    assert len(workers.journal.of(BEGAN)) == 2 * len(CLAIMED)


async def freeze(ledger: Ledger, worker: Worker) -> None:
    """Stop a process at a moment in which it holds no lock of the database."""
    with trio.fail_after(WAIT_S):
        while True:
            await stop(worker)
            if await _is_unlocked(ledger):
                return
            worker.send(signal.SIGCONT)
            await trio.sleep(LOOK_S)


async def stop(worker: Worker) -> None:
    """Stop a process, whatever it holds."""
    worker.send(signal.SIGSTOP)
    while not _is_stopped(worker.pid):
        await trio.sleep(LOOK_S)


def _is_stopped(pid: int) -> bool:
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


async def _is_unlocked(ledger: Ledger) -> bool:
    """Whether no process that stands still holds a lock: living ones hold theirs for a moment."""
    if ledger.url.startswith("sqlite"):
        return await trio.to_thread.run_sync(_can_write, _path(ledger))
    with trio.move_on_after(PROBE_S):
        while ledger.run(lambda connection: connection.execute(text(BUSY)).scalar_one()):
            await trio.sleep(LOOK_S)
        return True
    return False


def _can_write(path: str) -> bool:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=PROBE_S)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def _path(ledger: Ledger) -> str:
    return str(make_url(ledger.url).database)


@contextmanager
def no_writes(*workers: Worker) -> Iterator[None]:
    """No file of these processes may be written, as on a full disk. What they write to their journal goes through a pipe."""
    before = [resource.prlimit(worker.pid, resource.RLIMIT_FSIZE) for worker in workers]
    for worker, (_, hard) in zip(workers, before, strict=True):
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        for worker, limits in zip(workers, before, strict=True):
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, limits)


@pytest.mark.slow("keeps a process from writing for longer than the lock time-out")
async def test_a_process_that_cannot_write_stops_its_work_before_another_does_it_once(
    sqlite_ledger: Ledger, hire_claimers: Hire, gate: Path
) -> None:
    # The first stops its work after four fifths of the lock time-out: the rest is what it may be late by.
    workers = hire_claimers(sqlite_ledger, lock_timeout_s=3 * DEAD_AFTER_S)
    sqlite_ledger.run(add_due)
    cut_off = await workers.start().ready()
    await until_begun(workers, cut_off)
    other = await workers.start().ready()

    with no_writes(cut_off):
        await until_begun(workers, other)
        open_gate(gate)
        await until_done(sqlite_ledger, workers, ONCE)
    await workers.journal.heard("worker.registered", pid=cut_off.pid, times=2)

    await until_done(sqlite_ledger, workers, ONCE)
    assert overlaps(workers.journal.executions()) == []
    assert begun_by(workers, other) == CLAIMED


@pytest.mark.slow("lets connections hang for longer than the lock time-out")
async def test_a_process_whose_connections_hang_stops_its_work_before_another_does_it_once(
    private_postgres: PostgresServer, hire_claimers: Hire, gate: Path
) -> None:
    with open_ledger(private_postgres.create_database()) as ledger:
        workers = hire_claimers(ledger, lock_timeout_s=3 * DEAD_AFTER_S)
        ledger.run(add_due)
        cut_off = await workers.start().ready()
        await until_begun(workers, cut_off)

        async with lines_that_hang(ledger):
            other = await workers.start().ready()
            await until_begun(workers, other)
            open_gate(gate)
            await until_done(ledger, workers, ONCE)
        await workers.journal.heard("worker.registered", pid=cut_off.pid, times=2)

        await until_done(ledger, workers, ONCE)
        assert overlaps(workers.journal.executions()) == []
        assert begun_by(workers, other) == CLAIMED


@contextmanager
def foreign_lock(path: str) -> Iterator[None]:
    """Another program writes to the file and does not end."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=WAIT_S)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def ride_out(
    ledger: Ledger,
    workers: Crew,
    gate: Path,
    *,
    outage: Callable[[Worker, Worker], AbstractContextManager[None]],
    halt: Callable[[Worker], Awaitable[None]],
) -> None:
    """Let two processes live through an outage. Neither loses anything, and each item is done once."""
    ledger.run(add_due)
    one = await workers.start(concurrency=2).ready()
    await until_begun(workers, one)
    ledger.run(lambda connection: add_price(connection, SECOND_PRICE))
    two = await workers.start(heartbeat_s=5 * SWEEP_S).ready()  # each beat is seen before the next
    await until_begun(workers, two, frozenset({SECOND_PRICE}))  # the first has no room for it
    registered = ledger.workers()

    with outage(one, two):
        await trio.sleep(OUTAGE_S)
        for worker in (one, two):
            await workers.journal.heard(WorkerUnconfirmed.name, pid=worker.pid)
        await halt(two)
    await until_swept(ledger, workers, 2)  # before the other beats again: the outage must not count as its silence
    two.send(signal.SIGCONT)
    await until_swept(ledger, workers, round(LOST_AFTER_S / SWEEP_S))
    open_gate(gate)

    await until_done(ledger, workers, ONCE | {PRICE: 2})
    assert workers.journal.of(WorkerDeclaredDead.name) == []
    assert len(workers.journal.of("worker.registered")) == 2
    assert [(each.id, each.dead_at) for each in ledger.workers()] == [(each.id, None) for each in registered]
    assert {job.reclaims for job in ledger.jobs()} == {0}
    assert overlaps(workers.journal.executions()) == []


@pytest.mark.slow("holds a write lock for longer than the lock time-out")
async def test_a_foreign_write_lock_makes_no_process_lose_what_it_has_claimed(
    sqlite_ledger: Ledger, hire_claimers: Hire, gate: Path
) -> None:
    ledger, path = sqlite_ledger, _path(sqlite_ledger)
    workers = hire_claimers(ledger, lock_timeout_s=LOST_AFTER_S, sweep_s=SWEEP_S)

    await ride_out(ledger, workers, gate, outage=lambda _one, _two: foreign_lock(path), halt=stop)


@pytest.mark.slow("fills the disk for longer than the lock time-out")
async def test_a_full_disk_makes_no_process_lose_what_it_has_claimed(
    sqlite_ledger: Ledger, hire_claimers: Hire, gate: Path
) -> None:
    workers = hire_claimers(sqlite_ledger, lock_timeout_s=LOST_AFTER_S, sweep_s=SWEEP_S)

    await ride_out(sqlite_ledger, workers, gate, outage=no_writes, halt=partial(freeze, sqlite_ledger))
