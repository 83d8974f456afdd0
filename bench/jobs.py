"""How fast are durable jobs, beside those of others? Throughput, idle pickup, claims in large tables, memory.

Throughput: a backlog of no-op jobs is there; measured is from the start of working (imports done, tables made) until the
last job is durably done, one process each. All get the settings that are fastest for them in a heat before the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

# Run as a file, Python would look here first and take bench/storage.py for the package `storage`.
sys.path[0] = str(Path(__file__).parent.parent)

from bench._race import (  # noqa: E402 - see above
    Contestant,
    ContestantFailed,
    Disk,
    Ground,
    Server,
    Settings,
    choose,
    race,
    rows_of,
    run,
    sync_ms,
)
from bench._report import Goal, Options, Row, finish  # noqa: E402 - see above
from bench.peers.install import PeerMissing, Program, have  # noqa: E402 - see above
from tests.postgres import PostgresServer  # noqa: E402 - see above

CONCURRENCIES: Final = (400, 1000, 100)
"""Handlers at once in the races, those that were best before first."""
AS_DELIVERED: Final = 20


@frozen(kw_only=True)
class Peer:
    """Whom we compare with, the settings to try (those that were best before come first), and the goal."""

    name: str
    choices: Sequence[Settings]
    goal: str
    wanted: float


HUEY: Final = Peer(
    name="huey",
    goal="jobs.sqlite_full_vs_huey",
    wanted=4.0,
    choices=[
        {"worker_type": "thread", "workers": 16},
        {"worker_type": "thread", "workers": 4},
        {"worker_type": "thread", "workers": 1},
        {"worker_type": "process", "workers": 2},
    ],
)
GRAPHILE_WORKER: Final = Peer(
    name="graphile_worker",
    goal="jobs.postgres_vs_graphile_worker",
    wanted=1.0,
    choices=[
        {"concurrency": 24, "local_queue": 1000, "batch_delay_ms": 0},
        {"concurrency": 24, "local_queue": 500, "batch_delay_ms": 0},  # as in its own performance test
        {"concurrency": 100, "local_queue": 500, "batch_delay_ms": 0},
    ],
)
PGQUEUER: Final = Peer(
    name="pgqueuer",
    goal="jobs.postgres_vs_pgqueuer",
    wanted=2.0,
    choices=[
        {"driver": "asyncpg", "instances": 2, "batch_size": 250},
        {"driver": "asyncpg", "instances": 1, "batch_size": 1000},
        {"driver": "asyncpg", "instances": 2, "batch_size": 500},
        {"driver": "asyncpg", "instances": 5, "batch_size": 100},
        {"driver": "psycopg", "instances": 2, "batch_size": 500},
    ],
)


@frozen(kw_only=True)
class Scale:
    """How much is done. Unless it is thorough, peers get the first of their choices, and we are not raced as delivered."""

    rounds: int = 3
    is_thorough: bool
    sqlite_jobs: int
    postgres_jobs: int
    pickups: int
    rows: tuple[int, int]
    claims: int = 25
    queued: int = 100_000
    profiled: int = 10_000


FULL: Final = Scale(is_thorough=True, sqlite_jobs=10_000, postgres_jobs=50_000, pickups=200, rows=(10_000, 1_000_000))
QUICK: Final = Scale(is_thorough=False, sqlite_jobs=3_000, postgres_jobs=10_000, pickups=30, rows=(10_000, 100_000))
HEAT_SHARE: Final = 5


@define
class Bench:
    """What is to be done, a PostgreSQL for those who ask for it, and what was found so far."""

    scale: Scale
    server: Callable[[], PostgresServer]
    rows: list[Row] = field(factory=list)
    goals: list[Goal] = field(factory=list)
    unjudged: dict[str, str] = field(factory=dict)
    """Goals that nothing can be said of, and why."""


def ours(module: str) -> Program:
    return Program([sys.executable, "-m", f"bench.ours.{module}"])


def our_service(name: str, concurrencies: Sequence[int]) -> Contestant:
    return Contestant(name, ours("backlog"), [{"concurrency": each} for each in concurrencies])


def throughput_on_sqlite(bench: Bench) -> None:
    throughput(bench, [HUEY], ground=Disk(), jobs=bench.scale.sqlite_jobs)


def throughput_on_postgres(bench: Bench) -> None:
    throughput(bench, [GRAPHILE_WORKER, PGQUEUER], ground=Server(bench.server()), jobs=bench.scale.postgres_jobs)


def throughput(bench: Bench, peers: Sequence[Peer], *, ground: Ground, jobs: int) -> None:
    """Race our service against peers."""
    present = [(peer, contestant) for peer in peers if (contestant := invite(bench, peer, ground=ground, jobs=jobs))]
    contestants = [our_service(f"ours, {ground.name}", CONCURRENCIES), *(contestant for _, contestant in present)]
    if bench.scale.is_thorough:
        choose(contestants[0], ground=ground, jobs=jobs // HEAT_SHARE)
        contestants.append(our_service(f"ours, {ground.name}, as delivered", [AS_DELIVERED]))
    results = race(contestants, ground=ground, jobs=jobs, rounds=bench.scale.rounds)
    for contestant, own in zip(contestants, results, strict=True):
        bench.rows += rows_of(contestant, own) if not contestant.failure else []
    for (peer, contestant), theirs in zip(present, results[1:], strict=False):
        if failure := contestants[0].failure or contestant.failure:
            bench.unjudged[peer.goal] = failure
            continue
        # Round by round: what slows the machine down slows both.
        ratios = [own.jobs_per_s / other.jobs_per_s for own, other in zip(results[0], theirs, strict=True)]
        bench.goals.append(Goal(peer.goal, statistics.median(ratios), ">=", peer.wanted))


def invite(bench: Bench, peer: Peer, *, ground: Ground, jobs: int) -> Contestant | None:
    """Get a peer and find its best settings; None, and a word why, if it cannot be had."""
    try:
        contestant = Contestant(peer.name, have(peer.name), peer.choices)
        if bench.scale.is_thorough:
            choose(contestant, ground=ground, jobs=jobs // HEAT_SHARE)
    except (PeerMissing, ContestantFailed) as why:
        bench.unjudged[peer.goal] = f"{peer.name} could not be had: {why}"
        return None
    return contestant


def pickup(bench: Bench) -> None:
    """How long an idle service takes to begin."""
    disk, server = Disk(), Server(bench.server())
    ways: Mapping[str, tuple[str, Ground]] = {
        "in process, SQLite": ("here", disk),
        "in process, PostgreSQL": ("here", server),
        "across processes, PostgreSQL": ("across", server),
    }
    rounds = [[pick_up(bench, place, ground) for place, ground in ways.values()] for _ in range(bench.scale.rounds)]
    p50s = []
    for name, samples in zip(ways, zip(*rounds, strict=True), strict=True):
        p50s.append(
            Row(f"pickup {name}: p50 after enqueue returned", "ms", [each["from_return_ms"] for each in samples])
        )
        bench.rows += [
            p50s[-1],
            Row("  p50 after it was called", "ms", [each["from_call_ms"] for each in samples]),
            Row("  p99 after it was called", "ms", [each["p99_from_call_ms"] for each in samples]),
        ]
    sqlite, postgres, across = (row.median for row in p50s)
    bench.goals.append(Goal("jobs.pickup_ms_in_process", max(sqlite, postgres), "<=", 2.0))
    bench.goals.append(Goal("jobs.pickup_ms_across_processes", across, "<=", 5.0))


def pick_up(bench: Bench, place: str, ground: Ground) -> Mapping[str, float]:
    with ground.fresh() as where:
        settings = {"concurrency": AS_DELIVERED, "samples": bench.scale.pickups} | where
        found: Mapping[str, float] = run(ours("pickup"), place, settings)
        return found


def claims(bench: Bench) -> None:
    """Whether a claim costs more where many jobs cannot be claimed."""
    grounds: Mapping[str, Ground] = {"SQLite": Disk(), "PostgreSQL": Server(bench.server())}
    for shape in ("future", "paused"):
        growths = [claim_growth(bench, shape, name, ground) for name, ground in grounds.items()]
        bench.goals.append(Goal(f"jobs.claim_growth_{shape}", max(growths), "<=", 2.0))


def claim_growth(bench: Bench, shape: str, name: str, ground: Ground) -> float:
    """How many times the cost in the small table it costs in the large one."""
    scale = bench.scale
    with ground.fresh() as small, ground.fresh() as large:
        urls = [place.get("url", f"sqlite:///{place['folder']}/claims.db") for place in (small, large)]
        settings = {"urls": urls, "rows": scale.rows, "rounds": scale.rounds, "claims": scale.claims}
        rounds: list[tuple[float, float]] = run(ours("claims"), shape, settings)
    for rows, costs in zip(scale.rows, zip(*rounds, strict=True), strict=True):
        bench.rows.append(Row(f"claim of 10, {name}, {rows:,} rows, 90 % {shape}", "us", costs))
    return statistics.median(of_large / of_small for of_small, of_large in rounds)


def memory(bench: Bench) -> None:
    """What claimed jobs take in the queue in memory."""
    count = bench.scale.queued
    found = [run(ours("memory"), "measure", {"jobs": count})["mb"] for _ in range(bench.scale.rounds)]
    bench.rows.append(Row(f"{count:,} queued jobs", "MB", found))
    bench.goals.append(Goal("jobs.memory_100k_mb", statistics.median(found), "<=", 200.0))


PARTS: Final[Mapping[str, Callable[[Bench], None]]] = {
    "sqlite": throughput_on_sqlite,
    "postgres": throughput_on_postgres,
    "pickup": pickup,
    "claims": claims,
    "memory": memory,
}


def profile(bench: Bench, database: str) -> None:
    """Show where the time of our service goes: once as it is, once under the profiler, which slows it down."""
    ground: Ground = Disk() if database == "sqlite" else Server(bench.server())
    jobs = bench.scale.profiled
    found = run_backlog("work", ground, jobs)
    print(f"{ground.name}, {CONCURRENCIES[0]} handlers at once: {jobs:,} jobs, {jobs / found['seconds']:,.0f} a second")
    print(f"{found['seconds']:.2f} s in all, {found['first_s']:.2f} s until the first was done")
    print(f"processor: {found['cpu_s']:.2f} s, {found['loop_cpu_s']:.2f} s of it the loop, the rest other threads\n")
    print(run_backlog("profile", ground, jobs)["said"])


def run_backlog(step: str, ground: Ground, jobs: int) -> Any:
    with ground.fresh() as place:
        settings = {"concurrency": CONCURRENCIES[0], "jobs": jobs} | place
        run(ours("backlog"), "prepare", settings)
        ground.rest(place)
        return run(ours("backlog"), step, settings)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer jobs, samples and rows: done in under 60 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write rows and goals here")
    parser.add_argument("--only", choices=PARTS, action="append", help="run this part; may be given again")
    parser.add_argument("--profile", choices=("sqlite", "postgres"), help="show where our time goes, and nothing else")
    return parser.parse_args()


def main(given: argparse.Namespace) -> int:
    """Run all parts, or those asked for. A goal that could not be judged is not met."""
    with ExitStack() as stack:
        scale = QUICK if given.quick else FULL
        bench = Bench(scale, cache(lambda: stack.enter_context(PostgresServer(fsync=True))))
        if given.profile:
            profile(bench, given.profile)
            return 0
        sync_times_ms = [sync_ms()]
        for name in given.only or PARTS:
            try:
                PARTS[name](bench)
            except ContestantFailed as failure:
                bench.unjudged[f"the rest of {name}"] = str(failure)
            sync_times_ms.append(sync_ms())
    bench.rows.append(Row("fdatasync of a page, before and after each part", "ms", sync_times_ms))
    code = finish(Options(quick=given.quick, json=given.json), bench.rows, bench.goals)
    for goal, why in bench.unjudged.items():
        print(f"not judged: {goal}: {why}")
    return 1 if bench.unjudged else code


if __name__ == "__main__":
    sys.exit(main(read_arguments()))
