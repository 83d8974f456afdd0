"""Operations on wants, downloads and targets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from attrs import define, field

from actors.environment import Environment
from actors.watch.handover_tracker import ConfiguredTarget
from actors.watch.watch_jobs import handover_job_by_hand, search_job
from cormorant.rules.watch.handovers import Handover, TargetView, no_target
from cormorant.rules.watch.wants import Want, WantState
from storage.watch import choice, handovers, wants
from storage.watch.choice import CandidateChoice, WatchTargets
from storage.watch.wants import WantView


@define(eq=False, kw_only=True)
class Wants:
    """The wants of a service, and where they went."""

    environment: Environment = field(kw_only=False)
    chooser: CandidateChoice
    places: Mapping[str, ConfiguredTarget]

    async def page(
        self,
        *,
        state: WantState | None = None,
        has_ignored: bool = True,
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[Want]:
        """The latest wants, newest first."""
        return await self.environment.database.read(
            wants.recent, state=state, has_ignored=has_ignored, before_id=before_id, limit=limit
        )

    async def find(self, want_id: int) -> WantView:
        """One want with its candidates and their reasons, or `NotFound`."""
        return await self.environment.database.read(choice.view, want_id)

    async def retry(self, want_id: int) -> Want:
        """Search for something again that was given up or ignored, or has not been found yet."""
        return await self.environment.database.run(
            choice.search_again,
            want_id,
            targets=self._targets,
            make_job=partial(search_job, self.environment),
            now=self.environment.now(),
        )

    async def ignore(self, want_id: int) -> Want:
        """Want something no more."""
        return await self.environment.database.run(
            wants.change, want_id, WantState.IGNORED, reason="by hand", now=self.environment.now()
        )

    async def hand_over(self, want_id: int, *, ref: str | None = None) -> Want:
        """Hand a chosen find over by hand, also in observe mode; or another of its candidates."""
        return await self.environment.database.run(
            choice.hand_over,
            want_id,
            ref,
            chooser=self.chooser,
            targets=self._targets,
            make_job=partial(handover_job_by_hand, self.environment),
            now=self.environment.now(),
        )

    async def downloads(self, *, before_id: int | None = None, limit: int = 100) -> list[Handover]:
        """What was handed over, newest first."""
        return await self.environment.database.read(handovers.recent, before_id=before_id, limit=limit)

    async def download(self, number: int) -> Handover:
        """One of them, or `NotFound`."""
        return await self.environment.database.read(handovers.find, number)

    async def settle(self, number: int, *, has_arrived: bool) -> Want:
        """Decide about a handover that is held: it has arrived, or it is to be sent again."""
        return await self.environment.database.run(
            choice.settle,
            number,
            has_arrived=has_arrived,
            make_job=partial(handover_job_by_hand, self.environment),
            now=self.environment.now(),
        )

    def targets(self) -> list[TargetView]:
        """Those that finds can be handed to, by name."""
        configured = self.environment.settings.targets
        return [
            TargetView(
                name=name,
                kind=configured[name].kind if name in configured else "given by the program",
                takes=tuple(sorted(kind.value for kind in place.target.takes)),
                can_be_asked=place.target.can_be_asked,
                in_doubt=place.in_doubt.value,
            )
            for name, place in sorted(self.places.items())
        ]

    async def test_target(self, name: str) -> str:
        """Try address and credentials of a target without giving it anything. Raises `TargetError`."""
        if name not in self.places:
            raise no_target(name, list(self.places))
        return await self.places[name].target.test()

    @property
    def _targets(self) -> WatchTargets:
        usual = self.environment.settings.watchlist.hand_to
        return WatchTargets(configured=frozenset(self.places), usual=usual)
