"""Shares: refuses an app that has used its share of a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs
import trio
from attrs import define, field, frozen

from actors.environment import Environment
from cormorant.rules.search.limits import Lane, Window
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest, search_key
from cormorant.rules.search.shares import ShareUsedUp, share_opens_at, share_windows
from cormorant.rules.settings.service import ClientSettings
from cormorant.services.searches import Searches
from storage.search import answers, source_views
from storage.search.sources import SourceRecord

__all__ = ["AppShare", "ShareClaim", "Shares"]

_SOON_S: Final = 1.0


@frozen(kw_only=True)
class AppShare:
    """An app that asks."""

    name: str
    settings: ClientSettings


@define(eq=False)
class _ShareClaims:
    """The requests of one app at one source that may yet be spent."""

    count: int = 0
    turn: trio.Lock = field(factory=trio.Lock)
    changed: trio.Event = field(factory=trio.Event)


@define(eq=False)
class ShareClaim:
    """The right to make one request, until it is given back."""

    _among: _ShareClaims | None = None
    """None: nobody counts."""

    def release(self) -> None:
        """Give it back: what became of it is in the database, if anything."""
        claims, self._among = self._among, None
        if claims is not None:
            claims.count -= 1
            claims.changed.set()
            claims.changed = trio.Event()


@define(eq=False, kw_only=True)
class Shares:
    """The parts of quotas that apps may use.

    Who may ask claims it first: of two requests at the same moment the second must not take what only one may have.
    """

    environment: Environment = field(kw_only=False)
    searches: Searches
    _claims: dict[tuple[str, str, Lane], _ShareClaims] = field(init=False, factory=dict)

    async def claim_all(
        self, client: AppShare, request: SearchRequest, names: Sequence[str], *, until: float
    ) -> Mapping[str, ShareClaim | Outcome]:
        """Claim a search at each source: the claim, or why it may not be asked. What it answered lately needs no claim.

        Only for a single source it is waited until others of the app have ended: of several some will do.
        """
        found: dict[str, ShareClaim | Outcome] = {}
        is_whole = False
        try:
            for name in names:
                deadline = until if len(names) == 1 else trio.current_time()
                claim = await self.claim(client, name, lane=Lane.QUERY, priority=client.settings.rank, until=deadline)
                found[name] = claim
                if isinstance(claim, Outcome) and await self._is_kept(request, name):
                    found[name] = ShareClaim()
            is_whole = True
            return found
        finally:
            if not is_whole:  # the app has gone, or the database: nobody else would give them back
                for each in found.values():
                    if isinstance(each, ShareClaim):
                        each.release()

    async def claim(
        self, client: AppShare, name: str, *, lane: Lane, priority: Priority, until: float
    ) -> ShareClaim | Outcome:
        """Claim a request, or why the app may not ask a source now. Waits while its own requests may use up the rest."""
        requests = self.searches.directory.by_name.get(name)
        if requests is None:
            return ShareClaim()
        limits = requests.record.limits if requests.known is None else requests.known.limits
        windows = share_windows(limits, lane, client.settings.share)
        if not windows:
            return ShareClaim()
        claims = self._claims.setdefault((client.name, name, lane), _ShareClaims())
        while True:
            async with claims.turn:
                now = self.environment.now()
                opens_at = await self._opens_at(requests.record, client, lane, windows, now=now)
                if opens_at is not None:
                    return _refusal(client, name, priority, wait_s=(opens_at - now).total_seconds())
                left = [attrs.evolve(each, limit=each.limit - claims.count) for each in windows]
                if all(each.limit > 0 for each in left):
                    later = await self._opens_at(requests.record, client, lane, left, now=now) if claims.count else None
                    if later is None:
                        claims.count += 1
                        return ShareClaim(claims)
                changed = claims.changed
            with trio.CancelScope(deadline=until) as scope:
                await changed.wait()
            if scope.cancelled_caught:
                return _refusal(client, name, priority, wait_s=_SOON_S)

    async def _opens_at(
        self, record: SourceRecord, client: AppShare, lane: Lane, windows: Sequence[Window], *, now: datetime
    ) -> datetime | None:
        numbers = sorted({window.limit for window in windows})
        spent = await self.environment.database.read(source_views.nth_latest, record.id, lane, client.name, numbers)
        return share_opens_at(windows, spent, now=now)

    async def _is_kept(self, request: SearchRequest, name: str) -> bool:
        requests = self.searches.directory.by_name[name]
        now = self.environment.now()
        return bool(
            await self.environment.database.read(
                answers.find_cached, [requests.record.id], search_key(request), now=now
            )
        )


def _refusal(client: AppShare, name: str, priority: Priority, *, wait_s: float) -> Outcome:
    error = ShareUsedUp(name, wait_s=wait_s, max_wait_s=client.settings.hold_s, priority=priority)
    return Outcome(job_id=0, source=name, status=OutcomeStatus.RATE_LIMITED, error=error)
