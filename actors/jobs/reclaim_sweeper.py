"""ReclaimSweeper: returns the jobs of dead workers to the queue."""

from __future__ import annotations

import trio
from attrs import define, field

from actors.actor import Actor
from actors.environment import Environment
from actors.jobs.working_set import JobWakeUp
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.jobs.events import About, JobFailed, JobReclaimed, WorkerDeclaredDead
from cormorant.rules.jobs.states import JobState, LivenessObservation, observe
from storage.jobs import workers
from storage.jobs.jobs import Reclaimed
from storage.jobs.workers import reclaim_if_dead

PAGE = 500


@define(eq=False, kw_only=True)
class ReclaimSweeper(Actor[None]):
    """Looks every `interval_s`. Never itself a job: a stuck queue could not free itself."""

    environment: Environment = field(kw_only=False)
    wake_up: JobWakeUp
    _watch: LivenessObservation = field(init=False, factory=LivenessObservation)

    async def begin(self) -> None:
        """Take the first look at once: the observation begins with it."""
        self.wake_at = trio.current_time()

    async def wake(self) -> None:
        """Look at everyone; a database that is away makes a gap, and a gap begins the observation anew."""
        self.wake_at = trio.current_time() + self.environment.settings.jobs.sweep_s
        try:
            await self._sweep()
        except (StorageUnavailable, CommitUnknown):
            self._watch = LivenessObservation()

    async def _sweep(self) -> None:
        known = await self.environment.database.read(workers.all_workers)
        living = {worker.id: worker.beat for worker in known if worker.dead_at is None}
        self._watch, silent = observe(
            self._watch,
            living,
            now=trio.current_time(),
            interval_s=self.environment.settings.jobs.sweep_s,
            silence_s=self.environment.settings.jobs.lock_timeout_s,
        )
        for worker_id in silent:
            await self.environment.database.run(
                workers.mark_dead, worker_id, beat=living[worker_id], now=self.environment.now()
            )
        # Also those that another sweeper has buried and could not finish with.
        dead = [worker.id for worker in known if worker.dead_at is not None]
        unknown = await self.environment.database.read(workers.unknown_owners)
        for worker_id in dict.fromkeys([*silent, *dead, *unknown]):
            await self._take_over(worker_id)
        if dead or silent:
            await self.environment.database.run(workers.delete_dead)

    async def _take_over(self, worker_id: str) -> None:
        reclaimed: list[Reclaimed] = []
        while page := await self.environment.database.run(
            reclaim_if_dead, worker_id, limit=PAGE, now=self.environment.now()
        ):
            reclaimed += page
            for job in page:
                self._emit_reclaimed(job, worker_id)
        if reclaimed:
            self.wake_up.set()
            self.environment.emit(WorkerDeclaredDead(worker=worker_id, reclaimed=len(reclaimed)))

    def _emit_reclaimed(self, job: Reclaimed, owner: str) -> None:
        of = About(job_id=job.id, kind=job.kind, correlation_id=job.correlation_id)
        self.environment.emit(JobReclaimed(**of, owner=owner, state=job.state.value, attempts=job.attempts))
        if job.state is JobState.FAILED:
            self.environment.emit(
                JobFailed(**of, attempts=job.attempts, error=f"its process {owner} died with it once too often")
            )
