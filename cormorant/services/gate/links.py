"""When was a link of ours first given out? Written down in the database, but not anew for every app that asks within the hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from attrs import define, field

from cormorant.rules.ports import Clock
from cormorant.rules.web_requests import LruCache
from storage import gate
from storage.database import Database
from storage.gate import GateLink

__all__ = ["DownloadLinks"]

_AGAIN: Final = timedelta(hours=1)
"""Links are kept for 60 days after they were last given out: an hour more or less is no matter."""
_KEPT_MAX: Final = 20_000


@define(eq=False, kw_only=True)
class DownloadLinks:
    """Remembers links for later downloads."""

    database: Database
    clock: Clock
    _known: LruCache[tuple[datetime, datetime]] = field(init=False, factory=lambda: LruCache(_KEPT_MAX))
    """When each was first given out, and when that was last written down."""

    async def first_seen(self, links: Sequence[GateLink]) -> Mapping[str, datetime]:
        """When each was first given out, by its short name; all of them are kept from now on."""
        now = self.clock.now()
        known = {link.ref: self._known.get(link.ref) for link in links}
        stale = [link for link in links if not _is_fresh(known[link.ref], now)]
        seen = await self.database.run(gate.remember, stale, now=now) if stale else {}
        for ref, first in seen.items():
            self._known.put(ref, (first, now))
        return {ref: found[0] for ref, found in known.items() if found is not None} | dict(seen)


def _is_fresh(found: tuple[datetime, datetime] | None, now: datetime) -> bool:
    return found is not None and timedelta(0) <= now - found[1] < _AGAIN
