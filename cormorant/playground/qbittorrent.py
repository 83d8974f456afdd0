"""QBittorrent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from http.cookies import SimpleCookie
from typing import Final, Literal

import trio
from attrs import define, field

from cormorant.clients.files import NotATorrent, Torrent, read_torrent
from cormorant.playground.http import FormData, StandInRequest, StandInResponse, as_json, as_text, remember
from cormorant.rules.watch.handovers import infohash_of_magnet, infohash_v2_of_magnet

_JSON: Final = "application/json"
_VERSIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "old": {"version": "v4.6.7", "webapiVersion": "2.9.3"},
    "new": {"version": "v5.2.0", "webapiVersion": "2.15.1"},
}


@define(kw_only=True)
class PlayedTorrent:
    """A torrent that it has, seen from `visible_at` on."""

    torrent_id: str
    visible_at: float
    state: str
    fields: Mapping[str, str] = field(factory=dict)


@define(kw_only=True)
class QbittorrentStandIn:
    """Its state and its habits; the habits may be changed at any time."""

    name: str = "qbittorrent"
    now_s: Callable[[], float] = trio.current_time
    generation: Literal["old", "new"] = "new"
    user: str = "admin"
    password: str = "adminadmin"  # noqa: S105 - what qBittorrent itself came with
    lag_s: float = 0.0
    """A torrent is listed only so much later: 5 s on a slow disk."""
    takes_s: float = math.inf
    """So long after it is listed a torrent that is not stopped is whole."""
    held: dict[str, PlayedTorrent] = field(factory=dict)
    asked: list[StandInRequest] = field(factory=list)
    _sessions: set[str] = field(factory=set)

    def lose_sessions(self) -> None:
        """As after a restart, or an hour without a call."""
        self._sessions.clear()

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        remember(self.asked, asked)
        method, (api, _, call) = asked.method, asked.path.rpartition("/")
        if (api, call) == ("/api/v2/auth", "login"):
            return self._log_in(asked.form())
        if not self._is_known(asked.headers):
            return as_text("Forbidden", status=403)
        if (method, api, call) == ("POST", "/api/v2/torrents", "add"):
            return self._add(asked.form())
        if (api, call) == ("/api/v2/torrents", "info"):
            return self._list(asked.params)
        if api == "/api/v2/app" and call in _VERSIONS[self.generation]:
            return as_text(_VERSIONS[self.generation][call])
        return as_text("Not Found", status=404)

    @property
    def _is_new(self) -> bool:
        return self.generation == "new"

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        sent = {morsel.value for morsel in SimpleCookie(headers.get("cookie", "")).values()}
        return bool(sent & self._sessions)

    def _log_in(self, form: FormData) -> StandInResponse:
        if (form.fields.get("username"), form.fields.get("password")) != (self.user, self.password):
            return as_text("", status=401) if self._is_new else as_text("Fails.")
        session = f"session+{len(self.asked)}/x"
        self._sessions.add(session)
        name = "QBT_SID_8080" if self._is_new else "SID"
        headers = {"Set-Cookie": f"{name}={session}; HttpOnly; SameSite=Strict; path=/"}
        status, body = (204, b"") if self._is_new else (200, b"Ok.")
        return StandInResponse(status=status, body=body, headers=headers)

    def _add(self, form: FormData) -> StandInResponse:
        try:
            torrent_id = self._id_of(form)
        except NotATorrent:
            return as_text("Error: 'x.torrent' is not a valid torrent file.", status=415)
        if torrent_id is None or torrent_id in self.held:
            counts = {"success_count": 0, "failure_count": 1, "pending_count": 0, "added_torrent_ids": []}
            return as_json(counts, status=409, kind=_JSON) if self._is_new else as_text("Fails.")
        is_stopped = "true" in {form.fields.get("stopped"), form.fields.get("paused")}
        state = self._first_state(is_stopped=is_stopped)
        self.held[torrent_id] = PlayedTorrent(
            torrent_id=torrent_id, visible_at=self.now_s() + self.lag_s, state=state, fields=form.fields
        )
        is_pending = self.lag_s > 0
        counts = {"success_count": int(not is_pending), "failure_count": 0, "pending_count": int(is_pending)}
        ids = [] if is_pending else [torrent_id]
        new = as_json({**counts, "added_torrent_ids": ids}, status=202 if is_pending else 200, kind=_JSON)
        return new if self._is_new else as_text("Ok.")

    def _first_state(self, *, is_stopped: bool) -> str:
        if not is_stopped:
            return "downloading"
        return "stoppedDL" if self._is_new else "pausedDL"

    def _id_of(self, form: FormData) -> str | None:
        if "torrents" in form.files:
            read: Torrent = read_torrent(form.files["torrents"][1])
            return (read.infohash_v2 or read.infohash)[:40]
        link = form.fields.get("urls", "")
        named = infohash_v2_of_magnet(link) or infohash_of_magnet(link)
        return named[:40] if named else None

    def _list(self, query: Mapping[str, str]) -> StandInResponse:
        wanted = query.get("hashes", "").split("|") if query.get("hashes") else list(self.held)
        shown = [self.held[each] for each in wanted if each in self.held and self.held[each].visible_at <= self.now_s()]
        states = [{"hash": each.torrent_id, "state": self._state(each), "progress": 0.5} for each in shown]
        return as_json(states, kind=_JSON)

    def _state(self, held: PlayedTorrent) -> str:
        is_whole = held.state == "downloading" and self.now_s() >= held.visible_at + self.takes_s
        return "uploading" if is_whole else held.state
