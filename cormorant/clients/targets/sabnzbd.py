"""SABnzbd and what its states mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from cormorant.clients.http.transport import Answer, Transport
from cormorant.clients.targets.caller import RequestBody, TargetCaller, TargetRequest, form, multipart
from cormorant.clients.targets.folders import clean_name
from cormorant.clients.targets.target import already_there, refuse_false
from cormorant.rules.ports import Ports
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import (
    Parcel,
    ParcelKind,
    ParcelState,
    ParcelStatus,
    TargetMisconfigured,
    TargetRefused,
)

_NAME: Final = "SABnzbd"
_PATH: Final = "/api"
_LISTED_MAX: Final = "50"
_KEY_WORDS: Final = "api key"
_OF_CATEGORY: Final = "-100"
"""The priority that the category has."""
_PAUSED: Final = "-2"


class Sabnzbd:
    """One SABnzbd, at the address of its page, such as `http://sabnzbd:8080` or with its path `/sabnzbd`.

    The key for NZBs is enough to give, but not to look: use the full one.
    """

    takes: Final = frozenset({ParcelKind.NZB})
    can_be_asked: Final = True

    def __init__(self, settings: TargetSettings, transport: Transport, environment: Ports) -> None:
        self._settings = settings
        self._environment = environment
        self._caller = TargetCaller(_NAME, settings.url, transport, environment.clock, timeout_s=settings.timeout_s)
        self._caller.keep_secret([settings.key])

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Add the file, or have SABnzbd fetch the link, which may still fail: `status` tells."""
        await refuse_false(parcel, self.takes, name=_NAME, offload=self._environment.offload)
        mode = "addurl" if parcel.body is None else "addfile"
        answer = await self._caller.call(
            TargetRequest(path=_PATH, params=_params(mode), content=self._added(parcel), gives=True)
        )
        said = self._understood(answer, gives=True)
        ids = said.get("nzo_ids")
        if said.get("status") is True and isinstance(ids, list) and ids:
            return ParcelStatus(target_id=str(ids[0]), standing=ParcelState.PRESENT)
        if said.get("status") is True:
            # Old versions took some files without naming the job.
            return ParcelStatus(standing=ParcelState.PRESENT)
        return await self._refused(parcel, said)

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        """Where the job stands: in the queue, in the history, or in its archive."""
        job_id = receipt.target_id if receipt is not None else None
        searches = [{"search": parcel.key}] + ([{"nzo_ids": job_id}] if job_id else [])
        for search in searches:
            for mode, more in (("queue", {}), ("history", {}), ("history", {"archive": "1"})):
                for slot in await self._listed(mode, search | more):
                    if _is_ours(slot, parcel.key, job_id):
                        return self._receipt(mode, slot)
        return ParcelStatus(target_id=job_id, standing=ParcelState.ABSENT)

    async def test(self) -> str:
        """Which version answers, once it has accepted our key."""
        await self._listed("queue", {})
        version = self._understood(await self._ask("version", {})).get("version")
        return f"{_NAME} {self._caller.told(str(version))}"

    def _added(self, parcel: Parcel) -> RequestBody:
        priority = _PAUSED if self._settings.paused else _OF_CATEGORY
        fields = {"apikey": self._settings.key.reveal(), "nzbname": job_name(parcel), "priority": priority}
        if self._settings.category:
            fields["cat"] = self._settings.category
        if parcel.body is None:
            return form(fields | {"name": parcel.link or ""})
        return multipart(fields, {"name": (f"{parcel.key}.nzb", parcel.body, "application/x-nzb")})

    async def _refused(self, parcel: Parcel, said: Mapping[str, Any]) -> ParcelStatus:
        """It took nothing: because of its settings, or because it has it already, or cannot read it."""
        reason = self._caller.told(str(said.get("error") or ""))
        if _KEY_WORDS in reason.lower():
            raise TargetMisconfigured(f"{_NAME} does not accept our key ({reason}); check the key")
        receipt = await self.status(parcel, None)
        if receipt.standing is ParcelState.ABSENT:
            raise TargetRefused(f"{_NAME} took nothing: {reason or 'it has had this NZB before, or cannot read it'}")
        return already_there(receipt)

    async def _ask(self, mode: str, fields: Mapping[str, str]) -> Answer:
        # The key goes into the body: addresses end up in the logs of what stands before it.
        content = form({"apikey": self._settings.key.reveal(), **fields})
        return await self._caller.call(TargetRequest(path=_PATH, params=_params(mode), content=content))

    async def _listed(self, mode: str, fields: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        answer = await self._ask(mode, {"start": "0", "limit": _LISTED_MAX, **fields})
        said = self._understood(answer)
        listed = said.get(mode)
        if not isinstance(listed, dict):
            reason = self._caller.told(str(said.get("error") or ""))
            if reason:
                raise TargetMisconfigured(f"{_NAME} does not show its {mode}: {reason}; check the key")
            raise self._caller.strange(answer)
        slots = listed.get("slots")
        return (slot for slot in slots if isinstance(slot, dict)) if isinstance(slots, list) else iter(())

    def _understood(self, answer: Answer, *, gives: bool = False) -> Mapping[str, Any]:
        if answer.status == HTTPStatus.FORBIDDEN:
            raise TargetMisconfigured(_forbidden(self._caller.words(answer)))
        return self._caller.read(answer, dict, gives=gives)

    def _receipt(self, mode: str, slot: Mapping[str, Any]) -> ParcelStatus:
        job_id, status = str(slot.get("nzo_id") or ""), str(slot.get("status") or "")
        if mode == "queue":
            return receipt_of_queue(status, job_id=job_id)
        failure = self._caller.told(str(slot.get("fail_message") or ""))
        return receipt_of_history(status, job_id=job_id, failure=failure)


def _params(mode: str) -> list[tuple[str, str]]:
    return [("mode", mode), ("output", "json")]


def _is_ours(slot: Mapping[str, Any], key: str, job_id: str | None) -> bool:
    """Old versions do not know how to search and list everything."""
    name = str(slot.get("filename") or slot.get("name") or "")
    return is_named(name, key) or (job_id is not None and slot.get("nzo_id") == job_id)


def _forbidden(words: str) -> str:
    if "hostname" in words.lower():
        return f"{_NAME} does not know the name in its address ({words}); add it to host_whitelist there, or use its IP address"
    if "required" in words.lower():
        return f"{_NAME} wants a key ({words}); set its API key"
    return (
        f"{_NAME} does not accept our key ({words or 'without a word'}); check the key, and whether it is the full one"
    )


_TITLE_BYTES_MAX = 150
_WAITING = {"Idle", "Queued", "Propagating"}


def job_name(parcel: Parcel) -> str:
    """A name for the job that holds our key, by which alone it can be recognised.

    What stands in double braces, after a slash or after "password=" SABnzbd would take for a password.

    >>> from cormorant.rules.watch.handovers import ParcelKind
    >>> job_name(Parcel(key="want-7", title="AC/DC {{live}}", kind=ParcelKind.NZB))
    'AC DC live (want-7)'
    """
    bare = parcel.title.replace("{", " ").replace("}", " ").replace("=", " ")
    return f"{clean_name(bare, bytes_max=_TITLE_BYTES_MAX)} ({parcel.key})"


def is_named(name: str, key: str) -> bool:
    """Whether a job has the name of the parcel with this key. SABnzbd may put dots or underscores for spaces.

    >>> is_named("AC_DC_(want-7)", "want-7"), is_named("AC DC (want-71)", "want-7")
    (True, False)
    """
    return f"({key})" in name


def receipt_of_queue(status: str, *, job_id: str) -> ParcelStatus:
    """What is told of a job in the queue.

    >>> receipt_of_queue("Downloading", job_id="x").standing.value, receipt_of_queue("Paused", job_id="x").standing.value
    ('running', 'present')
    """
    if status == "Paused":
        return ParcelStatus(target_id=job_id, standing=ParcelState.PRESENT, reason="it is paused in SABnzbd")
    standing = ParcelState.PRESENT if status in _WAITING else ParcelState.RUNNING
    return ParcelStatus(target_id=job_id, standing=standing)


def receipt_of_history(status: str, *, job_id: str, failure: str) -> ParcelStatus:
    """What is told of a job in the history. `failure` is SABnzbd's own reason, fit to be shown.

    >>> receipt_of_history("Extracting", job_id="x", failure="").standing.value
    'running'
    """
    if status == "Completed":
        return ParcelStatus(target_id=job_id, standing=ParcelState.DONE)
    if status == "Failed":
        why = failure or "SABnzbd gives no reason"
        return ParcelStatus(target_id=job_id, standing=ParcelState.FAILED, reason=why)
    return ParcelStatus(target_id=job_id, standing=ParcelState.RUNNING)
