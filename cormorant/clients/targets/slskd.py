"""Slskd transfers.

Where slskd has no batches yet the older call serves: it is looked first whether the files are already there.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID, uuid5

from cormorant.clients.http.json_api import json_body, segment
from cormorant.clients.http.transport import Answer, Transport
from cormorant.clients.slskd_replies import (
    BUSY_S,
    Transfer,
    read_transfers,
    receipt_of_transfers,
)
from cormorant.clients.targets.caller import RequestBody, TargetCaller, TargetRequest, as_json
from cormorant.clients.targets.target import already_there, refuse_false, settled
from cormorant.rules.json_documents import objects_of, text_of
from cormorant.rules.ports import Ports
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import (
    Parcel,
    ParcelKind,
    ParcelState,
    ParcelStatus,
    TargetRefused,
    TargetUnavailable,
)

FILES_MAX: Final = 1_000

_NAME: Final = "slskd"
_DOWNLOADS: Final = "/api/v0/transfers/downloads"
_BATCHES: Final = f"{_DOWNLOADS}/batches"
# A word that is no id: only a slskd that has batches complains of it by name.
_PROBE: Final = "no-batch-has-this-id"
_KEYS: Final = UUID("6f0a6a3e-5f0b-5d2c-9a53-5b1f0f6d8c11")
_GIVEN: Final = {200, 201, 207, 409}
_NO_ROUTE: Final = {404, 405}
_MAYBE_NO_ROUTE: Final = {400, 415, 500}
_IN_PROGRESS: Final = "already in progress"
_TOLD_MAX: Final = 3


def batch_id_of(key: str) -> str:
    """The id under which slskd knows a parcel: the same for the same key, at every attempt.

    >>> batch_id_of("want-7-1") == batch_id_of("want-7-1") != batch_id_of("want-7-2")
    True
    """
    return str(uuid5(_KEYS, key))


class SlskdTarget:
    """One slskd that fetches what it is told to. Address and key are those of its source."""

    takes: Final = frozenset({ParcelKind.FILES})
    can_be_asked: Final = True
    SETTLE_S = 6.0
    """How long after giving a transfer may still turn up."""

    def __init__(self, settings: TargetSettings, transport: Transport, environment: Ports) -> None:
        self._environment = environment
        self._key = settings.key
        self._caller = TargetCaller(_NAME, settings.url, transport, environment.clock, timeout_s=settings.timeout_s)
        self._caller.keep_secret([settings.key])
        self._has_batches: bool | None = None

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Have the files fetched. What it already has or fetches counts as given."""
        await refuse_false(parcel, self.takes, name=_NAME, offload=self._environment.offload)
        _refuse_empty(parcel)
        if self._has_batches is not False:
            answer = await self._call("POST", _BATCHES, _batch(parcel), gives=True)
            if not await self._lacks_batches(answer):
                return await self._batched(answer, parcel)
        return await self._submit_singly(parcel)

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        """Where its files stand: by their names among all of the peer, else by the batch."""
        _ = receipt
        names = dict.fromkeys(name for name, _ in parcel.files)
        if not parcel.username or not names:
            return ParcelStatus(standing=ParcelState.UNKNOWN, reason="nothing is known by which it could be found")
        transfers = await self._transfers(f"{_DOWNLOADS}/{segment(parcel.username)}")
        if not any(transfer.filename in names for transfer in transfers) and self._has_batches is not False:
            transfers = await self._transfers(f"{_BATCHES}/{batch_id_of(parcel.key)}")
        return receipt_of_transfers(names, transfers, target_id=batch_id_of(parcel.key))

    async def test(self) -> str:
        """Which version answers, and whether it is connected."""
        version = await self._call("GET", "/api/v0/application/version")
        self._caller.refuse_status(version)
        state = self._caller.read(await self._call("GET", "/api/v0/server"), dict)
        said = as_json(version)
        number = self._caller.told(said if isinstance(said, str) else "of an unknown version")
        return f"slskd {number}, {'connected' if state.get('isConnected') is True else 'not connected'} to Soulseek"

    async def _lacks_batches(self, answer: Answer) -> bool:
        """Whether the answer comes from a slskd that took "batches" for a peer's name, or knows no such path."""
        if self._has_batches:
            return False
        if answer.status in _NO_ROUTE and not self._is_about_peer(answer):
            self._has_batches = False
        elif answer.status in _MAYBE_NO_ROUTE:
            probe = await self._call("GET", f"{_BATCHES}/{_PROBE}")
            self._has_batches = _PROBE in self._caller.words(probe)
        elif answer.status in _GIVEN:
            self._has_batches = True
        return self._has_batches is False

    async def _batched(self, answer: Answer, parcel: Parcel) -> ParcelStatus:
        if answer.status == HTTPStatus.CONFLICT:
            return await self._already_there(parcel)
        self._refuse(answer, parcel)
        said = self._caller.read(answer, dict, gives=True)
        failures = [self._caller.told(text_of(failure, "message")) for failure in objects_of(said, "failures")]
        real = [message for message in failures if _IN_PROGRESS not in message.lower()]
        if len(real) >= len(_files(parcel)):
            raise TargetRefused(f"{_NAME} took none of the files: {_some(real)}")
        reason = f"{len(real)} of {len(_files(parcel))} files were not taken: {_some(real)}" if real else None
        if failures and not real:
            reason = "it was already there"
        return ParcelStatus(target_id=batch_id_of(parcel.key), standing=ParcelState.PRESENT, reason=reason)

    async def _submit_singly(self, parcel: Parcel) -> ParcelStatus:
        before = await self.status(parcel, None)
        if before.standing not in {ParcelState.ABSENT, ParcelState.FAILED}:
            return already_there(before)
        path = f"{_DOWNLOADS}/{segment(parcel.username)}"
        answer = await self._call("POST", path, _files(parcel), gives=True)
        self._refuse(answer, parcel)
        said = as_json(answer)
        if isinstance(said, dict) and said.get("failed") and not said.get("enqueued"):
            # It does not say what failed. A file that it already fetches fails, too.
            return await self._already_there(parcel, or_refused="slskd took none of the files; its log has the reason")
        return ParcelStatus(target_id=batch_id_of(parcel.key), standing=ParcelState.PRESENT)

    async def _already_there(self, parcel: Parcel, *, or_refused: str = "") -> ParcelStatus:
        receipt = await settled(partial(self.status, parcel, None), self.SETTLE_S)
        if receipt.standing is not ParcelState.ABSENT:
            return already_there(receipt)
        if or_refused:
            raise TargetRefused(or_refused)
        why = "slskd has had this batch, and lists none of its files any more"
        return ParcelStatus(target_id=batch_id_of(parcel.key), standing=ParcelState.PRESENT, reason=why)

    def _refuse(self, answer: Answer, parcel: Parcel) -> None:
        if answer.status in {HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR} and self._is_about_peer(answer):
            raise TargetRefused(
                f"the peer {parcel.username!r} is offline ({self._words(answer)}); take another candidate"
            )
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise TargetUnavailable(f"{_NAME} is just taking other files", retry_after_s=BUSY_S)
        self._caller.refuse_status(answer, gives=True)

    def _is_about_peer(self, answer: Answer) -> bool:
        return "offline" in self._words(answer).lower()

    def _words(self, answer: Answer) -> str:
        said = as_json(answer)
        return self._caller.told(said) if isinstance(said, str) else self._caller.words(answer)

    async def _transfers(self, path: str) -> list[Transfer]:
        answer = await self._call("GET", path)
        if answer.status == HTTPStatus.NOT_FOUND:
            return []
        self._caller.refuse_status(answer)
        said = await self._environment.offload(as_json, answer)
        if said is None:
            raise self._caller.strange(answer)
        return await self._environment.offload(read_transfers, said)

    async def _call(self, method: str, path: str, value: Any = None, *, gives: bool = False) -> Answer:
        # Also without a body: slskd answers 415 to what does not say that it is JSON.
        content = RequestBody(type="application/json", body=json_body(value))
        headers = {"X-API-Key": self._key.reveal()}
        call = TargetRequest(method=method, path=path, headers=headers, content=content, gives=gives)
        return await self._caller.call(call)


def _refuse_empty(parcel: Parcel) -> None:
    if not parcel.username or not parcel.files or len(parcel.files) > FILES_MAX:
        raise TargetRefused(f"files of a peer need the name of the peer and 1 to {FILES_MAX} files")


def _files(parcel: Parcel) -> list[dict[str, Any]]:
    """Each file once: slskd refuses a batch that names one twice."""
    return [{"filename": name, "size": size} for name, size in dict(parcel.files).items()]


def _batch(parcel: Parcel) -> dict[str, Any]:
    return {"id": batch_id_of(parcel.key), "username": parcel.username, "files": _files(parcel), "options": {}}


def _some(messages: list[str]) -> str:
    return "; ".join(list(dict.fromkeys(message or "without a reason" for message in messages))[:_TOLD_MAX])
