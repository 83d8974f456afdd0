"""SABnzbd."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import trio
from attrs import define, field

from cormorant.playground.http import FormData, StandInRequest, StandInResponse, as_json, as_text, remember

_json: Final = partial(as_json, kind="application/json;charset=UTF-8")


@define(kw_only=True)
class SabnzbdJob:
    """A job, seen from `visible_at` on; in the history once its status is one of there."""

    nzo_id: str
    name: str
    visible_at: float
    status: str = "Queued"
    fail_message: str = ""
    is_in_history: bool = False
    is_archived: bool = False
    fields: Mapping[str, str] = field(factory=dict)


@define(kw_only=True)
class SabnzbdStandIn:
    """Its state and its habits; the habits may be changed at any time."""

    name: str = "sabnzbd"
    now_s: Callable[[], float] = trio.current_time
    key: str = "the-key-of-sabnzbd"
    lag_s: float = 0.0
    takes_s: float = math.inf
    """So long after it is listed a job is in the history, completed."""
    jobs: list[SabnzbdJob] = field(factory=list)
    asked: list[StandInRequest] = field(factory=list)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        remember(self.asked, asked)
        form = asked.form()
        fields = {**asked.params, **form.fields}
        mode = fields.get("mode", "")
        if asked.path != "/api":
            return as_text("Not found", status=404)
        if mode == "version":
            return _json({"version": "4.3.3"})
        forbidden = self._forbidden(fields)
        if forbidden is not None:
            return as_text(forbidden, status=403)
        if mode in {"addfile", "addurl"}:
            return self._add(fields, form)
        if mode in {"queue", "history"}:
            return self._list(mode, fields)
        return _json({"status": False, "error": "not implemented"})

    def _forbidden(self, fields: Mapping[str, str]) -> str | None:
        if not fields.get("apikey"):
            return "API Key Required"
        return None if fields["apikey"] == self.key else "API Key Incorrect"

    def _add(self, fields: Mapping[str, str], form: FormData) -> StandInResponse:
        if not (form.files.get("name") or form.files.get("nzbfile") or fields.get("name")):
            return _json({"status": False, "nzo_ids": []})
        name = fields.get("nzbname") or "unnamed"
        nzo_id = f"SABnzbd_nzo_{len(self.jobs):08}"
        kept = {key: value for key, value in fields.items() if key != "apikey"}
        status = "Grabbing" if fields["mode"] == "addurl" else "Queued"
        self.jobs.append(
            SabnzbdJob(nzo_id=nzo_id, name=name, visible_at=self.now_s() + self.lag_s, status=status, fields=kept)
        )
        return _json({"status": True, "nzo_ids": [nzo_id]})

    def _list(self, mode: str, fields: Mapping[str, str]) -> StandInResponse:
        for job in self.jobs:
            if not job.is_in_history and self.now_s() >= job.visible_at + self.takes_s:
                job.is_in_history, job.status = True, "Completed"
        is_archive = fields.get("archive") == "1"
        shown = [
            job for job in self.jobs if job.is_in_history == (mode == "history") and job.visible_at <= self.now_s()
        ]
        if mode == "history":
            shown = [job for job in shown if job.is_archived == is_archive]
        shown = [job for job in shown if fields.get("search", "") in job.name]
        shown = [job for job in shown if fields.get("nzo_ids", job.nzo_id) == job.nzo_id]
        named = "filename" if mode == "queue" else "name"
        slots = [
            {"nzo_id": job.nzo_id, named: job.name, "status": job.status, "fail_message": job.fail_message}
            for job in shown
        ]
        return _json({mode: {"slots": slots, "noofslots": len(slots)}})
