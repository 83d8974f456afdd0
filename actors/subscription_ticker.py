"""What is new in the feeds? Checks those that are due, each host in its turn, and wants what is new."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import trio
from attrs import define, field, frozen
from sqlalchemy import Connection

from actors.actor import Actor
from actors.check_ending import CheckEnding
from actors.reply import Reply
from cormorant.rules.check_statistics import CheckStatistics
from cormorant.rules.errors import CommitUnknown, CormorantError, MailboxFull, StorageUnavailable
from cormorant.rules.ports import Clock, Emit
from cormorant.rules.redaction import keys_in, told
from cormorant.rules.schedules import is_misfire
from cormorant.rules.source_errors import SourceError
from cormorant.rules.subscription_events import SubscriptionMisfired, SubscriptionsMaintained, events_of
from cormorant.rules.subscription_settings import SubscriptionSettings
from cormorant.rules.subscriptions import Check, CheckStatus, FeedPage, Next, Subscription, host_of
from storage import subscription_checks, subscriptions
from storage.database import Database

LOOK_S = 60.0
"""How often is looked for what is due, whatever happens."""
CALM_S = 1.0
"""At least so long between two looks."""
QUEUED_FOR_EACH = 8
"""So many wait in hand for each that may run."""
HAND_MAX = 1_000
"""With checks by hand no more than so many wait."""
CLAIM_SPARE_S = 600.0
STALE_S = 10.0
"""Who has waited so long for its host may have been paused, changed or removed meanwhile."""
ERROR_MAX = 500
RELEASE_S = 0.4
ASLEEP_LOOKS = 2
"""Who has missed so many looks has slept: what came due meanwhile is spread out."""
SPREAD_PAGES = 20
MAINTENANCE_S = 3_600.0
PAGE = 500
HOSTS_MAX = 10_000
"""So many hosts are remembered by when they were asked last."""


@frozen(kw_only=True)
class CheckNow:
    """Command: check this subscription now. One that is being checked is joined. Answered with what came of it."""

    number: int
    reply: Reply[Check]


@frozen
class _Held:
    """One in hand, and until when it is ours."""

    subscription: Subscription
    until: datetime


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
    look_s: float = LOOK_S
    _has_configured: bool = field(init=False, default=False)
    _lanes: dict[str, deque[int]] = field(init=False, factory=dict)
    """Who waits for its host."""
    _asked_at: dict[str, float] = field(init=False, factory=dict)
    _waiting: dict[int, list[Reply[Check]]] = field(init=False, factory=dict)
    """Whom the end of a check is told, by subscription."""
    _in_hand: dict[int, _Held] = field(init=False, factory=dict)
    active: dict[int, datetime] = field(init=False, factory=dict)
    """Those that are being checked, and since when."""
    _slots: trio.CapacityLimiter = field(init=False)
    _ending: CheckEnding = field(init=False)
    _looked_at: datetime | None = field(init=False, default=None)
    _overdue_before: datetime | None = field(init=False, default=None)
    """What was due before this is to be spread out; None: that is done."""
    _maintained_at: float = field(init=False, default=-math.inf)

    def __attrs_post_init__(self) -> None:
        together = min(self.options.max_concurrent_checks, self.options.max_concurrent_domains)
        self._slots = trio.CapacityLimiter(together)
        self._ending = CheckEnding(take=self.take)

    async def begin(self) -> None:
        """Begin at once."""
        self.wake_at = trio.current_time()

    async def handle(self, message: CheckNow) -> None:
        """Check one now, or join the check that runs."""
        number, now = message.number, self.clock.now()
        if number in self._in_hand:
            self._join(number, message.reply)
            return
        if len(self._in_hand) >= HAND_MAX:
            message.reply.refuse(MailboxFull("subscription_ticker", HAND_MAX))
            return
        until = self._until(now)
        try:
            claimed = await self.database.run(subscriptions.claim_one, number, now=now, until=until)
        except (StorageUnavailable, CommitUnknown) as away:
            message.reply.refuse(away)
            return
        if claimed is None:
            message.reply.refuse(subscriptions.CheckedElsewhere(number))
            return
        self._waiting[number] = [message.reply]
        self._take_in(_Held(claimed, until), is_first=True)

    def _join(self, number: int, reply: Reply[Check]) -> None:
        """Someone waits for it: it is next at its host, unless it is being checked."""
        others = [each for each in self._waiting.get(number, ()) if not each.abandoned]
        self._waiting[number] = [*others, reply]
        lane = self._lanes.get(host_of(self._in_hand[number].subscription.url), deque())
        if number in lane:
            lane.remove(number)
            lane.appendleft(number)

    async def wake(self) -> None:
        """Take in hand what is due and there is room for."""
        self.wake_at = trio.current_time() + self.look_s
        try:
            await self._look()
        except (StorageUnavailable, CommitUnknown):
            return

    async def end(self) -> None:
        """Checks that run are cancelled: they did not happen, and are due as before."""
        self.nursery.cancel_scope.cancel()
        if self._in_hand:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + RELEASE_S):
                await self._release()

    async def _release(self) -> None:
        held = [each.subscription for each in self._in_hand.values()]
        try:
            await self.database.run(subscriptions.release, held)
        except (StorageUnavailable, CommitUnknown):
            return  # they are free when their claims have run out

    async def _look(self) -> None:
        if not self._has_configured:
            await self.database.run(subscriptions.set_configured, self.configured)
            self._has_configured = True
        is_paused, upcoming = await self.database.read(self._outlook)
        if is_paused:
            return
        now = self.clock.now()
        if self._looked_at is not None and now < self._looked_at:
            self._maintained_at = -math.inf  # the clock was set back: what it put off is not to wait for an hour
        asleep_s = ASLEEP_LOOKS * self.look_s
        if self._looked_at is None or (now - self._looked_at).total_seconds() > asleep_s:
            self._overdue_before = now - timedelta(seconds=asleep_s)
        self._looked_at = now
        if self._overdue_before is not None and not await self._spread(self._overdue_before, now):
            self.wake_at = trio.current_time() + CALM_S
            return
        if upcoming is not None and upcoming <= now:
            await self._take_due(now)
            _, upcoming = await self.database.read(self._outlook)
        if upcoming is not None:
            wait_s = (upcoming - self.clock.now()).total_seconds()
            self.wake_at = trio.current_time() + min(self.look_s, max(CALM_S, wait_s))
        await self._maintain()

    def _outlook(self, connection: Connection) -> tuple[bool, datetime | None]:
        return self.is_paused(connection), subscriptions.next_due(connection, now=self.clock.now())

    async def _take_due(self, now: datetime) -> None:
        room = self.options.max_concurrent_checks * QUEUED_FOR_EACH - len(self._in_hand)
        if room <= 0:
            return
        until = self._until(now)
        for each in await self.database.run(subscriptions.claim, now=now, until=until, limit=room):
            self._tell_late(each.name, each.next_check_at, now)
            self._take_in(_Held(each, until))

    async def _spread(self, before: datetime, now: datetime) -> bool:
        """After a long sleep many are overdue at once: each waits its share of a minute. True: all do now."""
        for _ in range(SPREAD_PAGES):
            late = await self.database.run(subscriptions.spread_overdue, before=before, now=now, limit=PAGE)
            for name, due in late:
                self._tell_late(name, due, now)
            if len(late) < PAGE:
                self._overdue_before = None
                return True
        return False

    def _tell_late(self, name: str, due: datetime, now: datetime) -> None:
        if is_misfire(due=due, now=now, grace_s=self.options.misfire_grace_s):
            self.emit(SubscriptionMisfired(subscription=name, late_s=round((now - due).total_seconds(), 3)))

    def _until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.options.check_timeout_s + CLAIM_SPARE_S)

    def _take_in(self, held: _Held, *, is_first: bool = False) -> None:
        """Let one wait for its host. One that is in hand, and was free by a jump of the clock, keeps its place."""
        number = held.subscription.id
        is_there = number in self._in_hand
        self._in_hand[number] = held
        if is_there:
            return
        host = host_of(held.subscription.url)
        lane = self._lanes.get(host)
        if lane is not None:
            (lane.appendleft if is_first else lane.append)(number)
            return
        self._lanes[host] = deque([number])
        self.nursery.start_soon(self._serve, host)

    async def _serve(self, host: str) -> None:
        """One host: one check at a time, apart from each other. Its turn comes before a slot, so that it waits alone."""
        lane = self._lanes[host]
        number = lane[0]
        try:
            while lane:
                ready_at = self._asked_at.get(host, -math.inf) + self.options.domain_request_delay_s
                await trio.sleep_until(max(ready_at, trio.current_time()))
                async with self._slots:
                    number = lane.popleft()
                    try:
                        await self._check_held(number)
                    finally:
                        self._note_asked(host)
        except (StorageUnavailable, CommitUnknown) as away:
            # What is in hand is due again when its claim has run out.
            for each in (number, *lane):
                self._let_go(each, away)
        finally:
            del self._lanes[host]

    def _note_asked(self, host: str) -> None:
        self._asked_at.pop(host, None)
        self._asked_at[host] = trio.current_time()
        while len(self._asked_at) > HOSTS_MAX:
            self._asked_at.pop(next(iter(self._asked_at)))

    def _let_go(self, number: int, what: Check | CormorantError) -> None:
        """It is no longer in hand; who waits for it is told."""
        self._in_hand.pop(number, None)
        for reply in self._waiting.pop(number, ()):
            if isinstance(what, Check):
                reply.answer(what)
            else:
                reply.refuse(what)

    async def _check_held(self, number: int) -> None:
        try:
            await self._keep_hold(number)
            await self._check(self._in_hand[number].subscription)
        except subscriptions.CheckedElsewhere as lost:
            self._let_go(number, lost)

    async def _keep_hold(self, number: int) -> None:
        """Who waited long for its host might be another's in the middle of the check, or is so already, or unwanted."""
        held, now = self._in_hand[number], self.clock.now()
        until = self._until(now)
        if 0 <= (until - held.until).total_seconds() < STALE_S:
            return
        if not await self.database.run(self._renew, held.subscription, until=until):
            raise subscriptions.CheckedElsewhere(number)
        self._in_hand[number] = _Held(self._in_hand[number].subscription, until)

    def _renew(self, connection: Connection, subscription: Subscription, *, until: datetime) -> bool:
        """False: it is another's, or it or all is paused meanwhile, and it is given back."""
        is_by_hand = subscription.id in self._waiting
        try:
            if is_by_hand or not self.is_paused(connection):
                subscriptions.renew(connection, subscription, until=until, even_paused=is_by_hand)
                return True
        except subscriptions.CheckedElsewhere:
            pass
        subscriptions.release(connection, [subscription])
        return False

    async def _check(self, subscription: Subscription) -> None:
        began, started_at = trio.current_time(), self.clock.now()
        self.active[subscription.id] = started_at
        page, error = FeedPage(is_unchanged=True), None
        try:
            with trio.fail_after(self.options.check_timeout_s):
                page = await self.fetch(subscription)
        except trio.TooSlowError:
            error = f"no answer in full within {self.options.check_timeout_s:g} s"
        except SourceError as trouble:
            error = told(str(trouble) or type(trouble).__name__, keys_in(subscription.url), length_max=ERROR_MAX)
            page = FeedPage(is_unchanged=True, wait_s=trouble.retry_after_s or 0.0)
        finally:
            self.active.pop(subscription.id, None)
        duration_ms = round((trio.current_time() - began) * 1_000)
        check = Check(
            subscription_id=subscription.id,
            started_at=started_at,
            status=CheckStatus.FAILED if error else CheckStatus.SUCCESS,
            items_found=len(page.items),
            duration_ms=duration_ms,
            error=error,
        )
        await self._end(subscription.id, page, check)

    async def _end(self, number: int, page: FeedPage, check: Check) -> None:
        """Write what it brought; many new items bit by bit, so that nobody else waits long for the database."""
        following, imported = None, 0
        while following is None:
            held, now = self._in_hand[number].subscription, self.clock.now()
            check, more, following = await self.database.run(
                self._ending, held, page, check, until=self._until(now), now=now
            )
            imported += more
        self._tell(self._in_hand[number].subscription, page, check, imported, following)
        self._let_go(number, check)

    def _tell(self, subscription: Subscription, page: FeedPage, check: Check, imported: int, following: Next) -> None:
        self.statistics.record(
            at=check.started_at,
            success=check.status is CheckStatus.SUCCESS,
            duration_ms=check.duration_ms,
            items_found=check.items_found,
            new_items=check.new_items,
        )
        for event in events_of(subscription, page, check, imported, following):
            self.emit(event)
        if imported:
            self.ring()

    async def _maintain(self) -> None:
        """Once an hour: forget old records, find those that a clock that ran ahead put off, tell how many there are."""
        if trio.current_time() < self._maintained_at + MAINTENANCE_S:
            return
        now = self.clock.now()
        before = now - timedelta(seconds=self.options.keep_checks_s)
        pruned = await self.database.run(subscription_checks.prune_checks, before=before, limit=PAGE)
        found = 0
        if await self.database.read(subscriptions.is_any_ahead, now=now):
            found = await self.database.run(subscriptions.pull_in, now=now, limit=PAGE)
        if found or pruned == PAGE:
            self.wake_at = trio.current_time() + CALM_S  # they are due, and there may be more
        if PAGE in {pruned, found}:
            return
        self._maintained_at = trio.current_time()
        total, _ = await self.database.read(subscriptions.count)
        self.emit(SubscriptionsMaintained(scheduled_jobs=total, active_checks=len(self.active), pruned=pruned))
