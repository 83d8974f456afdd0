"""QBittorrent."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from http.cookies import SimpleCookie
from typing import Any, Literal

from attrs import define, field

from cormorant.clients.files import NotATorrent, Torrent, read_torrent
from cormorant.playground.http import FormData, read_form
from cormorant.rules.watch.handovers import infohash_of_magnet, infohash_v2_of_magnet

_Reply = tuple[int, Mapping[str, str], bytes]


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

    now: Callable[[], float] = field(default=lambda: 0.0)
    generation: Literal["old", "new"] = "new"
    user: str = "admin"
    password: str = "adminadmin"  # noqa: S105 - what qBittorrent itself came with
    api_key: str = ""
    lag_s: float = 0.0
    """A torrent is listed only so much later: 5 s on a slow disk."""
    takes_s: float = math.inf
    """So long after it is listed a torrent that is not stopped is whole."""
    refuses: bool = False
    is_disk_full: bool = False
    """Torrents are taken and end in the state `error`."""
    is_banning: bool = False
    held: dict[str, PlayedTorrent] = field(factory=dict)
    asked: list[str] = field(factory=list)
    _sessions: set[str] = field(factory=set)

    def lose_sessions(self) -> None:
        """As after a restart, or an hour without a call."""
        self._sessions.clear()

    def handle(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> _Reply:
        """Answer one request."""
        self.asked.append(f"{method} {path}")
        form = read_form(headers, body)
        if path == "/api/v2/auth/login":
            return self._log_in(form)
        if not self._is_known(headers):
            return _text("Forbidden", status=403)
        if (method, path) == ("POST", "/api/v2/torrents/add"):
            return self._add(form)
        if path == "/api/v2/torrents/info":
            return self._list(query)
        versions = {"/api/v2/app/version": ("v4.6.7", "v5.2.0"), "/api/v2/app/webapiVersion": ("2.9.3", "2.15.1")}
        if path in versions:
            return _text(versions[path][self._is_new])
        return _text("Not Found", status=404)

    @property
    def _is_new(self) -> bool:
        return self.generation == "new"

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        if self.api_key and headers.get("authorization") == f"Bearer {self.api_key}":
            return True
        sent = {morsel.value for morsel in SimpleCookie(headers.get("cookie", "")).values()}
        return bool(sent & self._sessions)

    def _log_in(self, form: FormData) -> _Reply:
        if self.is_banning:
            return _text("Your IP address has been banned after too many failed authentication attempts.", status=403)
        if (form.fields.get("username"), form.fields.get("password")) != (self.user, self.password):
            return _text("", status=401) if self._is_new else _text("Fails.")
        session = f"session+{len(self.asked)}/x"
        self._sessions.add(session)
        name = "QBT_SID_8080" if self._is_new else "SID"
        cookie = {"Set-Cookie": f"{name}={session}; HttpOnly; SameSite=Strict; path=/"}
        status, body = (204, b"") if self._is_new else (200, b"Ok.")
        return status, cookie, body

    def _add(self, form: FormData) -> _Reply:
        try:
            torrent_id = self._id_of(form)
        except NotATorrent:
            return _text("Error: 'x.torrent' is not a valid torrent file.", status=415)
        if self.refuses or torrent_id is None or torrent_id in self.held:
            counts = {"success_count": 0, "failure_count": 1, "pending_count": 0, "added_torrent_ids": []}
            return _json(counts, status=409) if self._is_new else _text("Fails.")
        is_stopped = "true" in {form.fields.get("stopped"), form.fields.get("paused")}
        state = "error" if self.is_disk_full else self._first_state(is_stopped=is_stopped)
        self.held[torrent_id] = PlayedTorrent(
            torrent_id=torrent_id, visible_at=self.now() + self.lag_s, state=state, fields=form.fields
        )
        is_pending = self.lag_s > 0
        counts = {"success_count": int(not is_pending), "failure_count": 0, "pending_count": int(is_pending)}
        ids = [] if is_pending else [torrent_id]
        new = _json({**counts, "added_torrent_ids": ids}, status=202 if is_pending else 200)
        return new if self._is_new else _text("Ok.")

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

    def _list(self, query: Mapping[str, str]) -> _Reply:
        wanted = query.get("hashes", "").split("|") if query.get("hashes") else list(self.held)
        shown = [self.held[each] for each in wanted if each in self.held and self.held[each].visible_at <= self.now()]
        return _json([{"hash": each.torrent_id, "state": self._state(each), "progress": 0.5} for each in shown])

    def _state(self, held: PlayedTorrent) -> str:
        is_whole = held.state == "downloading" and self.now() >= held.visible_at + self.takes_s
        return "uploading" if is_whole else held.state


def _text(text: str, *, status: int = 200) -> _Reply:
    return status, {"Content-Type": "text/plain; charset=UTF-8"}, text.encode()


def _json(value: Any, *, status: int = 200) -> _Reply:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()
