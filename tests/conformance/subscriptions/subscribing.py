"""The ticker of subscriptions alone, with scripted feeds, on the mock clock."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any

import trio
from attrs import define, field, frozen
from sqlalchemy import Connection, text

from actors.actor import Address, Recheck
from actors.environment import Environment
from actors.jobs.reclaim_sweeper import ReclaimSweeper
from actors.jobs.runner import JobRunner, RunnerMessage
from actors.jobs.working_set import JobWakeUp, OwnerLease
from actors.maintenance import Maintenance
from actors.periodic import ClockWatch
from cormorant.rules.settings.watch import FeedSettings, SubscriptionSettings
from cormorant.rules.watch.feeds import DueFeed, FeedEntryItem, FetchedFeed, Subscription
from cormorant.rules.watch.wants import Want
from cormorant.scripted import ScriptedTarget
from cormorant.services.jobs import Jobs
from cormorant.services.schedule import Timetable
from cormorant.services.watch.feeds import Feeds as Subscriptions
from cormorant.testing import Recorder, SimulatedClock, settings
from storage import pauses
from storage.database import Database
from storage.jobs.jobs import NewJob
from storage.watch import feed_claims
from storage.watch.choice import CandidateChoice, Judged
from supervisors import ChildSpec, Supervisor
from supervisors.search_assembly import SearchAssembly
from supervisors.watch_assembly import WatchAssembly
from tests.environments import environment_of
from tests.gateways import gateway
from tests.leases import register

Step = list[str] | Exception
HOUR = 3_600.0


def page(*titles: str, **how: Any) -> FetchedFeed:
    """A feed with these items."""
    return FetchedFeed(
        items=tuple(FeedEntryItem(key=title, title=title, link=f"http://x.test/{title}") for title in titles), **how
    )


@define
class Feeds:
    """Answers for each address with one step after the other; the last one holds for ever."""

    scripts: dict[str, list[FetchedFeed | Exception]] = field(factory=dict)
    takes_s: dict[str, float] = field(factory=dict)
    asked: list[tuple[float, str]] = field(factory=list)
    together: dict[str, int] = field(factory=dict)
    most: int = 0

    async def __call__(self, subscription: DueFeed) -> FetchedFeed:
        """Be asked."""
        host = subscription.url.split("/")[2]
        assert not self.together.get(host), f"two at once at {host}"
        self.asked.append((round(trio.current_time(), 6), subscription.name))
        self.together[host] = 1
        self.most = max(self.most, sum(self.together.values()))
        try:
            await trio.sleep(self.takes_s.get(host, 0.0))
        finally:
            self.together[host] = 0
        steps = self.scripts.get(subscription.url, [FetchedFeed()])
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        if isinstance(step, Exception):
            raise step
        return step

    def times(self, name: str) -> list[float]:
        """When one was asked."""
        return [time for time, asked in self.asked if asked == name]


def _no_job(_want: Want) -> NewJob:
    raise AssertionError("nothing is handed over here")


@frozen(kw_only=True)
class RecordingChoice(CandidateChoice):
    """Records the title of every want instead of choosing a candidate for it."""

    taken: list[str]

    def choose(self, connection: Connection, want: Want, judged: Sequence[Judged], *, now: datetime) -> Want | None:
        self.taken.append(want.title)
        return want


@define
class SubscriptionPlace:
    """One database; any number of tickers, one after the other."""

    gateway: Database
    feeds: Feeds = field(factory=Feeds)
    clock: SimulatedClock = field(factory=SimulatedClock)
    events: Recorder = field(factory=Recorder)
    taken: list[str] = field(factory=list)
    crashes: int = 0
    """So many of the next looks crash the ticker."""
    _read: Callable[..., Awaitable[Any]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._read = self.gateway.read
        self.gateway.read = self._read_or_crash  # type: ignore[assignment, method-assign]  # only the ticker's look crashes

    async def _read_or_crash(self, function: Any, *args: Any, **how: Any) -> Any:
        if self.crashes and function is feed_claims.read_due:
            self.crashes -= 1
            raise ZeroDivisionError("a mistake")
        return await self._read(function, *args, **how)

    async def pause_all(self, *, is_paused: bool = True) -> None:
        """Pause everything, or resume it."""
        await self.gateway.run(pauses.set_all, is_paused=is_paused, now=self.clock.now())

    def _emit(self, event: Any) -> None:
        from cormorant.rules.events import Stamped  # noqa: PLC0415 - only here

        self.events(Stamped(len(self.events.heard), self.clock.now(), event))

    def opened(self, *, has_ticker: bool = True, has_heartbeat: bool = False, **options: Any) -> _Opened:
        """The ticker under a supervisor, with its storage; to be entered.

        With `has_heartbeat` it also has the job runner, which keeps the lease, and the reclaim sweeper. Otherwise its lease is
        held for ever, so that months pass fast.
        """
        self.gateway.adopt(emit=self._emit, chance=random.Random(0), clock=self.clock)
        environment = environment_of(
            settings(subscriptions=SubscriptionSettings(**options)),
            database=self.gateway,
            clock=self.clock,
            emit=self._emit,
            feed=self.feeds,
            targets={"folder": ScriptedTarget()},
        )
        lease = OwnerLease()
        assembly = WatchAssembly(
            environment,
            searches=SearchAssembly(environment).searches(),
            producer=JobWakeUp(),
            lease=lease,
            timetable=Timetable(),
        )
        assembly.chooser = RecordingChoice(
            taken=self.taken, profiles={}, takes={"folder": frozenset()}, is_live=False, make_handover=_no_job
        )
        watch = ClockWatch(environment=environment, sleepers=lambda: [assembly.subscription])
        tickers = [
            ChildSpec("subscription_ticker", assembly.subscription.served_by(assembly.feed_ticker), grace_s=0.5),
            ChildSpec("clock_watch", watch, grace_s=0.0),
            ChildSpec(
                "maintenance", Address[Recheck]("maintenance").served_by(partial(Maintenance, environment)), grace_s=0.5
            ),
        ]
        process = (
            _process(environment, assembly)
            if has_heartbeat
            else [ChildSpec("worker", _Worker(lease, self.gateway), grace_s=0.0)]
        )
        root = Supervisor(
            [ChildSpec("storage", self.gateway, grace_s=5.0), *([*process, *tickers] if has_ticker else [])],
            name="root",
            stop_total_s=8.0,
            emit=self._emit,
            chance=random.Random(0),
        )
        return _Opened(root, assembly.feeds)


@frozen
class _Worker:
    """A process whose lease is held for ever."""

    lease: OwnerLease
    gateway: Database

    async def __call__(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.lease.owner = f"worker {next(_NUMBERS)}"
        await self.gateway.run(register, self.lease.owner)
        self.lease.confirm(trio.current_time(), doubtful_after_s=math.inf)
        task_status.started()
        await trio.sleep_forever()


_NUMBERS = itertools.count(1)


def _process(environment: Environment, assembly: WatchAssembly) -> list[ChildSpec]:
    """The job runner, which keeps the lease, and the reclaim sweeper."""
    runner = Address[RunnerMessage]("job_runner")
    jobs = Jobs(environment, runner=runner, wake_up=assembly.producer, max_attempts={})
    sweeper = Address[Recheck]("reclaim_sweeper")
    make_runner = partial(
        JobRunner,
        environment,
        handlers={},
        wake_up=assembly.producer,
        reach=jobs,
        lease=assembly.lease,
        sweeper=sweeper,
    )
    make_sweeper = partial(
        ReclaimSweeper,
        environment,
        lease=assembly.lease,
        producer=assembly.producer,
    )
    return [
        ChildSpec("job_runner", runner.served_by(make_runner), grace_s=1.0),
        ChildSpec("reclaim_sweeper", sweeper.served_by(make_sweeper), grace_s=0.5),
    ]


@define
class _Opened:
    root: Supervisor
    subscriptions: Subscriptions

    async def __aenter__(self) -> Subscriptions:
        await self.root.__aenter__()
        return self.subscriptions

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self.root.__aexit__(kind, error, trace)


def claimed(connection: Connection) -> list[int]:
    """The feeds that some process has claimed."""
    return [
        *connection.execute(text("SELECT id FROM subscriptions WHERE claimed_by IS NOT NULL ORDER BY id")).scalars()
    ]


async def prepared(place: SubscriptionPlace, *names: str, host: str = "x.test", **how: Any) -> None:
    """Subscribe to feeds before a ticker looks: the first look of the next one finds them due, at its very beginning.

    `{}` in the host stands for the name.
    """
    async with place.opened(has_ticker=False) as subscriptions:
        for name in names:
            await subscribe(subscriptions, name, host=host.format(name), **how)


@contextmanager
def subscription_place(*, is_shared: bool = False) -> Iterator[SubscriptionPlace]:
    with gateway(is_shared=is_shared) as database:
        yield SubscriptionPlace(database)


async def subscribe(
    subscriptions: Subscriptions, name: str, *, host: str = "x.test", folder: Sequence[str] = (), **options: Any
) -> Subscription:
    """Subscribe to a feed, every hour unless said otherwise."""
    often: dict[str, Any] = {} if "cron" in options else {"every_s": HOUR}
    url = f"http://{host}/{name}"
    return await subscriptions.add(name, FeedSettings(**{"url": url} | often | options), folder=folder)
