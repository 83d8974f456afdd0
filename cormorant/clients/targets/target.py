"""The Target protocol and the check of a parcel's content."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

import attrs
import trio

from cormorant.clients.files import NotAnNzb, NotATorrent, Torrent, read_nzb, read_torrent
from cormorant.rules.ports import Offload
from cormorant.rules.search.outcomes import SourceError
from cormorant.rules.watch.handovers import Parcel, ParcelKind, ParcelState, ParcelStatus, TargetRefused


class Target(Protocol):
    """Something that parcels are handed to. Every failure is a `TargetError`.

    To be cancelled inside `submit` leaves it in doubt, as a lost connection does.
    """

    @property
    def takes(self) -> frozenset[ParcelKind]:
        """The kinds of parcels it can take; others are refused."""
        ...

    @property
    def can_be_asked(self) -> bool:
        """Whether `status` can tell if a parcel arrived. If not, giving again may give twice."""
        ...

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Hand it over. Raises `TargetRefused`, `TargetUnavailable` (surely not arrived) or `TargetInDoubt`."""
        ...

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        """What became of it, recognised by its key, its infohash or by `receipt`. Changes nothing."""
        ...

    async def test(self) -> str:
        """Try address and credentials without giving anything; what answered, in words."""
        ...


def already_there(found: ParcelStatus) -> ParcelStatus:
    """What is found of a parcel that was not given, because the target has it."""
    return attrs.evolve(found, reason=found.reason or "it was already there")


async def settled(look: Callable[[], Awaitable[ParcelStatus]], settle_s: float) -> ParcelStatus:
    """What `look` finds of a parcel that was given just before: it shows up late."""
    found = await look()
    if found.standing is not ParcelState.ABSENT:
        return found
    await trio.sleep(settle_s)
    return await look()


async def refuse_false(parcel: Parcel, takes: Collection[ParcelKind], *, name: str, offload: Offload) -> Torrent | None:
    """Raise `TargetRefused` unless a target of these kinds may get the parcel; of a torrent, what identifies it."""
    if parcel.kind not in takes:
        known = ", ".join(sorted(kind.value for kind in takes))
        raise TargetRefused(f"{name} takes no {parcel.kind.value}, only {known}; choose another target")
    if parcel.kind is ParcelKind.MAGNET and not (parcel.link or "").lower().startswith("magnet:?"):
        raise TargetRefused("what should be a magnet link is none, and is not handed over")
    if parcel.kind is ParcelKind.URL and not (parcel.link or "").lower().startswith(("http://", "https://")):
        raise TargetRefused("the link leads neither to http nor to https, and is not handed over")
    return await offload(_content, parcel)


def _content(parcel: Parcel) -> Torrent | None:
    try:
        if parcel.kind is ParcelKind.TORRENT:
            return read_torrent(parcel.body or b"")
        if parcel.kind is ParcelKind.NZB and (parcel.body is not None or parcel.link is None):
            read_nzb(parcel.body or b"")
    except (NotATorrent, NotAnNzb, SourceError) as error:
        raise TargetRefused(f"what should be a {parcel.kind.value} is none, and is not handed over: {error}") from error
    return None
