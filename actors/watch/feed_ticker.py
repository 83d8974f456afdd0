"""FeedTicker: checks due feeds, one host at a time, and checks requested by hand."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import trio
from attrs import define, field, frozen

from actors.actor import Recheck, Reply
from actors.watch.due_ticker import DueTicker
from actors.watch.feed_checker import PUT_OFF_S, CheckNotRecorded, FeedChecker
from cormorant.rules.errors import CommitUnknown, CormorantError, MailboxFull, StorageUnavailable
from cormorant.rules.schedules import is_misfire
from cormorant.rules.watch.feeds import DueFeed, FeedCheck, Subscription, SubscriptionMisfired, host_of
from storage.tables import FEEDS, ClaimedTable
from storage.watch import feed_claims, feeds
from storage.watch.feed_claims import CheckedElsewhere

OVERDUE = timedelta(minutes=2)
"""A tick that is later than planned by more comes after a pause, an outage or a sleep: what is overdue is spread out."""
CLAIM_FRESH_S = 10.0
"""Before a check begins, a claim that is older is looked at: the feed may be paused, changed or removed meanwhile."""
QUEUED_FOR_EACH = 8
"""So many wait for each that may run."""
HAND_MAX = 1_000
"""With checks by hand no more than so many wait."""
SPREAD_PAGES = 20
PAGE = 500
LANE_MAX = 4
"""When there is no room for more, so many of a host stay claimed: the others are released until their turn."""
HOSTS_MAX = 10_000
"""So many hosts are remembered, those that were asked last."""
TOOK_S = 1.0
"""So long a host takes of which nothing is known."""
PACE_S_MIN = 0.01
SOON_S = 1.0
"""Who is put off waits at least so long."""
_LATEST = datetime.max.replace(tzinfo=UTC)


@frozen(kw_only=True)
class CheckNow:
    """Command: check this subscription now. One that is being checked is joined. Answered with what came of it."""

    number: int
    reply: Reply[FeedCheck]


@frozen
class ClaimedFeed:
    """A feed that this process has claimed, and when the database last confirmed that (trio's time)."""

    subscription: DueFeed
    sure_at: float


@define(eq=False)
class HostQueues:
    """What is known of hosts that were asked."""

    delay_s: float
    """So long a host is left alone after it was asked."""
    _asked: dict[str, tuple[float, float]] = field(init=False, factory=dict)
    """When each was asked last, and how long that took."""
    _turns: dict[str, datetime] = field(init=False, factory=dict)
    """The last turn that was given to a feed of a host for later."""

    def ready_at(self, host: str) -> float:
        """When it may be asked (trio's time)."""
        return self._asked.get(host, (-math.inf, 0.0))[0] + self.delay_s

    def note(self, host: str, *, began: float) -> None:
        """It was asked just now."""
        now = trio.current_time()
        self._asked.pop(host, None)
        self._asked[host] = now, now - began
        while len(self._asked) > HOSTS_MAX:
            self._asked.pop(next(iter(self._asked)))

    def later(self, host: str, *, ahead: int, now: datetime) -> datetime:
        """The turn of one more, behind the claimed feeds that wait and all that were given turns before."""
        pace_s = max(PACE_S_MIN, self.delay_s + self._asked.get(host, (0.0, TOOK_S))[1])
        first = now + timedelta(seconds=max(SOON_S, ahead * pace_s))
        turn = max(first, self._turns.get(host, first)) + timedelta(seconds=pace_s)
        self._turns[host] = turn
        return turn

    def rest(self, host: str) -> None:
        """Nobody waits for it any more."""
        self._turns.pop(host, None)


@define(eq=False, kw_only=True)
class FeedTicker(DueTicker[CheckNow | Recheck]):
    """Scheduled checks and checks by hand go one way. Those that run at a stop did not happen, and are due as before."""

    checker: FeedChecker
    pacing: HostQueues
    """It outlives the ticker: a host is left alone after a crash, too."""
    configured: Sequence[Subscription]
    table: ClassVar[ClaimedTable] = FEEDS
    _has_configured: bool = field(init=False, default=False)
    _held: dict[int, ClaimedFeed] = field(init=False, factory=dict)
    _may_have_others: bool = field(init=False, default=True)
    """Whether this process may have claimed feeds that are not in `_held`: a claim or a release failed half-way."""
    _asked: set[int] = field(init=False, factory=set)
    """Feeds to be checked now that the next round claims, due or not."""
    _waiting: dict[int, list[Reply[FeedCheck]]] = field(init=False, factory=dict)
    """Who is answered at the end of a check, by feed."""
    _lanes: dict[str, deque[int]] = field(init=False, factory=dict)
    """The feeds that wait for their host."""
    _later: dict[int, trio.CancelScope] = field(init=False, factory=dict)
    """Feeds that stay claimed and are left alone, because nothing of their last check could be written."""
    _slots: trio.CapacityLimiter = field(init=False)
    _ticked_at: datetime | None = field(init=False, default=None)
    _planned_at: datetime = field(init=False, default=datetime.min.replace(tzinfo=UTC))
    """When the next tick is to begin. What was due before is claimed already."""
    _overdue_before: datetime | None = field(init=False, default=None)
    """What was due before this is to be spread out; None: that is done."""

    def __attrs_post_init__(self) -> None:
        options = self.environment.settings.subscriptions
        self._slots = trio.CapacityLimiter(min(options.max_concurrent_checks, options.max_concurrent_domains))

    async def handle(self, message: CheckNow | Recheck) -> None:
        """Check one now, or join the check that runs; or look again at what is due."""
        if isinstance(message, CheckNow):
            self._check_soon(message)
        else:
            self.tick_soon()

    def _check_soon(self, message: CheckNow) -> None:
        number = message.number
        if self.lease.lost.is_set():
            message.reply.refuse(_unconfirmed())
            return
        if len(self._held) + len(self._asked) >= HAND_MAX and number not in self._held:
            message.reply.refuse(MailboxFull("subscription_ticker", HAND_MAX))
            return
        others = [each for each in self._waiting.get(number, ()) if not each.abandoned]
        message.reply.defer()
        self._waiting[number] = [*others, message.reply]
        if number in self._held:
            self._move_to_front(number)
        else:
            self._asked.add(number)
            self.tick_now()

    def _move_to_front(self, number: int) -> None:
        """Someone waits for it: it is next at its host, unless it is being checked."""
        lane = self._lanes.get(host_of(self._held[number].subscription.url), deque())
        if number in lane:
            lane.remove(number)
            lane.appendleft(number)
        elif number in self._later:
            self._later[number].cancel()

    def forget_claims(self) -> None:
        """The lease is lost: another process may check these feeds."""
        self._held.clear()
        self._later.clear()
        self._may_have_others = True
        self._refuse([*self._waiting], _unconfirmed())

    def _refuse(self, numbers: Sequence[int], why: CormorantError) -> None:
        for number in numbers:
            self._asked.discard(number)
            for reply in self._waiting.pop(number, ()):
                reply.refuse(why)

    async def tick(self) -> float | None:
        """Claim what is due and there is room for."""
        is_whole = False
        try:
            due_s = await self._tick_once()
            is_whole = True
        except (StorageUnavailable, CommitUnknown) as away:
            self._refuse([*self._asked], away)
            raise
        finally:
            self._may_have_others |= not is_whole  # also when its scope has ended the tick
        return due_s

    async def _tick_once(self) -> float | None:
        database = self.environment.database
        if not self._has_configured:
            await database.run(feeds.set_configured, self.configured)
            self._has_configured = True
        if self._may_have_others:
            self._may_have_others = False
            await self.release_unknown(known=[*self._held])
        await self._claim_asked()
        due = await database.read(feed_claims.read_due)
        if due.is_paused:
            self._planned_at = min(self._planned_at, due.next_due or _LATEST)
            return None
        now = self.environment.now()
        if self._ticked_at is None or now < self._ticked_at:
            while await database.run(feeds.reschedule_after_clock_jump, now=now, limit=PAGE) == PAGE:
                pass
        self._ticked_at = now
        if now - self._planned_at > OVERDUE:
            self._overdue_before = now - OVERDUE
        if self._overdue_before is not None and not await self._spread(self._overdue_before, now):
            return 0.0
        upcoming = due.next_due
        if upcoming is not None and upcoming <= now:
            await self._claim_due(now)
            upcoming = (await database.read(feed_claims.read_due)).next_due
        self._planned_at = _LATEST if upcoming is None else max(upcoming, now)
        return self.seconds_until(upcoming)

    async def _claim_asked(self) -> None:
        """Claim the feeds that someone wants to be checked now, due or not."""
        for number in sorted(self._asked):
            if number in self._held:  # it was due, and the round before has claimed it
                self._asked.discard(number)
                self._move_to_front(number)
                continue
            asked_at = trio.current_time()
            claimed = await self.environment.database.run(feed_claims.claim_one, number, worker=self.lease.owner)
            if claimed is None:
                self._refuse([number], CheckedElsewhere(number))
            else:
                self._asked.discard(number)
                self._accept(ClaimedFeed(claimed, asked_at), is_first=True)

    async def _claim_due(self, now: datetime) -> None:
        room_max = self.environment.settings.subscriptions.max_concurrent_checks * QUEUED_FOR_EACH
        for _ in range(SPREAD_PAGES):
            room = room_max - len(self._held) + len(self._later)
            due: Sequence[DueFeed] = ()
            asked_at = trio.current_time()
            if room > 0:
                due = await self.environment.database.run(
                    feed_claims.claim, worker=self.lease.owner, now=now, limit=room
                )
            for each in due:
                self._emit_late(each.name, each.next_attempt_at, now)
                self._accept(ClaimedFeed(each, asked_at))
            if len(due) < room or not await self._release_surplus(now):
                return

    async def _release_surplus(self, now: datetime) -> int:
        """There is no room: of hosts for which many wait some are released until their turn, so that others have one."""
        back: dict[DueFeed, datetime] = {}
        for host, lane in self._lanes.items():
            for number in [each for each in list(lane)[LANE_MAX:] if each not in self._waiting]:
                lane.remove(number)
                back[self._held.pop(number).subscription] = self.pacing.later(host, ahead=len(lane), now=now)
        if back:
            await self.environment.database.run(feed_claims.release_until, back)
        return len(back)

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
        """Let one wait for its host. One that is claimed anew, because it was changed meanwhile, keeps its place."""
        number = held.subscription.id
        is_there = number in self._held
        self._held[number] = held
        if is_there:
            return
        host = host_of(held.subscription.url)
        lane = self._lanes.get(host)
        if lane is not None:
            (lane.appendleft if is_first else lane.append)(number)
            return
        self._lanes[host] = deque([number])
        self.work.start_soon(self._serve, host)

    async def _serve(self, host: str) -> None:
        """One host: one check at a time, apart from each other. Its turn comes before a slot, so that it waits alone."""
        lane = self._lanes[host]
        number = lane[0]
        try:
            while lane:
                await trio.sleep_until(max(self.pacing.ready_at(host), trio.current_time()))
                async with self._slots:
                    number, began = lane.popleft(), trio.current_time()
                    try:
                        await self._check_held(number, host)
                    finally:
                        self.pacing.note(host, began=began)
        except (StorageUnavailable, CommitUnknown) as away:
            self._may_have_others = True
            for each in sorted({number, *lane} & self._held.keys()):
                self._end_check(each, away)
        finally:
            del self._lanes[host]
            self.pacing.rest(host)

    def _end_check(self, number: int, what: FeedCheck | CormorantError) -> None:
        """It is no longer claimed; who waits for it is answered. It is due again some time, which the next tick reads."""
        self._held.pop(number, None)
        self.tick_soon()
        self._asked.discard(number)
        for reply in self._waiting.pop(number, ()):
            if isinstance(what, FeedCheck):
                reply.answer(what)
            else:
                reply.refuse(what)

    async def _check_held(self, number: int, host: str) -> None:
        """Check one in the turn of its host. What was claimed anew meanwhile, or moved, waits for another turn."""
        used = self._held[number].subscription
        what: FeedCheck | CormorantError | None = None

        def current() -> DueFeed:
            nonlocal used
            now = self._held[number].subscription
            if now.url != used.url:
                raise CheckedElsewhere(number)
            used = now
            return used

        try:
            used = await self._begin_check(number)
            if host_of(used.url) == host:
                what = await self.checker.check(used, current=current)
        except CheckedElsewhere as lost:
            what = lost
        except CheckNotRecorded as lost:
            self._postpone(number, lost)
            return
        held = self._held[number]
        is_anew = what is None or held.subscription.token != used.token
        if what is not None and (isinstance(what, FeedCheck) or not is_anew):
            self._end_check(number, what)
        if is_anew:
            self._held.pop(number, None)
            self._accept(held)

    async def _begin_check(self, number: int) -> DueFeed:
        """The feed as it is claimed. Raises `CheckedElsewhere` when it was paused, changed or removed meanwhile."""
        held = self._held[number]
        if trio.current_time() - held.sure_at <= CLAIM_FRESH_S:
            return held.subscription
        even_paused = number in self._waiting
        if await self.environment.database.read(feed_claims.is_held, held.subscription, even_paused=even_paused):
            return self._held[number].subscription
        await self.environment.database.run(feed_claims.release, [held.subscription])
        raise CheckedElsewhere(number)

    def _postpone(self, number: int, why: CheckNotRecorded) -> None:
        """It stays claimed, so that nobody asks it, and has another turn later, or when somebody wants it."""
        held = self._held[number]
        self._end_check(number, why)
        self._held[number] = held
        self._later[number] = trio.CancelScope()
        self.work.start_soon(self._return, number, self._later[number])

    async def _return(self, number: int, rest: trio.CancelScope) -> None:
        with rest:
            await trio.sleep(PUT_OFF_S)
        del self._later[number]
        held = self._held.pop(number)
        self._accept(held)


def _unconfirmed() -> StorageUnavailable:
    return StorageUnavailable("the database has not confirmed this process, so it checks no feed; ask again soon")
