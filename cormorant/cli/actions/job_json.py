"""How are jobs told to programs? The same facts as to people, times in UTC, nothing rounded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import attrs

from cormorant.rules.jobs.states import FINISHED, JobState
from cormorant.services.jobs import JobChange
from storage.jobs.reports import JobPage, JobStats, JobSurroundings, JobView, StuckJobs

__all__ = ["as_text", "changes_json", "job_json", "page_json", "stats_json", "stuck_json"]

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
    return attrs.asdict(job, recurse=False) | {"waits_for": [gate.value for gate in scene.gates(job)]}


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
