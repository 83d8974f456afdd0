"""A world for simulated days: sources that watch over their own limits, and people, crashes and clocks that do anything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import trio
from attrs import define, field, frozen

from actors.search.search import Search
from cormorant.rules.errors import ActorCrashed
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SearchQueueFull,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchPage, SearchRequest
from cormorant.rules.settings.settings import JobSettings, SearchSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.testing import Recorder, Simulation, settings
from storage.database import Database
from storage.search.sources import SourceRecord
from supervisors import Service
from tests.conformance.crashing import crash_dispatcher, crash_limiter, slots_of

CALM_JOBS = JobSettings(heartbeat_s=60.0, lock_timeout_s=3_600.0, sweep_s=600.0, poll_s=300.0)
"""Nobody looks at jobs here, and looking for them is what would take the time."""
WIDTHS_S = {"per_minute": 60, "per_hour": 3_600, "per_day": 86_400}
LADDER_FOOT_S = 60.0
ANSWERS = ("found", "limited", "busy", "broken", "credentials", "hangs", "crashes", "refused")
WEIGHTS = (60, 8, 6, 10, 3, 5, 5, 3)


@frozen
class Asking:
    """One request as its site saw it."""

    at: datetime
    monotonic: float


@define(eq=False)
class Site:
    """A source that counts for itself and says at once when a limit is broken."""

    limits: SourceSettings
    world: World
    asked: list[Asking] = field(factory=list)
    in_flight: int = 0
    newest: datetime | None = None
    """The latest time that was seen: with a clock that is set back this is the one that counts."""
    ended_at: datetime | None = None
    closed_until: datetime | None = None
    is_stopped: bool = False
    paused_since: float | None = None
    resets: int = 0

    def now(self) -> datetime:
        """The time that counts."""
        now = self.world.simulation.clock.now()
        self.newest = now if self.newest is None else max(self.newest, now)
        return self.newest

    async def answer(self, chance: random.Random) -> SearchPage:
        """Be asked, and look whether that was allowed."""
        began_at = self.now()
        self._check(began_at)
        self.asked.append(Asking(began_at, trio.current_time()))
        self.in_flight += 1
        resets = self.resets
        try:
            await trio.sleep(chance.choice((0.0, 0.5, 3.0, 10.0)))
            return await self._do(
                chance.choices(ANSWERS, self.world.weights)[0] if self.world.is_wild else "found", chance, resets
            )
        finally:
            self.in_flight -= 1
            self.ended_at = self.now()

    async def _do(self, kind: str, chance: random.Random, resets: int) -> SearchPage:
        if kind == "limited":
            retry_after_s = chance.choice((5.0, 120.0, 4_000.0))
            self._close(retry_after_s, resets)
            raise SourceLimited("slower", retry_after_s=retry_after_s)
        if kind == "busy":
            self._close(LADDER_FOOT_S, resets)
            raise SourceLimited("slower")
        if kind == "credentials":
            self.is_stopped = self._counts(resets)
            raise CredentialsRefused("wrong key")
        if kind == "hangs":
            await trio.sleep_forever()
        if kind == "crashes":
            raise ZeroDivisionError("a mistake in the search function")
        if kind == "broken":
            raise SourceUnavailable("broken")
        if kind == "refused":
            raise SourceRefused("no such category")
        return SearchPage(results=())

    def _counts(self, resets: int) -> bool:
        """Whether what it says must show: not if a person has vouched for it since, nor beside others that may say else."""
        is_alone = self.in_flight == 1 and (self.ended_at is None or self.ended_at < self.now())
        return resets == self.resets and is_alone

    def _close(self, seconds: float, resets: int) -> None:
        if self._counts(resets):
            until = self.now() + timedelta(seconds=seconds)
            self.closed_until = until if self.closed_until is None else max(until, self.closed_until)

    def vouched(self) -> None:
        """A person has reset it."""
        self.resets += 1
        self.closed_until, self.is_stopped = None, False

    def _check(self, now: datetime) -> None:
        self.world.requests += 1
        assert self.in_flight < (self.limits.in_flight or 1), "more in flight than allowed"
        for name, width_s in WIDTHS_S.items():
            limit = getattr(self.limits, name)
            since = now - timedelta(seconds=width_s)
            within = sum(asking.at > since for asking in self.asked)
            assert limit is None or within < limit, f"{within + 1} of {limit} {name}"
        last = self.ended_at if self.limits.in_flight == 1 else (self.asked[-1].at if self.asked else None)
        spacing = timedelta(seconds=self.limits.spacing_s or 0.0)
        assert last is None or last + spacing <= now, "closer than its spacing"
        assert self.closed_until is None or self.closed_until <= now, "asked during its cooldown"
        assert not self.is_stopped, "asked with credentials that it had refused"
        # One that was reserved in the very moment of the pause may still go.
        assert self.paused_since is None or trio.current_time() <= self.paused_since, "asked while it was paused"


@define(eq=False)
class Followed:
    """A search, and what its caller was told."""

    search: Search
    sources: Sequence[str]
    told: list[str] = field(factory=list)

    def assert_whole(self) -> None:
        """Nothing is missing, nothing came twice, and the job was done last."""
        assert self.search.is_done
        assert Counter(outcome.source for outcome in self.search.outcomes) == Counter(self.sources)
        assert Counter(self.told[:-1]) == Counter(self.sources), self.told
        assert self.told[-1] == "done"


@define(eq=False)
class World:
    """Everything around a service that is started again and again."""

    simulation: Simulation
    gateway: Database
    limits: dict[str, SourceSettings]
    slots: int
    chance: random.Random
    weights: Sequence[int] = WEIGHTS
    """How often sources give each of `ANSWERS`."""
    is_wild: bool = True
    sites: dict[str, Site] = field(init=False)
    events: Recorder = field(factory=Recorder)
    followed: list[Followed] = field(factory=list)
    broken: list[BaseException] = field(factory=list)
    requests: int = 0
    _crashed_at: float = -1e9

    def __attrs_post_init__(self) -> None:
        self.sites = {name: Site(limits, self) for name, limits in self.limits.items()}

    def service(self) -> Service:
        """The service, on what the one before left behind."""
        chosen = settings(sources=self.limits, jobs=CALM_JOBS, search=SearchSettings(slots=self.slots))
        return self.simulation.open_service(chosen, gateway=self.gateway, listeners=[self.events], ask=self.ask)

    async def ask(self, record: SourceRecord, _: SearchRequest) -> SearchPage:
        """The search function of all sources."""
        try:
            return await self.sites[record.name].answer(self.chance)
        except AssertionError as error:
            self.broken.append(error)
            raise

    async def search(self, service: Service, names: Sequence[str], query: str, **how: Any) -> None:
        """Search, and keep what comes of it. A dispatcher that crashes in that moment says so."""
        told: list[str] = []
        try:
            search = await service.search(
                query,
                sources=names,
                on_complete=lambda _, source, *__: told.append(source),
                on_job_done=lambda _: told.append("done"),
                **how,
            )
        except (ActorCrashed, SearchQueueFull):
            return
        self.followed.append(Followed(search, names, told))

    def crash_dispatcher(self, service: Service) -> None:
        """Not so often that it would be given up."""
        if trio.current_time() > self._crashed_at + 30:
            self._crashed_at = trio.current_time()
            crash_dispatcher(service)

    def crash_limiter(self, service: Service, name: str) -> None:
        """Let a limiter crash, once all of them are there."""
        if service.sources.directory.loaded.is_set():
            crash_limiter(service, name)

    async def calm_down(self, service: Service) -> None:
        """Take every obstacle away: whatever waits must end now, month by month."""
        self.is_wild = False
        self.gateway.come_back()
        await trio.sleep(60)
        for name, site in self.sites.items():
            site.paused_since = None
            await service.resume_source(name)
        for _ in range(len(self.followed) + 10):
            if all(each.search.is_done for each in self.followed):
                break
            for name, site in self.sites.items():
                site.vouched()
                await service.reset_source(name)
            self.simulation.clock.jump(32 * 86_400)
            await trio.sleep(130)
        await trio.sleep(1)
        assert all(each.search.is_done for each in self.followed), "somebody waits for ever"
        assert slots_of(service).pool.taken == 0, "a slot did not come back"

    def assert_whole(self) -> None:
        """At the end of days."""
        assert self.broken == []
        for each in self.followed:
            each.assert_whole()


def classes() -> tuple[Priority | None, ...]:
    """The classes that a search may have, and none."""
    return (None, *Priority)
