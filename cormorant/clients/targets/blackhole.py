"""Watched folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cormorant.clients.targets.folders import Folder, PlacedFile, clean_name
from cormorant.clients.targets.target import refuse_false
from cormorant.rules.ports import Offload
from cormorant.rules.watch.handovers import Parcel, ParcelKind, ParcelState, ParcelStatus

_ENDINGS: Final = {ParcelKind.TORRENT: ".torrent", ParcelKind.NZB: ".nzb", ParcelKind.MAGNET: ".magnet"}
# What clients append to a file that they could not use.
_REJECTED: Final = (".qbt_rejected", ".invalid")


class Blackhole:
    """One watched folder. It has no way to say no: a file that stays there is one that nobody wanted."""

    can_be_asked: Final = True

    def __init__(self, folder: Path, *, offload: Offload, allows_magnets: bool = False) -> None:
        magnets = {ParcelKind.MAGNET} if allows_magnets else set()
        self.takes = frozenset({ParcelKind.TORRENT, ParcelKind.NZB} | magnets)
        self._folder = Folder(folder, offload)
        self._offload = offload

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Write it under its title. What was given before is not given again, also when it was taken since."""
        await refuse_false(parcel, self.takes, name="this folder", offload=self._offload)
        return await self._folder.in_thread(self._place, parcel)

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:  # noqa: ARG002 - the note holds all
        """Whether it lies there, was taken, or never came."""
        return await self._folder.in_thread(self._look, parcel)

    async def test(self) -> str:
        """Write a file and remove it."""
        return await self._folder.test()

    def _place(self, parcel: Parcel) -> ParcelStatus:
        if self._folder.find(parcel.key) is not None:
            return self._look(parcel)
        content = parcel.body if parcel.body is not None else (parcel.link or "").encode()
        part = self._folder.begin(parcel.key)
        try:
            part.write(content)
            part.finish()
            path = self._folder.place(part, [clean_name(parcel.title)], _ENDINGS[parcel.kind])
        finally:
            part.drop()
        return ParcelStatus(target_id=path.name, standing=ParcelState.PRESENT)

    def _look(self, parcel: Parcel) -> ParcelStatus:
        placed = self._folder.find(parcel.key)
        return ParcelStatus(standing=ParcelState.ABSENT) if placed is None else _receipt(placed)


def _receipt(placed: PlacedFile) -> ParcelStatus:
    name = placed.path.name
    if placed.is_there:
        return ParcelStatus(
            target_id=name, standing=ParcelState.PRESENT, reason="it has not been taken from the folder yet"
        )
    for ending in _REJECTED:
        if placed.path.with_name(f"{name}{ending}").exists():
            return ParcelStatus(
                target_id=name, standing=ParcelState.FAILED, reason=f"the client renamed it to {ending}"
            )
    return ParcelStatus(target_id=name, standing=ParcelState.DONE, reason="it was taken from the folder")
