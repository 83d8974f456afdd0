"""What the commands of `cormorant jobs` do."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click
from attrs import frozen

from cormorant.cli.actions.job_text import JobText, as_text, changes_json, job_json, page_json, stats_json, stuck_json
from cormorant.cli.console.command_line import EXIT_FAILED, EXIT_OK, CommandFailed, UsageRefused
from cormorant.cli.console.database_session import with_database
from cormorant.cli.console.output import printable
from cormorant.cli.console.preflight import load_or_refuse
from cormorant.rules.errors import CommitUnknown, TextRefused, UnknownJob
from cormorant.rules.jobs.states import JobState
from cormorant.rules.settings.keys import suggestion
from cormorant.rules.settings.settings import Settings
from cormorant.rules.units import format_duration
from cormorant.services import jobs
from cormorant.services.jobs import Tell
from storage.database import Database
from storage.engine.columns import check_text
from storage.jobs import reports
from storage.jobs.batch import JobChange
from storage.jobs.reports import JobSurroundings

__all__ = ["JobActions", "run_job_action"]

T = TypeVar("T")


@frozen(kw_only=True)
class JobActions:
    """Where the commands meet the database."""

    settings: Settings
    database: Database
    as_json: bool

    async def list_jobs(self, *, state: JobState | None, kind: str | None, before: int | None, limit: int) -> int:
        """The newest jobs."""
        page = await self._look(reports.read_list, state=state, kind=kind, before=before, limit=limit)
        return self._tell(page_json(page), self._words(page.scene).page(page))

    async def show(self, job_id: int) -> int:
        """One job."""
        scene, job = await self._look(reports.read_one, job_id)
        if job is None:
            raise CommandFailed(str(UnknownJob(job_id)))
        return self._tell(job_json(job, scene), self._words(scene).one(job))

    async def stats(self) -> int:
        """All numbers."""
        stats = await self._look(reports.read_stats)
        return self._tell(stats_json(stats), self._words(stats.scene).stats(stats))

    async def stuck(self, silent_s: float | None) -> int:
        """Running jobs whose owner is silent."""
        wanted_s = self.settings.jobs.lock_timeout_s if silent_s is None else silent_s
        stuck = await self._look(reports.read_stuck, silent_s=wanted_s)
        return self._tell(stuck_json(stuck), self._words(stuck.scene).stuck(stuck, silent_s=wanted_s))

    async def change(self, verb: str, ids: Sequence[int], *, failed: bool = False, kind: str | None = None) -> int:
        """Retry, cancel or discard jobs, by their ids or all that failed."""
        chosen = await jobs.dead_letters(self.database, kind) if failed else ids
        with _progress(len(chosen), verb) as tell:
            done = await jobs.change_each(self.database, verb, chosen, tell=tell)
        self._tell(changes_json(done), _changed(done) if done else ["no dead letters"])
        return EXIT_OK if all(each.is_done for each in done) else EXIT_FAILED

    async def pause_all(self) -> int:
        """Let no process claim jobs."""
        is_new = await jobs.pause_all(self.database)
        told = f"everything is paused: no process claims jobs any more{self._soon()}; what runs goes on"
        return self._tell({"paused": True, "changed": is_new}, [told if is_new else "everything was paused already"])

    async def resume_all(self) -> int:
        """Let processes claim jobs again."""
        is_new = await jobs.resume_all(self.database)
        paused = list((await self.database.read(reports.pauses)).kinds_since)
        told = [f"jobs are claimed again{self._soon()}" if is_new else "the whole was not paused"]
        if paused:
            told.append(f"still paused by name: {', '.join(map(printable, paused))}")
        return self._tell({"paused": False, "changed": is_new, "paused_kinds": paused}, told)

    async def pause_kind(self, kind: str) -> int:
        """Hold the jobs of a kind."""
        _check_kind(kind)
        known = await self.database.read(reports.known_kinds)
        with _progress(await self._count(kind, held=False), "hold") as tell:
            held = await jobs.pause_kind(self.database, kind, tell=tell)
        told = [f"{kind} is paused: {held:,} of its jobs are held, and those to come; what runs goes on"]
        if kind not in known:
            told.append(f"there is no job and no handler of that kind{suggestion(kind, known)}")
        return self._tell({"kind": kind, "paused": True, "held": held}, told)

    async def resume_kind(self, kind: str) -> int:
        """Free the jobs of a kind."""
        _check_kind(kind)
        with _progress(await self._count(kind, held=True), "free") as tell:
            freed = await jobs.resume_kind(self.database, kind, tell=tell)
        pauses = await self.database.read(reports.pauses)
        told = [f"{kind} is no longer paused: {freed or 0:,} of its jobs are free"]
        if freed is None:
            told = [f"{kind} was not paused{suggestion(kind, pauses.kinds_since)}"]
        if pauses.everything_since:
            told.append("everything is paused, though: cormorant jobs resume")
        return self._tell({"kind": kind, "paused": False, "freed": freed or 0, "changed": freed is not None}, told)

    async def _look(self, look: Callable[..., T], *args: Any, **words: Any) -> T:
        silence_s = self.settings.jobs.lock_timeout_s
        return await self.database.read(look, *args, now=datetime.now(UTC), silence_s=silence_s, **words)

    async def _count(self, kind: str, *, held: bool) -> int:
        """How many there are to do; counted only for somebody who watches."""
        if not sys.stderr.isatty():
            return 0
        counts = await self.database.read(reports.count_by_kind)
        return sum(count.count for count in counts if count.kind == kind and count.held is held)

    def _soon(self) -> str:
        beat = format_duration(self.settings.jobs.heartbeat_s)
        return f", at the latest from the next heartbeat of each process on (every {beat})"

    def _words(self, scene: JobSurroundings) -> JobText:
        zone = ZoneInfo(self.settings.time_zone)
        return JobText(scene=scene, zone=zone, priorities=self.settings.queue.priorities)

    def _tell(self, facts: dict[str, Any], lines: Iterable[str]) -> int:
        click.echo(as_text(facts) if self.as_json else "\n".join(lines))
        return EXIT_OK


def run_job_action(config: str, action: Callable[[JobActions], Awaitable[int]], *, as_json: bool) -> int:
    """Run a command at the database of a settings file. Returns its exit code."""
    settings = load_or_refuse(config)
    try:
        return with_database(
            settings, lambda database: action(JobActions(settings=settings, database=database, as_json=as_json))
        )
    except CommitUnknown as unknown:
        raise CommandFailed(f"{unknown}; `cormorant jobs stats` shows it") from None


def _check_kind(kind: str) -> None:
    try:
        is_fit = check_text(kind) == printable(kind)
    except TextRefused:
        is_fit = False
    if not is_fit:
        raise UsageRefused(f"'{printable(kind)}' cannot be the name of a kind")


def _changed(done: Sequence[JobChange]) -> Iterator[str]:
    """A line for each id; of those that went well only the number when there are many."""
    well = [each for each in done if each.is_done]
    width = max(len(str(each.id)) for each in done)
    if len(well) > TOLD_SINGLY:
        yield f"{len(well):,} {well[0].said.partition(';')[0]}"
        done = [each for each in done if not each.is_done]
    for each in done:
        said = each.said if each.is_done else click.style(f"not done: {each.said}", fg="red")
        yield f"{each.id:>{width}}  {said}"


TOLD_SINGLY = 20


@contextmanager
def _progress(total: int, label: str) -> Iterator[Tell]:
    """A bar for somebody who watches and would otherwise wonder; a word to one who had enough."""
    is_watched = total >= WATCHED_FROM and sys.stderr.isatty()
    with click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True, hidden=not is_watched) as bar:
        try:
            yield bar.update
        except KeyboardInterrupt:
            raise CommandFailed("interrupted; what is done stays done, the same command does the rest") from None


WATCHED_FROM = 2_000
