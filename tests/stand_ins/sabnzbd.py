"""A SABnzbd with the warnings, versions and settings that need care."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define
from typing_extensions import override

from cormorant.playground.http import FormData, StandInResponse, as_json
from cormorant.playground.sabnzbd import SabnzbdStandIn


@define(kw_only=True)
class OddSabnzbd(SabnzbdStandIn):
    """Its habits may be changed at any time."""

    says_why: bool = True
    """Whether API warnings are on: without them a 403 has no text."""
    knows_host: bool = True
    refuses: bool = False
    error: str = ""
    """Answered with HTTP 200 and status false."""
    replaces_spaces: bool = False
    can_search: bool = True

    @override
    def _forbidden(self, fields: Mapping[str, str]) -> str | None:
        unknown_host = "Access denied - Hostname verification failed: https://sabnzbd.org/hostname-check"
        words = super()._forbidden(fields) if self.knows_host else unknown_host
        return words if words is None or self.says_why else ""

    @override
    def _add(self, fields: Mapping[str, str], form: FormData) -> StandInResponse:
        if self.error:
            return as_json({"status": False, "error": self.error})
        if self.refuses:
            return as_json({"status": False, "nzo_ids": []})
        name = fields.get("nzbname", "")
        return super()._add({**fields, "nzbname": name.replace(" ", "_") if self.replaces_spaces else name}, form)

    @override
    def _list(self, mode: str, fields: Mapping[str, str]) -> StandInResponse:
        searched = {"search", "nzo_ids"}
        kept = {name: text for name, text in fields.items() if self.can_search or name not in searched}
        return super()._list(mode, kept)
