"""May this app ask this source? Not when it has used its part of what the source allows; what is kept is for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, frozen

from cormorant.rules.limits import Lane
from cormorant.rules.outcomes import Outcome, OutcomeStatus
from cormorant.rules.priorities import Priority
from cormorant.rules.searches import SearchRequest, search_key
from cormorant.rules.shares import ShareUsedUp, share_opens_at, share_windows
from cormorant.rules.web_settings import ClientSettings
from cormorant.web.port import WebParts
from storage import cache, spending

__all__ = ["Client", "Shares"]


@frozen(kw_only=True)
class Client:
    """An app that asks."""

    name: str
    settings: ClientSettings


@define(eq=False)
class Shares:
    """The parts of quotas that apps may use."""

    parts: WebParts

    async def refusals(self, client: Client, request: SearchRequest, names: Sequence[str]) -> Mapping[str, Outcome]:
        """The sources that may not be asked for this search, unless what they answered lately is still there."""
        refused: dict[str, Outcome] = {}
        for name in names:
            refusal = await self.refusal(client, name, lane=Lane.QUERY, priority=client.settings.rank)
            if refusal is not None and not await self._is_kept(request, name):
                refused[name] = refusal
        return refused

    async def refusal(self, client: Client, name: str, *, lane: Lane, priority: Priority) -> Outcome | None:
        """Why the app may not ask a source now; None: it may."""
        desk = self.parts.searches.desks.by_name.get(name)
        if desk is None:
            return None
        limits = desk.record.limits if desk.known is None else desk.known.limits
        windows = share_windows(limits, lane, client.settings.share)
        if not windows:
            return None
        numbers = sorted({window.limit for window in windows})
        spent = await self.parts.database.read(spending.nth_latest, desk.record.id, lane, client.name, numbers)
        now = self.parts.clock.now()
        opens_at = share_opens_at(windows, spent, now=now)
        if opens_at is None:
            return None
        wait_s = (opens_at - now).total_seconds()
        error = ShareUsedUp(name, wait_s=wait_s, max_wait_s=client.settings.hold_s, priority=priority)
        return Outcome(job_id=0, source=name, status=OutcomeStatus.RATE_LIMITED, error=error)

    async def _is_kept(self, request: SearchRequest, name: str) -> bool:
        desk = self.parts.searches.desks.by_name[name]
        now = self.parts.clock.now()
        return bool(await self.parts.database.read(cache.find, [desk.record.id], search_key(request), now=now))
