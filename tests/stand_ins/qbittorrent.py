"""A qBittorrent that takes a key, refuses torrents, has a full disk or bans addresses."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define
from typing_extensions import override

from cormorant.playground.http import FormData, StandInResponse, as_text
from cormorant.playground.qbittorrent import QbittorrentStandIn


@define(kw_only=True)
class OddQbittorrent(QbittorrentStandIn):
    """Its habits may be changed at any time."""

    api_key: str = ""
    refuses: bool = False
    is_disk_full: bool = False
    """Torrents are taken and end in the state `error`."""
    is_banning: bool = False

    @override
    def _is_known(self, headers: Mapping[str, str]) -> bool:
        has_key = bool(self.api_key) and headers.get("authorization") == f"Bearer {self.api_key}"
        return has_key or super()._is_known(headers)

    @override
    def _log_in(self, form: FormData) -> StandInResponse:
        if self.is_banning:
            return as_text("Your IP address has been banned after too many failed authentication attempts.", status=403)
        return super()._log_in(form)

    @override
    def _id_of(self, form: FormData) -> str | None:
        torrent_id = super()._id_of(form)
        return None if self.refuses else torrent_id

    @override
    def _first_state(self, *, is_stopped: bool) -> str:
        return "error" if self.is_disk_full else super()._first_state(is_stopped=is_stopped)
