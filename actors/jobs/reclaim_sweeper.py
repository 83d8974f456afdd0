"""ReclaimSweeper: returns the jobs and frees the claims of dead workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import trio
from attrs import define, field

from actors.actor import Recheck
from actors.jobs.working_set import JobWakeUp, OwnerLease
from actors.periodic import Periodic
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.jobs.events import About, JobFailed, JobReclaimed, WorkerDeclaredDead
from cormorant.rules.jobs.states import JobState, Sighting, longest, observe, observed_s
from storage.engine.file_locks import WorkerLocks
from storage.jobs import workers
from storage.jobs.jobs import Reclaimed
from storage.jobs.workers import SWEEPER, LeaseRow, Observation, WorkerRow

PAGE = 500


@define(eq=False, kw_only=True)
class ReclaimSweeper(Periodic[Recheck]):
    """Sweeps at an interval. It is not a job itself: a stuck queue could not free itself.

    One process observes at a time: the holder of a lease. The others watch the lease and take it over when its holder is
    dead. On SQLite a lock on a file of each process shows at once that the process is dead. A database in memory has one
    owner: the first sweep frees what an earlier service left, and there is no other.
    """

    lease: OwnerLease
    producer: JobWakeUp
    interval_s: float = field(init=False)
    _observed_at: float | None = field(init=False, default=None)
    """None: not yet, so that the first observation continues that of an earlier sweeper."""
    _seen: dict[str, Sighting] = field(init=False, factory=dict)
    """What this process has seen of each worker. It counts when this process gets the lease."""
    _holder_seen: dict[str, Sighting] = field(init=False, factory=dict)
    """For how long the process that holds the lease instead of this one has not renewed it."""

    def __attrs_post_init__(self) -> None:
        self.interval_s = self.environment.settings.jobs.sweep_s

    async def begin(self) -> None:
        """Sweep as soon as this process is registered itself, which the heartbeat says: the observation begins with it."""
        if self.lease.is_held:
            await super().begin()

    async def tick(self) -> float | None:
        """Sweep, unless the own heartbeat is not confirmed: then nothing is known of the others."""
        if not self.lease.is_held:
            self._observed_at = -math.inf
            return 0.0
        try:
            await self._sweep()
        except (StorageUnavailable, CommitUnknown):
            self._observed_at = -math.inf  # nothing was observed meanwhile, and the others may have been cut off too
            raise
        return 0.0 if self.environment.database.is_shared else None

    async def _sweep(self) -> None:
        now = trio.current_time()
        elapsed_s = self._elapsed_s(now)
        found = await self._observe(None)
        ended = await self._without_lock(found.workers)
        living = {worker.id: worker.beat for worker in found.workers if worker.dead_at is None}
        self._seen = observe(self._seen, living, elapsed_s=elapsed_s)
        self._observed_at = now
        if not await self._holds_lease(found, ended, elapsed_s):
            return
        if elapsed_s is not None:
            self._seen = longest(self._seen, {worker.id: worker.sighting for worker in found.workers})
        if len(living) > 1:
            await self.environment.database.run(workers.record_sightings, self._seen)
        silence_s = self.environment.settings.jobs.lock_timeout_s
        silent = [worker for worker, seen in self._seen.items() if seen.unchanged_s >= silence_s]
        if not self.environment.database.is_shared:
            silent = [*living]
        await self._declare_dead({*silent, *(ended & living.keys())} - {self.lease.owner}, living)
        # Also those that another sweeper has declared dead and could not finish with.
        if silent or found.unknown or len(living) < len(found.workers) or ended:
            await self._take_over_all(living)

    def _elapsed_s(self, now: float) -> float | None:
        options = self.environment.settings.jobs
        return observed_s(
            self._observed_at,
            now=now,
            interval_s=options.sweep_s,
            confirmed_at=self.lease.confirmed_at,
            beat_s=options.heartbeat_s,
        )

    async def _without_lock(self, known: Sequence[WorkerRow]) -> set[str]:
        """The workers whose process does not hold its lock any more."""
        others = [worker.id for worker in known if worker.id != self.lease.owner]
        return set(await self.environment.database.with_locks(WorkerLocks.dead_among, others)) if others else set()

    async def _holds_lease(self, found: Observation, ended: set[str], elapsed_s: float | None) -> bool:
        """Hold or renew the lease, or watch the process that holds it."""
        lease = found.lease
        if lease.holder == self.lease.owner:
            return True
        self._holder_seen = observe(self._holder_seen, {lease.holder: lease.renewals}, elapsed_s=elapsed_s)
        is_silent = self._holder_seen[lease.holder].unchanged_s >= self.environment.settings.jobs.lock_timeout_s
        if not is_silent and lease.holder not in ended:
            return False
        return (await self._observe(lease)).lease.holder == self.lease.owner

    async def _observe(self, instead_of: LeaseRow | None) -> Observation:
        return await self.environment.database.run(
            workers.observe, SWEEPER, worker_id=self.lease.owner, instead_of=instead_of
        )

    async def _declare_dead(self, silent: Iterable[str], living: dict[str, int]) -> None:
        for worker_id in sorted(silent):
            await self.environment.database.run(
                workers.mark_dead, worker_id, beat=living[worker_id], now=self.environment.now()
            )

    async def _take_over_all(self, living: dict[str, int]) -> None:
        """Take over from all processes that are dead or not known."""
        database = self.environment.database
        dead = [worker.id for worker in await database.read(workers.all_workers) if worker.dead_at is not None]
        unknown = await database.read(workers.unknown_owners)
        for worker_id in dict.fromkeys([*dead, *unknown]):
            await self._take_over(worker_id)
        if dead:
            await database.run(workers.delete_dead)
            await database.with_locks(WorkerLocks.remove_old, living)

    async def _take_over(self, worker_id: str) -> None:
        database, has_freed = self.environment.database, False
        reclaimed: list[Reclaimed] = []
        while page := await database.run(workers.reclaim_if_dead, worker_id, limit=PAGE, now=self.environment.now()):
            reclaimed += page
            for job in page:
                self._emit_reclaimed(job, worker_id)
        while await database.run(workers.free_if_dead, worker_id, limit=PAGE):
            has_freed = True
        await database.with_locks(WorkerLocks.forget, worker_id)
        if reclaimed:
            self.producer.set()
        if reclaimed or has_freed:
            self.environment.emit(WorkerDeclaredDead(worker=worker_id, reclaimed=len(reclaimed)))

    def _emit_reclaimed(self, job: Reclaimed, owner: str) -> None:
        of = About(job_id=job.id, kind=job.kind, correlation_id=job.correlation_id)
        self.environment.emit(JobReclaimed(**of, owner=owner, state=job.state.value, attempts=job.attempts))
        if job.state is JobState.FAILED:
            self.environment.emit(
                JobFailed(**of, attempts=job.attempts, error=f"its process {owner} died with it once too often")
            )
