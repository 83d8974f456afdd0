"""QBittorrent and what its states mean.

It knows a torrent by its infohash, so that giving the same twice is harmless and looking always tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

import attrs
import trio

from cormorant.clients.files import NotATorrent, Torrent, read_torrent
from cormorant.clients.http.transport import Answer, Transport
from cormorant.clients.targets.caller import RequestBody, TargetCaller, TargetRequest, as_json, form, multipart
from cormorant.clients.targets.target import already_there, refuse_false, settled
from cormorant.rules.ports import Ports
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import (
    Parcel,
    ParcelKind,
    ParcelState,
    ParcelStatus,
    TargetMisconfigured,
    TargetRefused,
    infohash_of_magnet,
    infohash_v2_of_magnet,
)

_NAME: Final = "qBittorrent"
_DENIED: Final = {401, 403}
_ID_LENGTH: Final = 40
"""qBittorrent cuts the infohash of version 2 to the length of version 1."""


class Qbittorrent:
    """One qBittorrent. Holds its session; a password that was refused is not tried again before `test`.

    A key goes before name and password; with neither nobody logs in.
    """

    takes: Final = frozenset({ParcelKind.TORRENT, ParcelKind.MAGNET})
    can_be_asked: Final = True
    SETTLE_S = 5.0
    """How long after a refusal a torrent may still turn up that is already there."""

    def __init__(self, settings: TargetSettings, transport: Transport, environment: Ports) -> None:
        self._settings = settings
        self._environment = environment
        self._caller = TargetCaller(_NAME, settings.url, transport, environment.clock, timeout_s=settings.timeout_s)
        self._caller.keep_secret([settings.password, settings.key])
        self._cookie = ""
        self._was_refused = False
        self._login_lock = trio.Lock()

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Add it. A torrent that is already there counts as given."""
        torrent = await refuse_false(parcel, self.takes, name=_NAME, offload=self._environment.offload)
        ids = _ids(parcel, torrent)
        if not ids:
            raise TargetRefused("the magnet link names no infohash, by which alone it could be found again")
        answer = await self._call(TargetRequest(path="/api/v2/torrents/add", content=self._added(parcel), gives=True))
        if answer.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
            raise TargetRefused(f"{_NAME} takes it for no torrent ({self._caller.words(answer)})")
        if answer.status == HTTPStatus.CONFLICT:
            return await self._already_there(ids)
        self._caller.refuse_status(answer, gives=True)
        return await self._understood(answer, ids)

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        """Where the torrent stands, by its infohash."""
        torrent = await self._environment.offload(_torrent_in, parcel)
        ids = _ids(parcel, torrent)
        if receipt is not None and receipt.target_id:
            ids = list(dict.fromkeys([*ids, receipt.target_id]))
        if not ids:
            return ParcelStatus(standing=ParcelState.UNKNOWN, reason="nothing is known by which it could be found")
        return await self._look_for(ids)

    async def test(self) -> str:
        """Which version answers."""
        self._was_refused = False
        version = await self._ask("/api/v2/app/version")
        web_api = await self._ask("/api/v2/app/webapiVersion")
        if not self._caller.words(web_api)[:1].isdigit():
            raise self._caller.strange(web_api)
        return f"{_NAME} {self._caller.words(version)}, Web API {self._caller.words(web_api)}"

    async def _ask(self, path: str, *params: tuple[str, str]) -> Answer:
        answer = await self._call(TargetRequest(method="GET", path=path, params=params))
        self._caller.refuse_status(answer)
        return answer

    async def _look_for(self, ids: list[str]) -> ParcelStatus:
        answer = await self._ask("/api/v2/torrents/info", ("hashes", "|".join(ids)))
        for torrent in self._caller.read(answer, list):
            if isinstance(torrent, dict) and _is_one_of(torrent, ids):
                torrent_id = str(torrent.get("hash") or ids[0])
                return receipt_of_state(str(torrent.get("state", "")), torrent_id=torrent_id)
        return ParcelStatus(target_id=ids[0], standing=ParcelState.ABSENT)

    async def _understood(self, answer: Answer, ids: list[str]) -> ParcelStatus:
        said = as_json(answer)
        if isinstance(said, dict) and "success_count" in said:
            return await self._counted(said, ids)
        text = answer.body.strip()
        if text == b"Fails.":
            return await self._already_there(ids)
        if text != b"Ok.":
            raise self._caller.strange(answer, gives=True)
        return ParcelStatus(target_id=ids[0], standing=ParcelState.PRESENT)

    async def _counted(self, said: Mapping[str, Any], ids: list[str]) -> ParcelStatus:
        if said.get("success_count"):
            added = said.get("added_torrent_ids")
            torrent_id = str(added[0]) if isinstance(added, list) and added else ids[0]
            return ParcelStatus(target_id=torrent_id, standing=ParcelState.PRESENT)
        if said.get("pending_count"):
            return ParcelStatus(
                target_id=ids[0], standing=ParcelState.PRESENT, reason="qBittorrent has yet to look into it"
            )
        return await self._already_there(ids)

    async def _already_there(self, ids: list[str]) -> ParcelStatus:
        """Nothing was added. It says so of a torrent that it has and of one that it cannot read alike."""
        receipt = await settled(partial(self._look_for, ids), self.SETTLE_S)
        if receipt.standing is ParcelState.ABSENT:
            raise TargetRefused(f"{_NAME} did not add it and does not have it either; its log has the reason")
        return already_there(receipt)

    def _added(self, parcel: Parcel) -> RequestBody:
        settings = self._settings
        fields = {"category": settings.category, "tags": ",".join(settings.tags)}
        if settings.folder:
            fields |= {"savepath": settings.folder, "autoTMM": "false"}
        if settings.paused:
            fields |= {"stopped": "true", "paused": "true"}
        chosen = {name: text for name, text in fields.items() if text}
        if parcel.kind is ParcelKind.MAGNET:
            return multipart(chosen | {"urls": (parcel.link or "").strip()})
        return multipart(
            chosen, {"torrents": (f"{parcel.key}.torrent", parcel.body or b"", "application/x-bittorrent")}
        )

    async def _call(self, call: TargetRequest) -> Answer:
        """Call with our key or session. A lost session is found by a 403, which takes nothing: log in once, repeat."""
        if self._settings.key:
            bearer = {"Authorization": f"Bearer {self._settings.key.reveal()}"}
            return self._let_in(await self._caller.call(attrs.evolve(call, headers=bearer)))
        if not self._settings.password:
            return self._let_in(await self._caller.call(call))
        before = self._cookie or await self._log_in("")
        answer = await self._caller.call(attrs.evolve(call, headers={"Cookie": before}))
        if answer.status not in _DENIED:
            return answer
        cookie = await self._log_in(before)
        return self._let_in(await self._caller.call(attrs.evolve(call, headers={"Cookie": cookie})))

    def _let_in(self, answer: Answer) -> Answer:
        if answer.status not in _DENIED:
            return answer
        said = self._caller.words(answer)
        if self._settings.password and not self._settings.key:
            raise TargetMisconfigured(
                f"{_NAME} accepts the password and yet refuses the call (HTTP {answer.status}, {said}); "
                "check its settings of host header validation and of reverse proxies"
            )
        raise TargetMisconfigured(
            f"{_NAME} does not let us in (HTTP {answer.status}, {said}); set a user and a password, or check the key"
        )

    async def _log_in(self, stale: str) -> str:
        """A new session, unless another task has made one instead of the stale one meanwhile."""
        async with self._login_lock:
            if self._cookie != stale:
                return self._cookie
            if self._was_refused:
                raise TargetMisconfigured(_refused("has refused our user or password before and was not asked again"))
            fields = {"username": self._settings.username, "password": self._settings.password.reveal()}
            answer = await self._caller.call(TargetRequest(path="/api/v2/auth/login", content=form(fields)))
            self._cookie = self._session(answer)
            self._caller.keep_secret([Secret(self._cookie.partition("=")[2])])
            return self._cookie

    def _session(self, answer: Answer) -> str:
        if answer.status in _DENIED or (answer.status == HTTPStatus.OK and answer.body.strip() == b"Fails."):
            # Not tried again: after five failures it bans the address.
            self._was_refused = True
            # Its answer to an address that failed too often.
            is_ban = answer.status == HTTPStatus.FORBIDDEN
            why = "has banned this address after failed logins" if is_ban else "does not accept our user or password"
            raise TargetMisconfigured(_refused(why))
        self._caller.refuse_status(answer)
        cookie = _first_cookie(answer)
        if not cookie:
            raise self._caller.strange(answer)
        return cookie


def _refused(why: str) -> str:
    return f"{_NAME} {why}; check both, and that the address is not banned there, then test the target"


def _first_cookie(answer: Answer) -> str:
    """The session, whatever it is called: SID in old versions, QBT_SID_ and the port in new ones."""
    for line in answer.headers.get_list("Set-Cookie"):
        try:
            morsels = list(SimpleCookie(line).values())
        except CookieError:
            continue
        if morsels and morsels[0].value:
            return f"{morsels[0].key}={morsels[0].coded_value}"
    return ""


def _torrent_in(parcel: Parcel) -> Torrent | None:
    try:
        return read_torrent(parcel.body) if parcel.body else None
    except NotATorrent:
        return None


def _ids(parcel: Parcel, torrent: Torrent | None) -> list[str]:
    """Every name under which qBittorrent may list it: of a hybrid it takes the second version's."""
    if torrent is not None:
        found = [torrent.infohash, torrent.infohash_v2]
    else:
        link = parcel.link or ""
        found = [infohash_of_magnet(link), infohash_v2_of_magnet(link), parcel.infohash]
    return list(dict.fromkeys(each.lower()[:_ID_LENGTH] for each in found if each))


def _is_one_of(torrent: Mapping[str, Any], ids: list[str]) -> bool:
    named = (str(torrent.get(name) or "").lower()[:_ID_LENGTH] for name in ("hash", "infohash_v1", "infohash_v2"))
    return any(name in ids for name in named if name)


_ERROR = "qBittorrent reports an error; its log has the reason, often a full disk or missing rights"
_DONE: Final = (
    "uploading", "stalledUP", "queuedUP", "forcedUP", "checkingUP", "pausedUP", "stoppedUP",
)  # fmt: skip
_RUNNING: Final = (
    "downloading", "metaDL", "forcedMetaDL", "forcedDL", "queuedDL", "checkingDL", "checkingResumeData", "allocating", "moving",
)  # fmt: skip
_STATES: Final[Mapping[str, tuple[ParcelState, str | None]]] = {
    **dict.fromkeys(_DONE, (ParcelState.DONE, None)),
    **dict.fromkeys(_RUNNING, (ParcelState.RUNNING, None)),
    "stalledDL": (ParcelState.RUNNING, "it is stalled: no peer sends anything"),
    # Before Web API 2.11 "stopped" was "paused".
    **dict.fromkeys(("pausedDL", "stoppedDL"), (ParcelState.PRESENT, "it is stopped in qBittorrent")),
    "error": (ParcelState.FAILED, _ERROR),
    "missingFiles": (ParcelState.FAILED, "its files are missing"),
}


def receipt_of_state(state: str, *, torrent_id: str) -> ParcelStatus:
    """What is told of a torrent in this state.

    >>> [receipt_of_state(state, torrent_id="x").standing.value for state in ("stalledUP", "stoppedDL", "error", "new")]
    ['done', 'present', 'failed', 'unknown']
    >>> receipt_of_state("stalledDL", torrent_id="x").is_stalled
    True
    """
    standing, reason = _STATES.get(state, (ParcelState.UNKNOWN, f"its state is {state[:40]!r}"))
    return ParcelStatus(target_id=torrent_id, standing=standing, reason=reason, is_stalled=state == "stalledDL")
