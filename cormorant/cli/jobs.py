"""`cormorant jobs`: what waits, what runs, what failed, and what to do about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from attrs import frozen

from cormorant.cli.console.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    LIMIT,
    CommandFailed,
    Duration,
    HintingGroup,
    RowId,
    UsageRefused,
    together,
)
from cormorant.cli.console.output import Times, counted, older_pages, painter, pairs, printable, table
from cormorant.rules.jobs.states import FINISHED, JobState
from cormorant.rules.jobs.wait_reasons import WaitReason
from cormorant.rules.settings.keys import suggestion
from cormorant.rules.units import format_duration, rough

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession
    from cormorant.services.jobs import Tell
    from storage.jobs.batch import JobChange
    from storage.jobs.reports import JobPage, JobStats, JobSurroundings, JobView
    from storage.jobs.workers import WorkerRow

F = TypeVar("F", bound=Callable[..., Any])

_EXIT_CODES = """\b
Exit codes: 0  done
            1  it could not be done, for some of the ids or for all; each is told with the reason
            2  bad input or settings, or the database cannot be used; nothing was changed
"""
TOLD_SINGLY = 20
WATCHED_FROM = 2_000

_ID = RowId("job")
_SHOWS_IT = "`cormorant jobs stats` shows it"
_TOLD = {"in_doubt": _SHOWS_IT, "interrupted": f"interrupted, it may have happened; {_SHOWS_IT}"}


def _ids(*, required: bool) -> Callable[[F], F]:
    return click.argument("ids", metavar="ID..." if required else "[ID]...", nargs=-1, required=required, type=_ID)


_CHOICE = together(
    _ids(required=False),
    click.option("--failed", is_flag=True, help="All dead letters instead of ids."),
    click.option("--kind", metavar="KIND", help="With --failed: only of this kind."),
)
"""Some ids, or all dead letters."""


def _checked_choice(*, ids: tuple[int, ...], failed: bool, kind: str | None) -> dict[str, Any]:
    if bool(ids) is failed:
        raise click.UsageError("give ids, or --failed for all dead letters")
    if kind is not None and not failed:
        raise click.UsageError("--kind goes with --failed")
    return {"ids": ids, "failed": failed, "kind": kind}


@click.group(cls=HintingGroup, short_help="See what waits, runs and failed; retry, cancel, pause.", epilog=_EXIT_CODES)
def jobs() -> None:
    """See what waits, runs and failed; retry, cancel, discard, pause.

    Works beside a running service and without one. It never makes or migrates a database.
    """


@jobs.session_command("The newest jobs, and what each waits for.", name="list")
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--kind", metavar="KIND", help="Only jobs of this kind.")
@click.option("--before", type=_ID, metavar="ID", help="Only older ones than this: the next page.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
async def list_jobs(session: CommandSession, *, state: str | None, **filters: Any) -> int:
    """The newest jobs first: who has them, since when, or what they wait for."""
    wanted = None if state is None else JobState(state)
    page = await session.assembly.jobs.page(state=wanted, **filters)
    following = page.jobs[-1].id if page.has_more else None
    facts = {"jobs": [_brief(job, page.scene) for job in page.jobs], "before": following}
    return session.show(facts, _text(session, page.scene).page(page, before=following))


@jobs.session_command("Everything about one job.")
@click.argument("job_id", metavar="ID", type=_ID)
async def show(session: CommandSession, job_id: int) -> int:
    """Everything about one job: its times, owner, heartbeat, payload and last errors."""
    job = await session.assembly.jobs.show(job_id)
    scene = await session.assembly.jobs.surroundings()
    return session.show(_facts(job, scene), _text(session, scene).one(job))


@jobs.session_command("How many jobs there are, and who works on them.")
async def stats(session: CommandSession) -> int:
    """Jobs by kind and state, what is paused, dead letters, and the processes with their last heartbeat.

    What needs somebody comes first, with the command that helps.
    """
    found = await session.assembly.jobs.stats()
    return session.show(_stats_facts(found), _text(session, found.scene).stats(found))


@jobs.session_command("Running jobs whose process is silent.")
@click.option(
    "--silent", type=Duration(), metavar="DURATION", help="How long, such as 1m.  [default: jobs.lock_timeout]"
)
async def stuck(session: CommandSession, silent: float | None) -> int:
    """Running jobs whose process has not been heard of for a while, and what becomes of them.

    It goes by the clocks of both machines. Jobs are taken from a process only after a living one has watched its silence.
    """
    silent_s = session.settings.jobs.lock_timeout_s if silent is None else silent
    found = await session.assembly.jobs.stuck(silent_s=silent_s)
    facts = {"jobs": [_brief(job, found.scene) for job in found.jobs]}
    return session.show(facts, _text(session, found.scene).stuck(found, silent_s=silent_s))


@jobs.session_command("Let failed or cancelled jobs start afresh.", before=_checked_choice, **_TOLD)
@_CHOICE
async def retry(session: CommandSession, **chosen: Any) -> int:
    """Let failed or cancelled jobs start afresh: due now, no attempt used."""
    return await _change(session, "retry", **chosen)


@jobs.session_command("End jobs that wait or run.", **_TOLD)
@_ids(required=True)
async def cancel(session: CommandSession, ids: tuple[int, ...]) -> int:
    """End jobs that wait or run. A handler that runs is stopped soon, at its process's next heartbeat at the latest."""
    return await _change(session, "cancel", ids)


@jobs.session_command("Forget finished jobs.", before=_checked_choice, **_TOLD)
@_CHOICE
async def discard(session: CommandSession, **chosen: Any) -> int:
    """Forget finished jobs before their time. What waits or runs must be cancelled first."""
    return await _change(session, "discard", **chosen)


@jobs.session_command("Start no more jobs, of one kind or at all.", **_TOLD)
@click.argument("kind", required=False)
async def pause(session: CommandSession, kind: str | None) -> int:
    """Start no more jobs of a kind; without one, of any. Holds for every process, also after a restart.

    What runs goes on to its end. New jobs are taken in and wait.
    """
    if kind is not None:
        return await _pause_kind(session, kind)
    is_new = await session.assembly.jobs.pause()
    told = f"everything is paused: no process claims jobs any more{_soon(session)}; what runs goes on"
    return session.show({"paused": True, "changed": is_new}, [told if is_new else "everything was paused already"])


@jobs.session_command("Start jobs again, of one kind or at all.", **_TOLD)
@click.argument("kind", required=False)
async def resume(session: CommandSession, kind: str | None) -> int:
    """Start jobs of a kind again; without one, end the pause of everything. Kinds that are paused by name stay so."""
    if kind is not None:
        return await _resume_kind(session, kind)
    is_new = await session.assembly.jobs.resume()
    paused = list((await session.assembly.jobs.surroundings()).pauses.kinds_since)
    told = [f"jobs are claimed again{_soon(session)}" if is_new else "the whole was not paused"]
    if paused:
        told.append(f"still paused by name: {', '.join(map(printable, paused))}")
    return session.show({"paused": False, "changed": is_new, "paused_kinds": paused}, told)


def _soon(session: CommandSession) -> str:
    beat = format_duration(session.settings.jobs.heartbeat_s)
    return f", at the latest from the next heartbeat of each process on (every {beat})"


async def _pause_kind(session: CommandSession, kind: str) -> int:
    _check_kind(kind)
    known = await session.assembly.jobs.known_kinds()
    with _progress(await _count(session, kind, held=False), "hold") as tell:
        held = await session.assembly.jobs.pause_kind(kind, tell=tell)
    told = [f"{kind} is paused: {held:,} of its jobs are held, and those to come; what runs goes on"]
    if kind not in known:
        told.append(f"there is no job and no handler of that kind{suggestion(kind, known)}")
    return session.show({"kind": kind, "paused": True, "held": held}, told)


async def _resume_kind(session: CommandSession, kind: str) -> int:
    _check_kind(kind)
    with _progress(await _count(session, kind, held=True), "free") as tell:
        freed = await session.assembly.jobs.resume_kind(kind, tell=tell)
    pauses = (await session.assembly.jobs.surroundings()).pauses
    told = [f"{kind} is no longer paused: {freed or 0:,} of its jobs are free"]
    if freed is None:
        told = [f"{kind} was not paused{suggestion(kind, pauses.kinds_since)}"]
    if pauses.everything_since:
        told.append("everything is paused, though: cormorant jobs resume")
    return session.show({"kind": kind, "paused": False, "freed": freed or 0, "changed": freed is not None}, told)


def _check_kind(kind: str) -> None:
    if kind != printable(kind):
        raise UsageRefused(f"'{printable(kind)}' cannot be the name of a kind")


async def _count(session: CommandSession, kind: str, *, held: bool) -> int:
    """How many there are to do; counted only for somebody who watches."""
    if not sys.stderr.isatty():
        return 0
    counts = (await session.assembly.jobs.stats()).counts
    return sum(count.count for count in counts if count.kind == kind and count.held is held)


async def _change(
    session: CommandSession, verb: str, ids: Sequence[int], *, failed: bool = False, kind: str | None = None
) -> int:
    """Retry, cancel or discard jobs, by their ids or all that failed."""
    chosen = await session.assembly.jobs.dead_letters(kind) if failed else ids
    with _progress(len(chosen), verb) as tell:
        done = await session.assembly.jobs.change_each(verb, chosen, tell=tell)
    refused = [each for each in done if not each.is_done]
    facts = {
        "done": [each.id for each in done if each.is_done],
        "not_done": [{"id": each.id, "why": each.said} for each in refused],
    }
    session.show(facts, _changed(done) if done else ["no dead letters"])
    return EXIT_FAILED if refused else EXIT_OK


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


@contextmanager
def _progress(total: int, label: str) -> Iterator[Tell]:
    """A bar for somebody who watches and would otherwise wonder; a word to one who had enough."""
    is_watched = total >= WATCHED_FROM and sys.stderr.isatty()
    with click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True, hidden=not is_watched) as bar:
        try:
            yield bar.update
        except KeyboardInterrupt:
            raise CommandFailed("interrupted; what is done stays done, the same command does the rest") from None


_ONLY_SHOWN = ("payload", "last_errors", "uid")


def _facts(job: JobView, scene: JobSurroundings) -> dict[str, Any]:
    """A job as the API has it, with what it waits for."""
    return attrs.asdict(job, recurse=False) | {"waits_for": [reason.value for reason in scene.reasons(job)]}


def _brief(job: JobView, scene: JobSurroundings) -> dict[str, Any]:
    """A job of a list. Payloads and all errors are in `show`."""
    facts = {name: value for name, value in _facts(job, scene).items() if name not in _ONLY_SHOWN}
    return facts | {"error": job.last_errors[-1]["error"] if job.last_errors else None}


def _stats_facts(stats: JobStats) -> dict[str, Any]:
    scene, kinds = stats.scene, _numbers(stats)
    workers = [
        attrs.asdict(worker) | {"lives": scene.lives(worker), "running": stats.running.get(worker.id, 0)}
        for worker in scene.workers
    ]
    return {
        "at": scene.now,
        "kinds": kinds,
        "oldest_due": stats.oldest_due,
        "dead_letters": sum(numbers[JobState.FAILED.value] for numbers in kinds.values()),
        "stuck": stats.stuck,
        "paused_since": scene.pauses.everything_since,
        "paused_kinds_since": scene.pauses.kinds_since,
        "workers": workers,
    }


_NUMBERS = (*(state.value for state in JobState), "held")


def _numbers(stats: JobStats) -> dict[str, dict[str, int]]:
    """How many jobs of each kind are in each state, and how many are held."""
    kinds = {count.kind: dict.fromkeys(_NUMBERS, 0) for count in stats.counts}
    for count in stats.counts:
        kinds[count.kind][count.state.value] += count.count
        # A job that was held while it ran may have kept the mark to its end, where it means nothing.
        kinds[count.kind]["held"] += count.count if count.held and count.state not in FINISHED else 0
    return kinds


def _text(session: CommandSession, scene: JobSurroundings) -> JobText:
    priorities = session.settings.queue.priorities
    return JobText(now=scene.now, zone=session.zone, scene=scene, priorities=priorities)


_COLOURS = {
    JobState.RUNNING.value: "cyan",
    JobState.RETRYABLE.value: "yellow",
    JobState.SUCCEEDED.value: "green",
    JobState.FAILED.value: "red",
}
_PAINT = painter(_COLOURS)
_ENDED = {JobState.SUCCEEDED: "done", JobState.FAILED: "gave up", JobState.CANCELLED: "cancelled"}


@frozen(kw_only=True)
class JobText(Times):
    """Words for one scene. `priorities` are the names of the settings."""

    scene: JobSurroundings
    priorities: dict[str, int]

    def page(self, page: JobPage, *, before: int | None) -> Iterator[str]:
        """The list of jobs."""
        rows = [
            [job.id, job.kind, job.state.value, self.tries(job), self.ago(job.enqueued_at), self.story(job)]
            for job in page.jobs
        ]
        head = ("ID", "KIND", "STATE", "TRIES", "ENQUEUED", "WHAT NOW")
        empty = f"no such jobs{f'; did you mean kind {page.kind_meant}?' if page.kind_meant else ''}"
        yield from table(head, rows, empty=empty, right=("ID", "TRIES"), paint=_PAINT)
        yield from older_pages(before)

    def tries(self, job: JobView) -> str:
        """How much of its patience is used up."""
        return f"{job.attempts}/{job.max_attempts}"

    def story(self, job: JobView) -> str:
        """What a job does or waits for, or how it ended, in one line."""
        if job.state is JobState.RUNNING:
            return self._running(job)
        if job.state in FINISHED:
            return self._ended(job)
        told = "; ".join(self._reason(reason, job) for reason in self.scene.reasons(job))
        return f"{told}; after {_last_error(job)}" if job.last_errors else told

    def _running(self, job: JobView) -> str:
        since = f"for {self.age(job.claimed_at)}" if job.claimed_at else ""
        if job.heartbeat_at is None:
            return f"{since} by {job.owner}, which is gone"
        beat = f"beat {self.ago(job.heartbeat_at)}"
        return f"{since} by {job.owner}, {beat}{'; runs again after' if job.runs_again else ''}"

    def _ended(self, job: JobView) -> str:
        told = f"{_ENDED[job.state]} {self.ago(job.finished_at)}" if job.finished_at else _ENDED[job.state]
        if job.state is JobState.SUCCEEDED and job.claimed_at and job.finished_at:
            return f"{told}, took {_precise((job.finished_at - job.claimed_at).total_seconds())}"
        return f"{told}: {_last_error(job)}" if job.last_errors else told

    def _reason(self, reason: WaitReason, job: JobView) -> str:
        when = self.when(job.run_at)
        return {
            WaitReason.KIND_PAUSED: self._held(job.kind),
            WaitReason.ALL_PAUSED: "held: everything is paused",
            WaitReason.NOT_DUE: f"due {when}",
            WaitReason.RETRY: f"retry {when}",
            WaitReason.NOBODY: "no process is running",
            WaitReason.KIND_UNKNOWN: "no process has a handler for it",
            WaitReason.TURN: f"due for {self.age(job.run_at)}, waits for its turn",
        }[reason]

    def _held(self, kind: str) -> str:
        # Freeing jobs takes a while, and may have been interrupted.
        is_paused = kind in self.scene.pauses.kinds_since
        return f"held: {kind} is paused" if is_paused else f"held: {kind} was paused, resume it once more"

    def one(self, job: JobView) -> Iterator[str]:
        """Everything about a job."""
        yield f"job {job.id}  {printable(job.kind)}  {_PAINT(job.state.value, job.state.value)}"
        yield from pairs(list(self._facts(job)), indent="  ")
        yield "  payload"
        yield from (
            f"    {printable(line)}" for line in json.dumps(job.payload, indent=2, ensure_ascii=False).split("\n")
        )
        if job.last_errors:
            yield "  last errors"
            yield from pairs([self._error(error) for error in job.last_errors], indent="    ")

    def _facts(self, job: JobView) -> Iterator[tuple[str, str]]:
        yield "what now", self.story(job)
        yield "enqueued", self._exactly(job.enqueued_at)
        if job.state not in FINISHED:
            yield "due", self._exactly(job.run_at)
        if job.claimed_at:
            yield "claimed", self._exactly(job.claimed_at)
        if job.finished_at:
            yield "finished", self._exactly(job.finished_at)
        if job.owner:
            yield "owner", job.owner
            yield "heartbeat", self._exactly(job.heartbeat_at) if job.heartbeat_at else "none: that process is gone"
        reclaimed = f", reclaimed {counted(job.reclaims, 'time')}" if job.reclaims else ""
        yield "attempts", f"{job.attempts} of {job.max_attempts} used{reclaimed}"
        yield "priority", self._priority(job.priority)
        if job.dedupe_key is not None:
            yield "dedupe key", job.dedupe_key + ("; runs again when it is done" if job.runs_again else "")
        if job.correlation_id is not None:
            yield "correlation", job.correlation_id
        yield "uid", job.uid

    def _error(self, error: dict[str, Any]) -> tuple[str, str]:
        at = datetime.fromisoformat(error["at"])
        return f"attempt {error['attempt']}, {self.at(at)}", str(error["error"])

    def _priority(self, number: int) -> str:
        names = [name for name, value in self.priorities.items() if value == number]
        return f"{names[0]} ({number})" if names else f"{number}, which has no name in the settings"

    def stats(self, stats: JobStats) -> Iterator[str]:
        """All numbers; what needs somebody first."""
        alarms = list(self._alarms(stats))
        yield from [*alarms, ""] if alarms else []
        yield from self._counts(stats) if stats.counts else ["no jobs"]
        yield ""
        yield from self._processes(stats)

    def _alarms(self, stats: JobStats) -> Iterator[str]:
        waiting = {count.kind for count in stats.counts if count.state in {JobState.PENDING, JobState.RETRYABLE}}
        around, pauses = self.scene.surroundings(), self.scene.pauses
        if pauses.everything_since:
            yield f"! everything is paused for {self.age(pauses.everything_since)}: cormorant jobs resume"
        if waiting and around.kinds_served is None:
            yield "! jobs wait and no process is running: cormorant run"
        for kind in sorted(waiting - set(around.kinds_served or waiting)):
            yield f"! {printable(kind)}: jobs wait and no process has a handler for them"
        for kind, since in pauses.kinds_since.items():
            yield f"! {printable(kind)} is paused for {self.age(since)}: cormorant jobs resume {printable(kind)}"
        forgotten = {count.kind for count in stats.counts if count.held and count.state not in FINISHED}
        for kind in sorted(forgotten - set(pauses.kinds_since)):
            yield f"! {printable(kind)} is not paused and some of it is held: cormorant jobs resume {printable(kind)}"
        if stats.stuck:
            yield f"! {counted(stats.stuck, 'running job')} of silent processes: cormorant jobs stuck"
        if dead := sum(count.count for count in stats.counts if count.state is JobState.FAILED):
            yield f"! {counted(dead, 'dead letter')}: cormorant jobs list --state failed"

    def _counts(self, stats: JobStats) -> Iterator[str]:
        kinds = _numbers(stats)
        rows = [[kind, *map(_number, numbers.values()), self._oldest(stats, kind)] for kind, numbers in kinds.items()]
        if len(kinds) > 1:
            totals = [sum(numbers[column] for numbers in kinds.values()) for column in _NUMBERS]
            rows.append(["all", *map(_number, totals), ""])
        head = ("KIND", *(column.upper() for column in _NUMBERS), "OLDEST DUE")
        yield from table(head, rows, right=head[1:-1])

    def _oldest(self, stats: JobStats, kind: str) -> str:
        return self.ago(stats.oldest_due[kind]) if kind in stats.oldest_due else "-"

    def _processes(self, stats: JobStats) -> Iterator[str]:
        rows = [
            [
                each.id,
                self._life(each),
                _number(stats.running.get(each.id, 0)),
                each.version,
                ", ".join(each.kinds) or "none",
            ]
            for each in self.scene.workers
        ]
        head = ("PROCESS", "LAST BEAT", "RUNS", "VERSION", "KINDS")
        yield from table(head, rows, empty="no process is running", right=("RUNS",))

    def _life(self, worker: WorkerRow) -> str:
        beat = self.ago(worker.beat_at)
        if worker.dead_at:
            return f"{beat}, declared dead"
        return beat if self.scene.lives(worker) else f"{beat}, silent"

    def stuck(self, stuck: JobPage, *, silent_s: float) -> Iterator[str]:
        """Running jobs whose owner is silent, and what becomes of them."""
        if not stuck.jobs:
            yield f"no running job has an owner that was silent for {format_duration(silent_s)}"
            return
        rows = [
            [job.id, job.kind, self._since(job.claimed_at), job.owner or "-", self._since(job.heartbeat_at)]
            for job in stuck.jobs
        ]
        yield from table(("ID", "KIND", "RUNNING SINCE", "OWNER", "SILENT SINCE"), rows, right=("ID",))
        lives = any(self.scene.lives(worker) for worker in self.scene.workers)
        patience = format_duration(self.scene.silence_s)
        if lives:
            yield f"they are reclaimed once a running process has watched the owner be silent for {patience}"
        else:
            yield f"no process is running that could reclaim them: cormorant run (it watches for {patience} first)"

    def _since(self, moment: datetime | None) -> str:
        return "unknown" if moment is None else self.when(moment)

    def _exactly(self, moment: datetime) -> str:
        local = moment.astimezone(self.zone)
        return f"{local:%Y-%m-%d %H:%M:%S %Z} ({self.ago(moment)})"


def _last_error(job: JobView) -> str:
    return str(job.last_errors[-1]["error"])


def _precise(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else rough(seconds)  # noqa: PLR2004 - two digits are enough


def _number(count: int) -> str:
    return f"{count:,}" if count else "-"
