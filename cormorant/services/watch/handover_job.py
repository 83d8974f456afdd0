"""Job handler of kind handover: submit, confirm, settle in doubt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from attrs import field, frozen

from actors.environment import Environment
from actors.jobs.handler import JobContext
from actors.watch.handover_tracker import ConfiguredTarget, facts_of, parcel_of
from cormorant.rules.jobs.verdicts import Fail, Retry, Snooze
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    RateLimitWaitError,
    SearchError,
    SourceError,
    SourceLimited,
    SourceRefused,
    wait_for_opening_s,
)
from cormorant.rules.watch.events import HandoverEnded, HandoverInDoubt, HandoverSent, WantChanged
from cormorant.rules.watch.handovers import (
    ASKED_MAX,
    DOUBT_S,
    GONE_S,
    Handover,
    HandoverState,
    InDoubt,
    NextStep,
    Parcel,
    ParcelState,
    ParcelStatus,
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
    doubt_s,
    missing_target_wait_s,
    step_in_doubt,
    target_removed_reason,
)
from cormorant.rules.watch.wants import Want, WantState
from cormorant.services.watch.parcel_fetcher import ParcelFetcher
from storage.watch import choice, handovers, wants
from storage.watch.choice import CandidateChoice
from storage.watch.wants import Candidate

LOOK_AGAIN_S = 1.0
MISCONFIGURED_S = 600.0
"""How often a target is tried that takes nothing as it is set up: a person has to act."""

MISSED_S = 180.0
"""How often a job is offered anew whose target this process does not know: within the hour one that does gets it, too."""


@frozen(kw_only=True)
class HandoverJob:
    """The handler of the kind `handover`."""

    environment: Environment = field(kw_only=False)
    places: Mapping[str, ConfiguredTarget]
    fetcher: ParcelFetcher
    chooser: CandidateChoice

    async def __call__(self, context: JobContext) -> None:
        """Hand the chosen candidate over; when it turns out bad, the next one."""
        payload = context.payload if isinstance(context.payload, dict) else {}
        want = await context.transaction(wants.by_key, str(payload.get("want", "")))
        if want is None:
            raise Fail('the payload names no want; it is { "want": KEY }')
        under_way = await context.transaction(handovers.live_of, want.id)
        if under_way is None:
            await self._begin(context, want)
        elif under_way.state in {HandoverState.SENDING, HandoverState.IN_DOUBT}:
            await self._find_out(context, want, under_way)
        elif under_way.state is HandoverState.WAITING:
            await self._send_again(context, want, under_way)

    def _is_only_shown(self, context: JobContext) -> bool:
        """Whether nothing may be sent: also what was begun before the mode was changed."""
        by_hand = isinstance(context.payload, dict) and bool(context.payload.get("by_hand"))
        return not self.chooser.is_live and not by_hand

    async def _begin(self, context: JobContext, want: Want) -> None:
        if want.state is not WantState.CHOSEN or want.chosen_ref is None:
            return  # ignored, given up, or chosen anew by somebody else
        candidate = await context.transaction(wants.candidate, want.id, want.chosen_ref)
        if candidate is None:
            raise Fail(f"want {want.id} has no candidate {want.chosen_ref!r}")
        name = self.chooser.target_for(want, candidate.result)
        if name is None or self._is_only_shown(context):
            why = self.chooser.reason_for(want, candidate.result)
            await context.transaction(wants.change, want.id, WantState.CHOSEN, reason=why, now=self.environment.now())
            return
        earlier = await context.transaction(handovers.of_want, want.id)
        key = key_of(want, candidate, times=len(earlier))
        parcel = await self._packed(context, want, candidate, key)
        if isinstance(parcel, str):
            await self._next_candidate(context, want, candidate.ref, parcel)
            return
        now = self.environment.now()
        handover = Handover(
            want_id=want.id,
            ref=candidate.ref,
            target=name,
            key=key,
            title=candidate.result.title,
            facts=facts_of(parcel),
            sent=1,
            created_at=now,
            changed_at=now,
        )
        written = await context.transaction(handovers.begin_sending, handover, now=now)
        if written is None:
            raise Snooze(LOOK_AGAIN_S)  # a person has decided meanwhile
        await self._send(context, want, written, parcel)

    async def _packed(self, context: JobContext, want: Want, candidate: Candidate, key: str) -> Parcel | str:
        """The parcel, or why the candidate is bad."""
        try:
            return await self.fetcher(want, candidate, key)
        except (RateLimitWaitError, SourceLimited) as closed:
            raise Snooze(max(1.0, wait_for_opening_s(closed))) from closed
        except CredentialsRefused as refused:
            raise Snooze(MISCONFIGURED_S) from refused
        except (SourceRefused, TargetRefused) as bad:
            return str(bad)
        except (SourceError, SearchError) as trouble:
            if context.attempt >= context.max_attempts:
                return str(trouble)
            raise Retry(str(trouble)) from trouble

    async def _send(
        self, context: JobContext, want: Want, handover: Handover, parcel: Parcel, *, is_sure: bool = True
    ) -> None:
        """Give it to its target. Unless `is_sure`, it may be there already, from an earlier sending."""
        place = self.places[handover.target]
        put_off = partial(handovers.postpone, is_sure=is_sure)
        try:
            receipt = await place.target.submit(parcel)
        except TargetInDoubt as doubt:
            await self._doubt(context, want, handover, str(doubt))
        except TargetMisconfigured as wrong:
            await context.transaction(put_off, handover, str(wrong), now=self.environment.now())
            raise Snooze(MISCONFIGURED_S) from wrong
        except TargetRefused as refused:
            await self._not_sent(context, want, handover, str(refused), is_sure=is_sure)
        except TargetUnavailable as away:
            await context.transaction(put_off, handover, str(away), now=self.environment.now())
            if away.retry_after_s is not None:
                raise Snooze(max(1.0, away.retry_after_s)) from away
            raise Retry(str(away)) from away
        else:
            await self._arrived(context, want, handover, receipt)

    async def _doubt(self, context: JobContext, want: Want, handover: Handover, why: str) -> None:
        place = self.places[handover.target]
        step = step_in_doubt(can_be_asked=place.target.can_be_asked, asked=0, otherwise=place.in_doubt)
        await context.transaction(handovers.set_in_doubt, handover, why, step=step, now=self.environment.now())
        self._tell_doubt(want, handover, step)
        if step is not NextStep.HOLD:
            raise Snooze(DOUBT_S if step is NextStep.ASK else doubt_s(handover.sent))

    async def _find_out(self, context: JobContext, want: Want, handover: Handover) -> None:
        """It was being sent when the process died, or nobody knows: look before anything is sent again."""
        place = self.places.get(handover.target)
        if place is None:
            await self._miss_target(context, handover)
            return
        step = step_in_doubt(can_be_asked=place.target.can_be_asked, asked=handover.asked, otherwise=place.in_doubt)
        if handover.state is HandoverState.SENDING and step is NextStep.ASK:
            # Some targets show an item only after a while.
            await self._doubt(context, want, handover, "the process ended while it was sent")
        elif step is NextStep.HOLD:
            await self._hold(context, want, handover, "it may have arrived")
        elif step is NextStep.SEND:
            await self._send_again(context, want, handover)
        else:
            await self._ask(context, want, handover, place)

    async def _hold(self, context: JobContext, want: Want, handover: Handover, why: str) -> None:
        hold = partial(handovers.set_in_doubt, step=NextStep.HOLD)
        await context.transaction(hold, handover, why, now=self.environment.now())
        self._tell_doubt(want, handover, NextStep.HOLD)

    async def _ask(self, context: JobContext, want: Want, handover: Handover, place: ConfiguredTarget) -> None:
        try:
            receipt = await place.target.status(parcel_of(handover), None)
        except TargetError as away:
            raise Snooze(max(DOUBT_S, away.retry_after_s or 0.0)) from away
        if receipt.standing is ParcelState.UNKNOWN and receipt.target_id is None:
            if place.in_doubt is InDoubt.HOLD:
                await self._hold(context, want, handover, receipt.reason or "its target cannot say")
            else:
                await self._send_again(context, want, handover)
            return
        if receipt.standing is ParcelState.ABSENT:
            change = partial(handovers.change, asked=handover.asked + 1, reason="its target does not know of it")
            doubted = await context.transaction(change, handover, HandoverState.IN_DOUBT, now=self.environment.now())
            raise Snooze(DOUBT_S if doubted.asked < ASKED_MAX else doubt_s(handover.sent))
        await self._arrived(context, want, handover, receipt)

    async def _send_again(self, context: JobContext, want: Want, handover: Handover) -> None:
        place = self.places.get(handover.target)
        if place is None:
            await self._miss_target(context, handover)
            return
        candidate = await context.transaction(wants.candidate, want.id, handover.ref)
        if candidate is None:
            raise Fail(f"want {want.id} has no candidate {handover.ref!r}")
        has_said_no = place.target.can_be_asked and handover.asked >= ASKED_MAX  # who cannot say has not
        surely_not_there = handover.state is HandoverState.WAITING or has_said_no
        if self._is_only_shown(context):
            if surely_not_there:
                await self._take_back(context, want, handover, candidate)
            else:
                await self._hold(context, want, handover, "observe mode: it is not sent again")
            return
        parcel = await self._packed(context, want, candidate, handover.key)
        if isinstance(parcel, str):
            await self._not_sent(context, want, handover, parcel, is_sure=surely_not_there)
            return
        sending = await context.transaction(handovers.send_again, handover, now=self.environment.now())
        await self._send(context, want, sending, parcel, is_sure=surely_not_there)

    async def _not_sent(self, context: JobContext, want: Want, handover: Handover, why: str, *, is_sure: bool) -> None:
        """It cannot be sent, now or ever."""
        if is_sure:
            await self._failed(context, handover, why)
        else:  # with another candidate it might have two of them
            await self._hold(context, want, handover, f"it cannot be sent again: {why}")

    async def _take_back(self, context: JobContext, want: Want, handover: Handover, candidate: Candidate) -> None:
        """It has not arrived and is not to be sent: as if it had only been chosen."""
        why = "observe mode: it was not sent again"
        reason = self.chooser.reason_for(want, candidate.result)
        decided = await context.transaction(handovers.choose_again, handover, why, reason, now=self.environment.now())
        self._tell_failed(handover, why, decided)

    async def _miss_target(self, context: JobContext, handover: Handover) -> None:
        """Its target is not in the settings of this process. Another may have it, and get the job the next time."""
        now, why = self.environment.now(), target_removed_reason(handover.target)
        missing_s = missing_target_wait_s(handover, now=now)
        if missing_s is None:
            await context.transaction(partial(handovers.change, reason=why), handover, handover.state, now=now)
        if missing_s is None or missing_s < GONE_S:
            raise Snooze(MISSED_S)
        decided = await context.transaction(choice.leave_target, self.chooser, handover, now=now)
        self._tell_failed(handover, why, decided)

    async def _arrived(self, context: JobContext, want: Want, handover: Handover, receipt: ParcelStatus) -> None:
        if receipt.standing is ParcelState.FAILED:
            await self._failed(context, handover, receipt.reason or "its target failed")
            return
        place, now = self.places[handover.target], self.environment.now()
        is_done = receipt.standing is ParcelState.DONE or not place.target.can_be_asked
        next_at = None if is_done else now + timedelta(seconds=place.follow_s)
        changed = await context.transaction(handovers.set_arrived, handover, receipt, next_at=next_at, now=now)
        self.environment.emit(
            HandoverSent(want=want.id, title=handover.title, target=handover.target, times=max(1, handover.sent))
        )
        self.environment.emit(WantChanged.of(changed))

    async def _failed(self, context: JobContext, handover: Handover, why: str) -> None:
        decided = await context.transaction(
            choice.fail_and_choose, self.chooser, handover, why, now=self.environment.now()
        )
        self._tell_failed(handover, why, decided)

    async def _next_candidate(self, context: JobContext, want: Want, ref: str, why: str) -> None:
        decided = await context.transaction(
            choice.reject_chosen, self.chooser, want.id, ref, why, now=self.environment.now()
        )
        self.environment.emit(WantChanged.of(decided))

    def _tell_doubt(self, want: Want, handover: Handover, step: NextStep) -> None:
        self.environment.emit(
            HandoverInDoubt(want=want.id, title=handover.title, target=handover.target, next_step=step.value)
        )

    def _tell_failed(self, handover: Handover, why: str, decided: Want) -> None:
        self.environment.emit(HandoverEnded.of(handover, HandoverState.FAILED, why))
        self.environment.emit(WantChanged.of(decided))


def key_of(want: Want, candidate: Candidate, *, times: int) -> str:
    """What a target recognises this find by, however often it is sent; another one after `times` handovers that failed."""
    told = hashlib.sha256(f"{want.key}\n{candidate.ref}\n{times}".encode()).hexdigest()
    return f"cormorant-{told[:32]}"
