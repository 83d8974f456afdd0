"""Jobs as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, tzinfo
from typing import Any

import attrs
from attrs import frozen

from cormorant.cli.console.output import painter, pairs, printable, table
from cormorant.rules.jobs.states import FINISHED, JobState
from cormorant.rules.jobs.wait_reasons import WaitReason
from cormorant.rules.units import clock_time, format_duration, from_now, rough
from storage.jobs.batch import JobChange
from storage.jobs.reports import JobPage, JobStats, JobSurroundings, JobView, StuckJobs
from storage.jobs.workers import WorkerRow

_COLOURS = {
    JobState.RUNNING.value: "cyan",
    JobState.RETRYABLE.value: "yellow",
    JobState.SUCCEEDED.value: "green",
    JobState.FAILED.value: "red",
}
_ENDED = {JobState.SUCCEEDED: "done", JobState.FAILED: "gave up", JobState.CANCELLED: "cancelled"}


@frozen(kw_only=True)
class JobText:
    """Words for one scene, in one zone. `priorities` are the names of the settings."""

    scene: JobSurroundings
    zone: tzinfo
    priorities: dict[str, int]

    def page(self, page: JobPage) -> Iterator[str]:
        """The list of jobs."""
        if not page.jobs:
            yield f"no such jobs{f'; did you mean kind {page.kind_meant}?' if page.kind_meant else ''}"
            return
        rows = [
            [str(job.id), job.kind, job.state.value, self.tries(job), self._ago(job.enqueued_at), self.story(job)]
            for job in page.jobs
        ]
        head = ("ID", "KIND", "STATE", "TRIES", "ENQUEUED", "WHAT NOW")
        yield from table(head, rows, right=("ID", "TRIES"), paint=painter(_COLOURS))
        if page.has_more:
            yield f"older ones: --before {page.jobs[-1].id}"

    def tries(self, job: JobView) -> str:
        """How much of its patience is used up."""
        return f"{job.attempts}/{job.max_attempts}"

    def story(self, job: JobView) -> str:
        """What a job does or waits for, or how it ended, in one line."""
        if job.state is JobState.RUNNING:
            return self._running(job)
        if job.state in FINISHED:
            return self._ended(job)
        told = "; ".join(self._gate(gate, job) for gate in self.scene.reasons(job))
        return f"{told}; after {_last_error(job)}" if job.last_errors else told

    def _running(self, job: JobView) -> str:
        since = f"for {self._age(job.claimed_at)}" if job.claimed_at else ""
        if job.heartbeat_at is None:
            return f"{since} by {job.owner}, which is gone"
        beat = f"beat {self._ago(job.heartbeat_at)}"
        return f"{since} by {job.owner}, {beat}{'; runs again after' if job.runs_again else ''}"

    def _ended(self, job: JobView) -> str:
        told = f"{_ENDED[job.state]} {self._ago(job.finished_at)}" if job.finished_at else _ENDED[job.state]
        if job.state is JobState.SUCCEEDED and job.claimed_at and job.finished_at:
            return f"{told}, took {_precise((job.finished_at - job.claimed_at).total_seconds())}"
        return f"{told}: {_last_error(job)}" if job.last_errors else told

    def _gate(self, gate: WaitReason, job: JobView) -> str:
        when = f"{self._at(job.run_at)} ({self._ago(job.run_at)})"
        return {
            WaitReason.KIND_PAUSED: self._held(job.kind),
            WaitReason.ALL_PAUSED: "held: everything is paused",
            WaitReason.NOT_DUE: f"due {when}",
            WaitReason.RETRY: f"retry {when}",
            WaitReason.NOBODY: "no process is running",
            WaitReason.KIND_UNKNOWN: "no process has a handler for it",
            WaitReason.TURN: f"due for {self._age(job.run_at)}, waits for its turn",
        }[gate]

    def _held(self, kind: str) -> str:
        # Freeing jobs takes a while, and may have been interrupted.
        is_paused = kind in self.scene.pauses.kinds_since
        return f"held: {kind} is paused" if is_paused else f"held: {kind} was paused, resume it once more"

    def one(self, job: JobView) -> Iterator[str]:
        """Everything about a job."""
        yield f"job {job.id}  {printable(job.kind)}  {painter(_COLOURS)(job.state.value, job.state.value)}"
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
        yield "enqueued", self._when(job.enqueued_at)
        if job.state not in FINISHED:
            yield "due", self._when(job.run_at)
        if job.claimed_at:
            yield "claimed", self._when(job.claimed_at)
        if job.finished_at:
            yield "finished", self._when(job.finished_at)
        if job.owner:
            yield "owner", job.owner
            yield "heartbeat", self._when(job.heartbeat_at) if job.heartbeat_at else "none: that process is gone"
        yield "attempts", f"{job.attempts} of {job.max_attempts} used{_times(job.reclaims, ', reclaimed')}"
        yield "priority", self._priority(job.priority)
        if job.dedupe_key is not None:
            yield "dedupe key", job.dedupe_key + ("; runs again when it is done" if job.runs_again else "")
        if job.correlation_id is not None:
            yield "correlation", job.correlation_id
        yield "uid", job.uid

    def _error(self, error: dict[str, Any]) -> tuple[str, str]:
        at = datetime.fromisoformat(error["at"])
        return f"attempt {error['attempt']}, {self._at(at)}", str(error["error"])

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
            yield f"! everything is paused for {self._age(pauses.everything_since)}: cormorant jobs resume"
        if waiting and around.kinds_served is None:
            yield "! jobs wait and no process is running: cormorant run"
        for kind in sorted(waiting - set(around.kinds_served or waiting)):
            yield f"! {printable(kind)}: jobs wait and no process has a handler for them"
        for kind, since in pauses.kinds_since.items():
            yield f"! {printable(kind)} is paused for {self._age(since)}: cormorant jobs resume {printable(kind)}"
        forgotten = {count.kind for count in stats.counts if count.held and count.state not in FINISHED}
        for kind in sorted(forgotten - set(pauses.kinds_since)):
            yield f"! {printable(kind)} is not paused and some of it is held: cormorant jobs resume {printable(kind)}"
        if stats.stuck:
            yield f"! {_many(stats.stuck, 'running job')} of silent processes: cormorant jobs stuck"
        if dead := sum(count.count for count in stats.counts if count.state is JobState.FAILED):
            yield f"! {_many(dead, 'dead letter')}: cormorant jobs list --state failed"

    def _counts(self, stats: JobStats) -> Iterator[str]:
        kinds = list(dict.fromkeys(count.kind for count in stats.counts))
        states = [state.value for state in JobState]
        numbers = {(kind, column): 0 for kind in kinds for column in [*states, "held"]}
        for count in stats.counts:
            numbers[count.kind, count.state.value] += count.count
            if count.held and count.state not in FINISHED:
                numbers[count.kind, "held"] += count.count
        columns = [*states, "held"]
        rows = [
            [kind, *(_number(numbers[kind, column]) for column in columns), self._oldest(stats, kind)] for kind in kinds
        ]
        if len(kinds) > 1:
            totals = [_number(sum(numbers[kind, column] for kind in kinds)) for column in columns]
            rows.append(["all", *totals, ""])
        head = ("KIND", *(column.upper() for column in columns), "OLDEST DUE")
        yield from table(head, rows, right=head[1:-1])

    def _oldest(self, stats: JobStats, kind: str) -> str:
        return self._ago(stats.oldest_due[kind]) if kind in stats.oldest_due else "-"

    def _processes(self, stats: JobStats) -> Iterator[str]:
        if not self.scene.workers:
            yield "no process is running"
            return
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
        yield from table(("PROCESS", "LAST BEAT", "RUNS", "VERSION", "KINDS"), rows, right=("RUNS",))

    def _life(self, worker: WorkerRow) -> str:
        beat = self._ago(worker.beat_at)
        if worker.dead_at:
            return f"{beat}, declared dead"
        return beat if self.scene.lives(worker) else f"{beat}, silent"

    def stuck(self, stuck: StuckJobs, *, silent_s: float) -> Iterator[str]:
        """Running jobs whose owner is silent, and what becomes of them."""
        if not stuck.jobs:
            yield f"no running job has an owner that was silent for {format_duration(silent_s)}"
            return
        rows = [
            [str(job.id), job.kind, self._since(job.claimed_at), job.owner or "-", self._since(job.heartbeat_at)]
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
        return "unknown" if moment is None else f"{self._at(moment)} ({self._ago(moment)})"

    def _when(self, moment: datetime) -> str:
        local = moment.astimezone(self.zone)
        return f"{local:%Y-%m-%d %H:%M:%S %Z} ({self._ago(moment)})"

    def _at(self, moment: datetime) -> str:
        return clock_time(moment, self.scene.now, self.zone)

    def _ago(self, moment: datetime) -> str:
        return from_now(moment, self.scene.now)

    def _age(self, moment: datetime | None) -> str:
        return "" if moment is None else rough((self.scene.now - moment).total_seconds())


def _last_error(job: JobView) -> str:
    return str(job.last_errors[-1]["error"])


def _precise(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else rough(seconds)  # noqa: PLR2004 - two digits are enough


def _times(count: int, what: str) -> str:
    return f"{what} {_many(count, 'time')}" if count else ""


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _number(count: int) -> str:
    return f"{count:,}" if count else "-"


_ONLY_SHOWN = ("payload", "last_errors", "uid")


def as_text(value: Any) -> str:
    """JSON with a line for each fact; ASCII, because a payload may hold half a character, which no stream takes."""
    return json.dumps(value, indent=2, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not told to programs")


def job_json(job: JobView, scene: JobSurroundings) -> dict[str, Any]:
    """A job with what it waits for."""
    return attrs.asdict(job, recurse=False) | {"waits_for": [gate.value for gate in scene.reasons(job)]}


def _brief(job: JobView, scene: JobSurroundings) -> dict[str, Any]:
    facts = job_json(job, scene)
    error = job.last_errors[-1]["error"] if job.last_errors else None
    return {name: value for name, value in facts.items() if name not in _ONLY_SHOWN} | {"error": error}


def page_json(page: JobPage) -> dict[str, Any]:
    """A list of jobs; `before` fetches the next page. Payloads and all errors are in `show`."""
    return {
        "jobs": [_brief(job, page.scene) for job in page.jobs],
        "before": page.jobs[-1].id if page.has_more else None,
    }


def stats_json(stats: JobStats) -> dict[str, Any]:
    """All numbers."""
    scene = stats.scene
    kinds = {count.kind: dict.fromkeys([*(state.value for state in JobState), "held"], 0) for count in stats.counts}
    for count in stats.counts:
        kinds[count.kind][count.state.value] += count.count
        # A job that was held while it ran may have kept the mark to its end, where it means nothing.
        kinds[count.kind]["held"] += count.count if count.held and count.state not in FINISHED else 0
    workers = [
        attrs.asdict(worker) | {"lives": scene.lives(worker), "running": stats.running.get(worker.id, 0)}
        for worker in scene.workers
    ]
    return {
        "at": scene.now,
        "kinds": kinds,
        "oldest_due": stats.oldest_due,
        "dead_letters": sum(counts[JobState.FAILED.value] for counts in kinds.values()),
        "stuck": stats.stuck,
        "paused_since": scene.pauses.everything_since,
        "paused_kinds_since": scene.pauses.kinds_since,
        "workers": workers,
    }


def stuck_json(stuck: StuckJobs) -> dict[str, Any]:
    """Running jobs whose owner is silent."""
    return {"jobs": [_brief(job, stuck.scene) for job in stuck.jobs]}


def changes_json(done: Sequence[JobChange]) -> dict[str, Any]:
    """What became of each id."""
    return {
        "done": [each.id for each in done if each.is_done],
        "not_done": [{"id": each.id, "why": each.said} for each in done if not each.is_done],
    }
