"""FeedTicker: checks due feeds, one host at a time, and checks requested by hand."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import trio
from attrs import define, field, frozen

from actors.actor import Actor, Reply
from actors.environment import Environment
from actors.periodic import WakeUp
from actors.watch.claim_watch import StaleClaims
from actors.watch.feed_checker import PUT_OFF_S, CheckNotRecorded, FeedChecker
from actors.watch.feed_claims import BEAT_S, ClaimedFeed, FeedClaims, silence_s
from actors.watch.feed_maintenance import FeedMaintenance
from actors.watch.host_queues import HostQueues
from cormorant.rules.errors import CommitUnknown, CormorantError, MailboxFull, StorageUnavailable
from cormorant.rules.schedules import is_misfire
from cormorant.rules.watch.feeds import DueFeed, FeedCheck, Subscription, SubscriptionMisfired, host_of
from storage.watch import feed_claims, feeds
from storage.watch.feed_claims import CheckedElsewhere, DueFeeds

LOOK_S = 60.0
"""How often is looked for what is due, whatever happens."""
DEBOUNCE_S = 1.0
"""At least so long between two looks."""
CHANGED_DEBOUNCE_S = 1.0
"""At least so long between two looks because others have written: on SQLite one hears of every write."""
AWAY_S = 5.0
"""When a database that was away is looked at again."""
QUEUED_FOR_EACH = 8
"""So many wait in hand for each that may run."""
HAND_MAX = 1_000
"""With checks by hand no more than so many wait."""
RELEASE_S = 0.4
ASLEEP_LOOKS = 2
"""Who has missed so many looks has slept: what came due meanwhile is spread out."""
SPREAD_PAGES = 20
PAGE = 500
LANE_MAX = 4
"""When there is no room for more, so many of a host stay in hand: the others are given back until their turn."""


@frozen(kw_only=True)
class CheckNow:
    """Command: check this subscription now. One that is being checked is joined. Answered with what came of it."""

    number: int
    reply: Reply[FeedCheck]


@define(eq=False, kw_only=True)
class FeedTicker(Actor[CheckNow]):
    """Scheduled and manual checks go one way."""

    environment: Environment = field(kw_only=False)
    checker: FeedChecker
    configured: Sequence[Subscription]
    wake_up: WakeUp
    """Rung in this process when something may be due."""
    look_s: float = LOOK_S
    _has_configured: bool = field(init=False, default=False)
    _lanes: dict[str, deque[int]] = field(init=False, factory=dict)
    """Who waits for its host."""
    _turns: HostQueues = field(init=False)
    _waiting: dict[int, list[Reply[FeedCheck]]] = field(init=False, factory=dict)
    """Whom the end of a check is told, by subscription."""
    _claims: FeedClaims = field(init=False)
    _dropped: dict[int, DueFeed] = field(init=False, factory=dict)
    """What could not be checked while the database was away: to be given back."""
    _later: dict[int, trio.CancelScope] = field(init=False, factory=dict)
    """What is in hand and left alone, because nothing of its last check could be written."""
    _slots: trio.CapacityLimiter = field(init=False)
    _others: StaleClaims = field(init=False)
    _watch_at: float = field(init=False, default=-math.inf)
    _has_woken: bool = field(init=False, default=False)
    _looked_at: datetime | None = field(init=False, default=None)
    _overdue_before: datetime | None = field(init=False, default=None)
    """What was due before this is to be spread out; None: that is done."""
    _maintenance: FeedMaintenance = field(init=False)

    def __attrs_post_init__(self) -> None:
        together = min(
            self.environment.settings.subscriptions.max_concurrent_checks,
            self.environment.settings.subscriptions.max_concurrent_domains,
        )
        self._slots = trio.CapacityLimiter(together)
        self._turns = HostQueues(self.environment.settings.subscriptions.domain_request_delay_s)
        self._others = StaleClaims(
            database=self.environment.database,
            interval_s=max(self.look_s, BEAT_S),
            silence_s=silence_s(self.environment.settings.subscriptions.check_timeout_s),
        )
        self._maintenance = FeedMaintenance(self.environment, active=self.checker.active)
        self._claims = FeedClaims(
            database=self.environment.database,
            asked_for=self._waiting,
            timeout_s=self.environment.settings.subscriptions.check_timeout_s,
            clock=self.environment.clock,
        )

    async def begin(self) -> None:
        """Begin at once."""
        self.wake_at = trio.current_time()
        self.nursery.start_soon(self._claims.beat)
        self.nursery.start_soon(self._wake_on, self.wake_up, 0.0)
        changes = WakeUp()
        self.nursery.start_soon(self._wake_on, changes, CHANGED_DEBOUNCE_S)
        self.nursery.start_soon(self.environment.database.listen, feeds.CHANNEL, changes.set)

    async def _wake_on(self, wake_up: WakeUp, debounce_s: float) -> None:
        """Tick after each wake-up, but not twice within the debounce time."""
        while True:
            await wake_up.wait()
            self._has_woken = True
            self.wake_at = trio.current_time()
            await trio.sleep(debounce_s)

    async def handle(self, message: CheckNow) -> None:
        """Check one now, or join the check that runs."""
        number = message.number
        if number in self._claims.held:
            self._join(number, message.reply)
            return
        if len(self._claims.held) >= HAND_MAX:
            message.reply.refuse(MailboxFull("subscription_ticker", HAND_MAX))
            return
        asked_at = trio.current_time()
        try:
            claimed = await self.environment.database.run(feed_claims.claim_one, number, until=self._claims.until())
        except (StorageUnavailable, CommitUnknown) as away:
            message.reply.refuse(away)
            return
        if claimed is None:
            self._others.ask_for(number)
            self.wake_at = min(self.wake_at, trio.current_time() + DEBOUNCE_S)
            message.reply.refuse(CheckedElsewhere(number))
            return
        self._waiting[number] = [message.reply]
        self._accept(ClaimedFeed(claimed, asked_at), is_first=True)

    def _join(self, number: int, reply: Reply[FeedCheck]) -> None:
        """Someone waits for it: it is next at its host, unless it is being checked."""
        others = [each for each in self._waiting.get(number, ()) if not each.abandoned]
        self._waiting[number] = [*others, reply]
        lane = self._lanes.get(host_of(self._claims.held[number].subscription.url), deque())
        if number in lane:
            lane.remove(number)
            lane.appendleft(number)
        elif number in self._later:
            self._later[number].cancel()

    async def wake(self) -> None:
        """Take in hand what is due and there is room for."""
        self._has_woken = False
        self.wake_at = trio.current_time() + self.look_s
        try:
            await self._tick()
        except (StorageUnavailable, CommitUnknown):
            self._others.forget()
            self.wake_at = trio.current_time() + min(self.look_s, AWAY_S)
        if self._has_woken:  # while we looked, perhaps past it
            self.wake_at = trio.current_time()

    async def end(self) -> None:
        """Checks that run are cancelled: they did not happen, and are due as before."""
        self.nursery.cancel_scope.cancel()
        if self._claims.held or self._dropped:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + RELEASE_S):
                await self._release()

    async def _release(self) -> None:
        held = [*self._dropped.values(), *(each.subscription for each in self._claims.held.values())]
        try:
            await self.environment.database.run(feed_claims.release, held)
        except (StorageUnavailable, CommitUnknown):
            return  # others see that nobody renews them

    async def _tick(self) -> None:
        if not self._has_configured:
            await self.environment.database.run(feeds.set_configured, self.configured)
            self._has_configured = True
        if self._dropped:
            dropped = list(self._dropped.values())  # meanwhile there may be more
            await self.environment.database.run(feed_claims.release, dropped)
            self._remove_dropped(dropped)
        outlook = await self._watched()
        if outlook.is_paused:
            return
        now = self.environment.now()
        if self._looked_at is not None and now < self._looked_at:
            self._maintenance.run_soon()  # the clock was set back: what it put off is not to wait for an hour
        asleep_s = ASLEEP_LOOKS * self.look_s
        if self._looked_at is None or (now - self._looked_at).total_seconds() > asleep_s:
            self._overdue_before = now - timedelta(seconds=asleep_s)
        self._looked_at = now
        if self._overdue_before is not None and not await self._spread(self._overdue_before, now):
            self._tick_within(DEBOUNCE_S)
            return
        upcoming = outlook.next_due
        if upcoming is not None and upcoming <= now:
            await self._take_due(now)
            upcoming = (await self.environment.database.read(feed_claims.read_due, clock=None)).next_due
        if upcoming is not None:
            self._tick_within(max(DEBOUNCE_S, (upcoming - self.environment.now()).total_seconds()))
        if await self._maintenance.run():
            self._tick_within(DEBOUNCE_S)  # there are due ones, or more to forget

    def _tick_within(self, seconds: float) -> None:
        self.wake_at = min(self.wake_at, trio.current_time() + seconds)

    async def _watched(self) -> DueFeeds:
        """What there is to do, after what dead processes had in hand is free."""
        clock = self.environment.clock if trio.current_time() >= self._watch_at else None
        outlook = await self.environment.database.read(feed_claims.read_due, clock=clock, also=self._others.asked_for)
        if outlook.held is not None:
            own = {(number, each.subscription.token) for number, each in self._claims.held.items()}
            if await self._others.check(outlook.held, own=own):
                outlook = await self.environment.database.read(feed_claims.read_due, clock=None)
            self._watch_at = trio.current_time() + BEAT_S
        if self._others.is_watching:
            self._tick_within(self._watch_at - trio.current_time())
        return outlook

    async def _take_due(self, now: datetime) -> None:
        for _ in range(SPREAD_PAGES):
            room = (
                self.environment.settings.subscriptions.max_concurrent_checks * QUEUED_FOR_EACH
                - len(self._claims.held)
                + len(self._later)
            )
            due: Sequence[DueFeed] = ()
            asked_at = trio.current_time()
            if room > 0:
                due = await self.environment.database.run(
                    feed_claims.claim, now=now, until=self._claims.until(), limit=room
                )
            for each in due:
                self._emit_late(each.name, each.next_check_at, now)
                self._accept(ClaimedFeed(each, asked_at))
            if len(due) < room or not await self._release_surplus(now):
                return

    async def _release_surplus(self, now: datetime) -> int:
        """The hand is full: of hosts for which many wait some are given back until their turn, so that others have one."""
        back: dict[DueFeed, datetime] = {}
        for host, lane in self._lanes.items():
            for number in [each for each in list(lane)[LANE_MAX:] if each not in self._waiting]:
                lane.remove(number)
                back[self._claims.held[number].subscription] = self._turns.later(host, ahead=len(lane), now=now)
                self._claims.drop(number)
        self._dropped |= {each.id: each for each in back}
        if back:
            await self.environment.database.run(feed_claims.release_until, back)
            self._remove_dropped(back)
        return len(back)

    def _remove_dropped(self, given: Iterable[DueFeed]) -> None:
        for each in given:
            if self._dropped.get(each.id) is each:
                del self._dropped[each.id]

    async def _spread(self, before: datetime, now: datetime) -> bool:
        """After a long sleep many are overdue at once: each waits its share of a minute. True: all do now."""
        for _ in range(SPREAD_PAGES):
            late = await self.environment.database.run(feed_claims.spread_overdue, before=before, now=now, limit=PAGE)
            for name, due in late:
                self._emit_late(name, due, now)
            if len(late) < PAGE:
                self._overdue_before = None
                return True
        return False

    def _emit_late(self, name: str, due: datetime, now: datetime) -> None:
        if is_misfire(due=due, now=now, grace_s=self.environment.settings.subscriptions.misfire_grace_s):
            self.environment.emit(SubscriptionMisfired(subscription=name, late_s=round((now - due).total_seconds(), 3)))

    def _accept(self, held: ClaimedFeed, *, is_first: bool = False) -> None:
        """Let one wait for its host. One that is in hand, and was freed by another, keeps its place."""
        number = held.subscription.id
        is_there = number in self._claims.held
        self._claims.put(held)
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
                await trio.sleep_until(max(self._turns.ready_at(host), trio.current_time()))
                async with self._slots:
                    number, began = lane.popleft(), trio.current_time()
                    try:
                        await self._check_held(number, host)
                    finally:
                        self._turns.note(host, began=began)
        except (StorageUnavailable, CommitUnknown) as away:
            for each in sorted({number, *lane} & self._claims.held.keys()):
                self._dropped[each] = self._claims.held[each].subscription
                self._end_check(each, away)
        finally:
            del self._lanes[host]
            self._turns.rest(host)

    def _end_check(self, number: int, what: FeedCheck | CormorantError) -> None:
        """It is no longer in hand; who waits for it is told."""
        self._claims.drop(number)
        for reply in self._waiting.pop(number, ()):
            if isinstance(what, FeedCheck):
                reply.answer(what)
            else:
                reply.refuse(what)

    async def _check_held(self, number: int, host: str) -> None:
        """Check one in the turn of its host. What was taken in hand anew meanwhile, or moved, waits for another turn."""
        used = self._claims.held[number].subscription
        what: FeedCheck | CormorantError | None = None

        def current() -> DueFeed:
            nonlocal used
            now = self._claims.held[number].subscription
            if now.url != used.url:
                raise CheckedElsewhere(number)
            used = now
            return used

        try:
            used = await self._claims.begin(number)
            if host_of(used.url) == host:
                what = await self.checker.check(used, current=current, until=self._claims.until)
        except CheckedElsewhere as lost:
            what = lost
        except CheckNotRecorded as lost:
            self._postpone(number, lost)
            return
        held = self._claims.held[number]
        is_anew = what is None or held.subscription.token != used.token
        if what is not None and (isinstance(what, FeedCheck) or not is_anew):
            self._end_check(number, what)
        if is_anew:
            self._claims.drop(number)
            self._accept(held)

    def _postpone(self, number: int, why: CheckNotRecorded) -> None:
        """It stays in hand, so that nobody asks it, and has another turn later, or when somebody wants it."""
        held = self._claims.held[number]
        self._end_check(number, why)
        self._claims.put(held)
        self._later[number] = trio.CancelScope()
        self.nursery.start_soon(self._return, number, self._later[number])

    async def _return(self, number: int, rest: trio.CancelScope) -> None:
        with rest:
            await trio.sleep(PUT_OFF_S)
        del self._later[number]
        held = self._claims.held[number]
        self._claims.drop(number)
        self._accept(held)
