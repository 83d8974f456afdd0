"""What is new in the feeds? Checks those that are due, each host in its turn, and wants what is new."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import trio
from attrs import define, evolve, field, frozen
from sqlalchemy import Connection

from actors.actor import Actor
from actors.reply import Reply
from cormorant.rules.check_statistics import CheckStatistics
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.ports import Clock, Emit
from cormorant.rules.schedules import is_misfire, overdue_delay_s
from cormorant.rules.source_errors import SourceError
from cormorant.rules.subscription_events import (
    SubscriptionChecked,
    SubscriptionFailed,
    SubscriptionMisfired,
    SubscriptionPaused,
    SubscriptionsMaintained,
)
from cormorant.rules.subscription_settings import SubscriptionSettings
from cormorant.rules.subscriptions import (
    Check,
    CheckStatus,
    FeedPage,
    Next,
    Subscription,
    after_check,
    host_of,
    is_wanted,
)
from storage import items, subscriptions
from storage.database import Database

LOOK_S = 60.0
"""How often is looked for what is due, whatever happens."""
CALM_S = 1.0
"""At least so long between two looks."""
QUEUED_FOR_EACH = 8
"""So many wait in hand for each that may run."""
CLAIM_SPARE_S = 600.0
RELEASE_S = 0.4
ADAPTED_BY = 10
"""So many of the last checks say how busy a feed is."""
MAINTENANCE_S = 3_600.0
PAGE = 500
HOSTS_MAX = 10_000
"""So many hosts are remembered by when they were asked last."""


@frozen(kw_only=True)
class CheckNow:
    """Command: check this subscription now. One that is being checked is joined. Answered with what came of it."""

    number: int
    reply: Reply[Check]


@define(eq=False, kw_only=True)
class SubscriptionTicker(Actor[CheckNow]):
    """Scheduled and manual checks go one way."""

    database: Database
    configured: Sequence[Subscription]
    fetch: Callable[[Subscription], Awaitable[FeedPage]]
    """Raises `SourceError`."""
    take: Callable[..., int]
    """A statement: items of a subscription are wanted; how many of them are new."""
    is_paused: Callable[[Connection], bool]
    options: SubscriptionSettings
    statistics: CheckStatistics
    ring: Callable[[], None]
    clock: Clock
    emit: Emit
    _has_configured: bool = field(init=False, default=False)
    _lanes: dict[str, deque[Subscription]] = field(init=False, factory=dict)
    _asked_at: dict[str, float] = field(init=False, factory=dict)
    _waiting: dict[int, list[Reply[Check]]] = field(init=False, factory=dict)
    """Whom the end of a check is told, by subscription."""
    _in_hand: dict[int, Subscription] = field(init=False, factory=dict)
    active: set[int] = field(init=False, factory=set)
    _slots: trio.CapacityLimiter = field(init=False)
    _scopes: set[trio.CancelScope] = field(init=False, factory=set)
    _maintained_at: float = field(init=False, default=-math.inf)

    def __attrs_post_init__(self) -> None:
        together = min(self.options.max_concurrent_checks, self.options.max_concurrent_domains)
        self._slots = trio.CapacityLimiter(together)

    async def begin(self) -> None:
        """Begin at once."""
        self.wake_at = trio.current_time()

    async def handle(self, message: CheckNow) -> None:
        """Check one now, or join the check that runs."""
        number, now = message.number, self.clock.now()
        if number in self._in_hand:
            self._waiting.setdefault(number, []).append(message.reply)
            return
        try:
            claimed = await self.database.run(subscriptions.claim_one, number, now=now, until=self._until(now))
        except (StorageUnavailable, CommitUnknown) as away:
            message.reply.refuse(away)
            return
        if claimed is None:
            message.reply.refuse(subscriptions.CheckedElsewhere(number))
            return
        self._take_in(claimed, message.reply, is_first=True)

    async def wake(self) -> None:
        """Take in hand what is due and there is room for."""
        self.wake_at = trio.current_time() + LOOK_S
        try:
            await self._look()
        except (StorageUnavailable, CommitUnknown):
            return

    async def end(self) -> None:
        """Checks that run are cancelled: they did not happen, and are due as before."""
        for scope in self._scopes:
            scope.cancel()
        if self._in_hand:
            with trio.move_on_after(RELEASE_S):
                await self.database.run(subscriptions.release, list(self._in_hand.values()))

    async def _look(self) -> None:
        if not self._has_configured:
            await self.database.run(subscriptions.set_configured, self.configured)
            self._has_configured = True
        if await self.database.read(self.is_paused):
            return
        now = self.clock.now()
        room = self.options.max_concurrent_checks * QUEUED_FOR_EACH - len(self._in_hand)
        due = []
        if room > 0:
            due = await self.database.run(subscriptions.claim, now=now, until=self._until(now), limit=room)
        late = [each for each in due if self._is_to_be_spread(each, now)]
        if late:
            await self.database.run(_spread, late, now=now)
        for each in due:
            if each not in late:
                self._tell_late(each, now)
                self._take_in(each, None)
        await self._plan(is_full=room > 0 and len(due) == room)
        await self._maintain()

    async def _plan(self, *, is_full: bool) -> None:
        """When to look next: when the next is due, and at least now and then. A full hand looks when it has room."""
        if is_full:
            self.wake_at = trio.current_time() + CALM_S
            return
        upcoming = await self.database.read(subscriptions.next_due)
        if upcoming is not None:
            wait_s = (upcoming - self.clock.now()).total_seconds()
            self.wake_at = trio.current_time() + min(LOOK_S, max(CALM_S, wait_s))

    def _is_to_be_spread(self, each: Subscription, now: datetime) -> bool:
        """After a long sleep hundreds are overdue at once: each waits its share of a minute. New ones do not."""
        return each.last_checked is not None and (now - each.next_check_at).total_seconds() > 2 * LOOK_S

    def _tell_late(self, each: Subscription, now: datetime) -> None:
        grace_s = self.options.misfire_grace_s
        if each.last_checked is not None and is_misfire(due=each.next_check_at, now=now, grace_s=grace_s):
            late_s = (now - each.next_check_at).total_seconds()
            self.emit(SubscriptionMisfired(subscription=each.name, late_s=round(late_s, 3)))

    def _until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.options.check_timeout_s * QUEUED_FOR_EACH + CLAIM_SPARE_S)

    def _take_in(self, each: Subscription, reply: Reply[Check] | None, *, is_first: bool = False) -> None:
        self._in_hand[each.id] = each
        if reply is not None:
            self._waiting[each.id] = [reply]
        host = host_of(each.url)
        lane = self._lanes.get(host)
        if lane is not None:
            (lane.appendleft if is_first else lane.append)(each)
            return
        self._lanes[host] = deque([each])
        self.nursery.start_soon(self._serve, host)

    async def _serve(self, host: str) -> None:
        """One host: one check at a time, apart from each other. Its turn comes before a slot, so that it waits alone."""
        lane = self._lanes[host]
        subscription = lane[0]
        try:
            with trio.CancelScope() as scope:
                self._scopes.add(scope)
                while lane:
                    ready_at = self._asked_at.get(host, -math.inf) + self.options.domain_request_delay_s
                    await trio.sleep_until(max(ready_at, trio.current_time()))
                    async with self._slots:
                        subscription = lane.popleft()
                        await self._check(subscription)
                    self._asked_at[host] = trio.current_time()
            self._scopes.discard(scope)
        except (StorageUnavailable, CommitUnknown) as away:
            self._give_up([subscription, *lane], away)
        finally:
            self._lanes.pop(host, None)
            while len(self._asked_at) > HOSTS_MAX:
                self._asked_at.pop(next(iter(self._asked_at)))

    def _give_up(self, left: Sequence[Subscription], away: Exception) -> None:
        """The database is away: what is in hand is due again when its claim has run out."""
        for each in left:
            self._in_hand.pop(each.id, None)
            for reply in self._waiting.pop(each.id, ()):
                reply.refuse(away)

    async def _check(self, subscription: Subscription) -> None:
        began, started_at = trio.current_time(), self.clock.now()
        self.active.add(subscription.id)
        page, error = FeedPage(is_unchanged=True), None
        try:
            with trio.fail_after(self.options.check_timeout_s):
                page = await self.fetch(subscription)
        except trio.TooSlowError:
            error = f"no answer in full within {self.options.check_timeout_s:g} s"
        except SourceError as trouble:
            error = str(trouble) or type(trouble).__name__
        finally:
            self.active.discard(subscription.id)
        duration_ms = round((trio.current_time() - began) * 1_000)
        check = Check(
            subscription_id=subscription.id,
            started_at=started_at,
            status=CheckStatus.FAILED if error else CheckStatus.SUCCESS,
            items_found=len(page.items),
            duration_ms=duration_ms,
            error=error,
        )
        done, imported, following = await self.database.run(
            self._write, subscription, page, check, now=self.clock.now()
        )
        self._tell(subscription, done, imported, following)

    def _write(
        self, connection: Connection, subscription: Subscription, page: FeedPage, check: Check, *, now: datetime
    ) -> tuple[Check, int, Next | None]:
        """What was new and what it is wanted for, together: otherwise a crash in between would lose it."""
        is_first = subscription.last_success is None and not subscription.takes_first
        new = items.take_in(connection, subscription.id, page.items, now=now)
        counted = 0 if is_first else len(new)
        done = evolve(check, new_items=counted)
        recent = subscriptions.recent_new(connection, subscription.id, limit=ADAPTED_BY - 1)
        following = after_check(subscription, error=check.error, recent_new=[counted, *recent], now=now)
        is_ours = subscriptions.end_check(
            connection,
            subscription,
            following,
            check=done,
            etag=subscription.etag if page.is_unchanged else page.etag,
            last_modified=subscription.last_modified if page.is_unchanged else page.last_modified,
            url=page.moved_to,
        )
        if not is_ours or is_first or not subscription.auto_import:
            return done, 0, following if is_ours else None
        wanted = [item for item in new if is_wanted(item, subscription)]
        return done, self.take(connection, subscription, wanted, now=now), following

    def _tell(self, subscription: Subscription, check: Check, imported: int, following: Next | None) -> None:
        is_ok = check.status is CheckStatus.SUCCESS
        self.statistics.record(
            at=check.started_at,
            success=is_ok,
            duration_ms=check.duration_ms,
            items_found=check.items_found,
            new_items=check.new_items,
        )
        if is_ok:
            self.emit(
                SubscriptionChecked(
                    subscription=subscription.name,
                    items_found=check.items_found,
                    new_items=check.new_items,
                    imported=imported,
                    duration_ms=check.duration_ms,
                )
            )
        else:
            self.emit(
                SubscriptionFailed(
                    subscription=subscription.name,
                    failures=subscription.failures + 1,
                    error=check.error or "",
                    duration_ms=check.duration_ms,
                )
            )
        if following is not None and following.paused_because is not None:
            self.emit(SubscriptionPaused(subscription=subscription.name, why=following.paused_because))
        if imported:
            self.ring()
        self._in_hand.pop(subscription.id, None)
        for reply in self._waiting.pop(subscription.id, ()):
            reply.answer(check)

    async def _maintain(self) -> None:
        """Once an hour: forget old records, and tell how many there are."""
        if trio.current_time() < self._maintained_at + MAINTENANCE_S:
            return
        self._maintained_at = trio.current_time()
        before = self.clock.now() - timedelta(seconds=self.options.keep_checks_s)
        pruned = await self.database.run(subscriptions.prune_checks, before=before, limit=PAGE)
        total, _ = await self.database.read(subscriptions.count)
        self.emit(SubscriptionsMaintained(scheduled_jobs=total, active_checks=len(self.active), pruned=pruned))


def _spread(connection: Connection, late: Sequence[Subscription], *, now: datetime) -> None:
    for each in sorted(late, key=lambda subscription: subscription.id):
        subscriptions.reschedule(connection, each.id, now + timedelta(seconds=overdue_delay_s(each.id)))
    subscriptions.release(connection, late)
