"""What becomes of finds: which one is chosen, and is it handed over or only shown?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.search.outcomes import Outcome
from cormorant.rules.search.requests import Result
from cormorant.rules.watch.handovers import Handover, HandoverState, ParcelKind, told_gone
from cormorant.rules.watch.profiles import Judgement, Profile, best_first, judge
from cormorant.rules.watch.wants import Want, WantState
from storage.jobs import jobs
from storage.jobs.jobs import NewJob
from storage.watch import handovers, wants

Judged = tuple[str, Result, Judgement]

KINDS_OF: Final[Mapping[str, frozenset[ParcelKind]]] = {
    "torrent": frozenset({ParcelKind.TORRENT, ParcelKind.MAGNET}),
    "usenet": frozenset({ParcelKind.NZB}),
    "soulseek": frozenset({ParcelKind.FILES}),
    "web": frozenset({ParcelKind.URL}),
}
"""What a find of each protocol becomes when it is fetched."""


@frozen(kw_only=True)
class CandidateChoice:
    """Judges finds by the profile of their want, and says what follows."""

    profiles: Mapping[str, Profile]
    takes: Mapping[str, frozenset[ParcelKind]]
    """What each target takes."""
    is_live: bool
    make_handover: Callable[[Want], NewJob]

    def judge(self, want: Want, found: Sequence[tuple[str, Result]], *, now: datetime) -> list[Judged]:
        """What the profile of a want says of finds."""
        profile = self.profiles.get(want.profile or "default", Profile())
        return [(source, result, judge(profile, result, now=now)) for source, result in found]

    def target_for(self, want: Want, result: Result) -> str | None:
        """The first target of a want that takes such a find."""
        kinds = KINDS_OF[result.protocol]
        return next((name for name in want.targets if self.takes.get(name, frozenset()) & kinds), None)

    def choose(self, connection: Connection, want: Want, judged: Sequence[Judged], *, now: datetime) -> Want | None:
        """Keep what was found and take the best that was not tried in vain; None when nothing fits."""
        refs = [wants.ref_of(source, result) for source, result, _ in best_first(judged)]
        wants.set_candidates(connection, want.id, judged, ranked=refs, now=now)
        return self.take_best(connection, want, now=now)

    def take_best(self, connection: Connection, want: Want, *, now: datetime) -> Want | None:
        """The best candidate that is left is chosen; in live mode a job hands it over."""
        best = wants.best_left(connection, want.id)
        if best is None:
            return None
        target = self.target_for(want, best.result)
        is_sent = self.is_live and target is not None
        chosen = wants.change(
            connection,
            want.id,
            WantState.CHOSEN,
            reason=self.reason_for(want, best.result),
            chosen_ref=best.ref,
            next_at=now if is_sent else None,
            now=now,
        )
        if is_sent:
            jobs.enqueue(connection, self.make_handover(want), now=now)
        return chosen

    def reason_for(self, want: Want, result: Result) -> str:
        """In words, what becomes of a find that was chosen."""
        target = self.target_for(want, result)
        if not want.targets:
            return "fits; no target is set to hand it to"
        gone = [name for name in want.targets if name not in self.takes]
        if target is None and gone:
            remedy = f"write [targets.{gone[0]}] again, or let another have it: cormorant wants hand-over {want.id}"
            return f"fits; {told_gone(gone[0])}: {remedy}"
        if target is None:
            return f"fits; none of {', '.join(want.targets)} takes a find of {result.protocol}"
        return f"is handed to {target}" if self.is_live else f"observe mode: would be handed to {target}"


def why_chosen(want: Want, judged: Sequence[Judged]) -> str:
    """In words, how many finds fit, which one goes first and by what merit, and what becomes of it."""
    fit = sum(judgement.is_accepted for _, _, judgement in judged)
    counted = f"{fit} of {len(judged)} fit"
    for source, result, judgement in judged:
        if wants.ref_of(source, result) == want.chosen_ref:
            merits = f" for {', '.join(judgement.merits)}" if judgement.merits else ""
            return f"{counted}, first {result.title[:80]!r} at {source}{merits}; {want.reason}"
    return f"{counted}; {want.reason}"


def why_nothing_fits(judged: Sequence[Judged], asked: Sequence[str], failed: Sequence[Outcome] = ()) -> str:
    """In words, why no find was chosen."""
    without = "".join(f"; {each.source} failed: {str(each.error)[:100]}" for each in failed)
    if not judged:
        return f"nothing found at {', '.join(asked) or 'any source'}{without}"
    _, result, judgement = judged[0]
    first = "; ".join(judgement.reasons) or "tried in vain"
    return f"no candidate: {len(judged)} rejected, such as {result.title[:80]!r} ({first}){without}"


def fail_and_choose(
    connection: Connection, chooser: CandidateChoice, handover: Handover, why: str, *, now: datetime
) -> Want:
    """A handover failed: its candidate is not tried again, and the next one is chosen. May raise `HandoverChanged`."""
    handovers.change(connection, handover, HandoverState.FAILED, reason=why, now=now)
    return _reject_and_choose(connection, chooser, handover.want_id, handover.ref, why, now=now)


def leave_target(connection: Connection, chooser: CandidateChoice, handover: Handover, *, now: datetime) -> Want:
    """The target of a handover is gone. What surely is not there is chosen anew; else a person has to look there."""
    why = told_gone(handover.target)
    handovers.change(connection, handover, HandoverState.FAILED, reason=why, now=now)
    want = wants.find(connection, handover.want_id)
    if handover.state is HandoverState.WAITING:
        chosen = chooser.take_best(connection, want, now=now)
        if chosen is not None:
            return chosen
    reason = (
        f"{why}, and whether it has it is not known; write [targets.{handover.target}] again, "
        f"or look there and hand it to another: cormorant wants retry {want.id}"
    )
    return wants.change(connection, want.id, WantState.GAVE_UP, reason=reason, now=now)


def reject_chosen(
    connection: Connection, chooser: CandidateChoice, want_id: int, ref: str, why: str, *, now: datetime
) -> Want:
    """A candidate cannot be had; unless a person has decided meanwhile, the next one is chosen."""
    want = wants.find(connection, want_id, lock=True)
    if want.state is WantState.CHOSEN and want.chosen_ref == ref:
        return _reject_and_choose(connection, chooser, want_id, ref, why, now=now)
    wants.reject_candidate(connection, want_id, ref, why)
    return want


def _reject_and_choose(
    connection: Connection, chooser: CandidateChoice, want_id: int, ref: str, why: str, *, now: datetime
) -> Want:
    wants.reject_candidate(connection, want_id, ref, why)
    want = wants.find(connection, want_id)
    chosen = chooser.take_best(connection, want, now=now)
    if chosen is not None:
        return chosen
    reason = f"every candidate was tried in vain; the last: {why}"
    return wants.change(connection, want_id, WantState.GAVE_UP, reason=reason, now=now)
