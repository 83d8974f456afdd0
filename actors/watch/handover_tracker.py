"""HandoverTracker: asks targets what became of handovers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

import trio
from attrs import define, field, frozen

from actors.actor import Recheck
from actors.contained import Failed, contained
from actors.jobs.working_set import JobWakeUp
from actors.watch.due_ticker import DueTicker
from actors.watch.watch_jobs import job_of
from cormorant.clients.targets.target import Target
from cormorant.rules.watch.events import HandoverEnded, WantChanged
from cormorant.rules.watch.handovers import (
    FOLLOW_S,
    GONE_S,
    Handover,
    HandoverState,
    InDoubt,
    Parcel,
    ParcelKind,
    ParcelState,
    ParcelStatus,
    TargetError,
    follow_again_s,
    missing_target_wait_s,
    target_removed_reason,
)
from cormorant.rules.watch.wants import Want
from storage.jobs import jobs
from storage.tables import HANDOVERS, ClaimedTable
from storage.watch import choice, handovers, wants
from storage.watch.choice import CandidateChoice
from storage.watch.handovers import HandoverChanged, set_done

BATCH = 4
LOOK_S = 60.0
"""The longest time for asking one target."""
ORPHANS_BATCH = 100
ORPHANS_S = 600.0
"""How often is looked for wants that no job cares for."""


@frozen(kw_only=True)
class ConfiguredTarget:
    """A target, and what is set for it."""

    target: Target
    in_doubt: InDoubt
    stalled_s: float
    follow_s: float = FOLLOW_S


def facts_of(parcel: Parcel) -> dict[str, Any]:
    """What is kept of a parcel, so that its target can be asked about it later. No link: it may hold a key."""
    facts: dict[str, Any] = {"kind": parcel.kind.value, "infohash": parcel.infohash, "parts": dict(parcel.folder_parts)}
    if parcel.files:
        facts |= {"username": parcel.username, "files": [list(each) for each in parcel.files]}
    return facts


def parcel_of(handover: Handover) -> Parcel:
    """As much of a parcel as a target needs to say what became of it."""
    facts = handover.facts
    return Parcel(
        key=handover.key,
        title=handover.title,
        kind=ParcelKind(facts.get("kind", ParcelKind.TORRENT.value)),
        infohash=facts.get("infohash"),
        folder_parts=facts.get("parts", {}),
        username=facts.get("username", ""),
        files=tuple((name, size) for name, size in facts.get("files", ())),
    )


@define(eq=False, kw_only=True)
class HandoverTracker(DueTicker[Recheck]):
    """Follows what was handed over to its end, where the target tells. At a stop it only has to look again later."""

    places: Mapping[str, ConfiguredTarget]
    chooser: CandidateChoice
    producer: JobWakeUp
    budget_s: float = 60.0
    item_s: float = LOOK_S + 5.0
    table: ClassVar[ClaimedTable] = HANDOVERS
    _orphans_at: float = field(init=False, default=0.0)

    async def tick(self) -> float | None:
        """Ask for those that are due; now and then look for wants that no job cares for."""
        due = await self._next_due()
        if due is not None and due <= self.environment.now():
            await self._follow()
            due = await self._next_due()
        if trio.current_time() >= self._orphans_at:
            self._orphans_at = trio.current_time() + ORPHANS_S
            await self._enqueue_orphans()
        orphans_s = self._orphans_at - trio.current_time()
        # One of which nothing could be stored is still due. It is asked for again after a while.
        due_s = self.seconds_until(due)
        return orphans_s if due_s is None else min(orphans_s, due_s or self._again_s)

    async def _next_due(self) -> datetime | None:
        return await self.environment.database.read(
            handovers.next_due, worker=self.lease.owner, known=[*self.places], now=self.environment.now()
        )

    async def _follow(self) -> None:
        """Ask for a batch after the other. What the budget leaves claimed is released by the next tick."""
        is_more = True
        while is_more:
            due = await self._claim_due()
            is_more = len(due) == BATCH
            for handover in due:
                if not self.is_in_budget:
                    return
                with suppress(HandoverChanged):  # another process has seen the same
                    # One of which nothing can be stored stays due, and would be claimed again at once.
                    is_more &= await self._follow_one(handover)

    async def _claim_due(self) -> list[Handover]:
        return await self.environment.database.run(
            handovers.claim_due,
            worker=self.lease.owner,
            known=[*self.places],
            now=self.environment.now(),
            limit=BATCH,
        )

    async def _follow_one(self, handover: Handover) -> bool:
        """Ask its target. False: nothing of it can be stored; the next round releases the handover, and it is due again."""
        place = self.places.get(handover.target)
        step = partial(self._target_missing, handover) if place is None else partial(self._check, handover, place)
        followed = await self._contained(handover, step)
        if not isinstance(followed, Failed):
            return True
        said = ParcelStatus(target_id=handover.target_id, standing=ParcelState.UNKNOWN, reason=followed.reason)
        least_s = FOLLOW_S if place is None else place.follow_s
        again_s = follow_again_s(self._age_s(handover), least_s=least_s)
        stored = await self._contained(handover, partial(self._later, handover, said, again_s=again_s))
        return not isinstance(stored, Failed)

    async def _contained(self, handover: Handover, step: Callable[[], Awaitable[None]]) -> Failed | None:
        return await contained(
            step, kind="handover", item=handover.title, emit=self.environment.emit, expected=(HandoverChanged,)
        )

    @property
    def _again_s(self) -> float:
        return min([FOLLOW_S, *(place.follow_s for place in self.places.values())]) / 2

    def _age_s(self, handover: Handover) -> float:
        return (self.environment.now() - handover.created_at).total_seconds()

    async def _target_missing(self, handover: Handover) -> None:
        """Nobody has asked its target for long. That is written down first, and due for whoever knows it."""
        now = self.environment.now()
        if (missing_target_wait_s(handover, now=now) or 0.0) >= GONE_S:
            await self._leave(handover)
            return
        why = target_removed_reason(handover.target)
        await self.environment.database.run(
            handovers.change, handover, HandoverState.HANDED_OVER, reason=why, next_at=now, now=now
        )

    async def _check(self, handover: Handover, place: ConfiguredTarget) -> None:
        receipt = ParcelStatus(target_id=handover.target_id, standing=ParcelState.PRESENT)
        try:
            with trio.fail_after(LOOK_S):
                said = await place.target.status(parcel_of(handover), receipt)
        except (TargetError, trio.TooSlowError) as trouble:
            said = ParcelStatus(target_id=handover.target_id, standing=ParcelState.UNKNOWN, reason=str(trouble))
        age_s = self._age_s(handover)
        if said.standing is ParcelState.DONE:
            await self._done(handover, said.reason or "")
        elif said.standing is ParcelState.ABSENT:
            await self._done(handover, "it is no longer at its target")
        elif said.standing is ParcelState.FAILED:
            await self._failed(handover, said.reason or "its target failed")
        elif said.is_stalled and age_s > place.stalled_s:
            await self._failed(handover, f"stalled: {said.reason or 'nothing comes'}")
        else:
            await self._later(handover, said, again_s=follow_again_s(age_s, least_s=place.follow_s))

    async def _later(self, handover: Handover, said: ParcelStatus, *, again_s: float) -> None:
        now = self.environment.now()
        await self.environment.database.run(
            handovers.change,
            handover,
            HandoverState.HANDED_OVER,
            reason=said.reason or said.standing.value,
            target_id=said.target_id,
            next_at=now + timedelta(seconds=again_s),
            now=now,
        )

    async def _done(self, handover: Handover, reason: str) -> None:
        done: Want = await self.environment.database.run(set_done, handover, reason, now=self.environment.now())
        self._emit_end(handover, HandoverState.DONE, reason, done)

    async def _failed(self, handover: Handover, reason: str) -> None:
        decided: Want = await self.environment.database.run(
            choice.fail_and_choose, self.chooser, handover, reason, now=self.environment.now()
        )
        self.producer.set()
        self._emit_end(handover, HandoverState.FAILED, reason, decided)

    async def _leave(self, handover: Handover) -> None:
        decided: Want = await self.environment.database.run(
            choice.leave_target, self.chooser, handover, now=self.environment.now()
        )
        self._emit_end(handover, HandoverState.FAILED, target_removed_reason(handover.target), decided)

    def _emit_end(self, handover: Handover, state: HandoverState, reason: str, want: Want) -> None:
        self.environment.emit(HandoverEnded.of(handover, state, reason))
        self.environment.emit(WantChanged.of(want))

    async def _enqueue_orphans(self) -> None:
        """A want whose job was cancelled, failed or pruned would wait for ever."""
        before = self.environment.now() - timedelta(seconds=ORPHANS_S)
        has_failed = False
        while (
            not has_failed
            and self.is_in_budget
            and (orphans := await self.environment.database.read(wants.orphans, before=before, limit=ORPHANS_BATCH))
        ):
            for want in orphans:
                step = partial(self._enqueue_orphan, want)
                revived = await contained(step, kind="want", item=want.words, emit=self.environment.emit)
                has_failed = has_failed or isinstance(revived, Failed)  # it stays an orphan, and would be read again
            self.producer.set()

    async def _enqueue_orphan(self, want: Want) -> None:
        await self.environment.database.run(
            jobs.enqueue, job_of(self.environment, want), now=self.environment.now()
        )  # with a job it is no orphan any more
