"""What can be done with any target? Give it a parcel, ask it about one, try it out."""

from __future__ import annotations

from typing import Protocol

from cormorant.rules.watch.handovers import Parcel, ParcelKind, ParcelStatus


class Target(Protocol):
    """Something that parcels are handed to. Every failure is a `TargetError`.

    To be cancelled inside `give` leaves it in doubt, as a lost connection does.
    """

    @property
    def takes(self) -> frozenset[ParcelKind]:
        """The kinds of parcels it can take; others are refused."""
        ...

    @property
    def can_be_asked(self) -> bool:
        """Whether `look` can tell if a parcel arrived. If not, giving again may give twice."""
        ...

    async def give(self, parcel: Parcel) -> ParcelStatus:
        """Hand it over. Raises `TargetRefused`, `TargetUnavailable` (surely not arrived) or `TargetInDoubt`."""
        ...

    async def look(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        """What became of it, recognised by its key, its infohash or by `receipt`. Changes nothing."""
        ...

    async def test(self) -> str:
        """Try address and credentials without giving anything; what answered, in words."""
        ...
