"""Transactions that judge, choose and give up a want; decisions by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.errors import NotFound
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus
from cormorant.rules.search.requests import Result
from cormorant.rules.watch.feeds import DueFeed, FeedEntryItem, result_of, want_of
from cormorant.rules.watch.handovers import Handover, HandoverState, ParcelKind, target_removed_reason
from cormorant.rules.watch.profiles import Judgement, Profile, best_first, judge
from cormorant.rules.watch.wants import CannotHandOver, Want, WantState, check_by_hand, short_ref
from cormorant.rules.watch.watches import FirstCheck, SavedSearch, known_to, want_for
from storage.jobs import jobs
from storage.jobs.jobs import NewJob
from storage.search import answers
from storage.search.answers import SourceAnswer
from storage.watch import artists, handovers, saved_searches, wants, watches
from storage.watch.artists import ARTIST
from storage.watch.feeds import FEED
from storage.watch.saved_searches import SAVED
from storage.watch.wants import Candidate, WantView
from storage.watch.watches import WatchKind

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
            return f"fits; {target_removed_reason(gone[0])}: {remedy}"
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
    why = target_removed_reason(handover.target)
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


@frozen(kw_only=True)
class WatchTargets:
    """Targets that exist, and those that artists use unless their watch names others."""

    configured: frozenset[str]
    usual: tuple[str, ...] = ()


def view(connection: Connection, want_id: int) -> WantView:
    """A want with its candidates and handovers, or `NotFound`."""
    return WantView(
        want=wants.find(connection, want_id),
        candidates=tuple(wants.candidates(connection, want_id)),
        handovers=tuple(handovers.of_want(connection, want_id)),
    )


def take_found(
    connection: Connection, chooser: CandidateChoice, want: Want, source: str, result: Result, *, now: datetime
) -> Want | None:
    """Record a want for a result that fits its profile, and choose the result; None when it does not fit or is known."""
    judged = chooser.judge(want, [(source, result)], now=now)
    if not judged[0][2].is_accepted:
        return None
    there = wants.want(connection, want)
    return None if there is None else chooser.choose(connection, there, judged, now=now)


@frozen(kw_only=True)
class SavedSearchCheck:
    """What one check of a saved search brought: results with their sources, and the sources that answered."""

    found: Sequence[tuple[str, Result]]
    answered: Sequence[str]
    error: str | None
    is_last: bool = True
    """Whether no source is asked again in this check."""
    now: datetime


def record_saved_check(
    connection: Connection, chooser: CandidateChoice, saved: SavedSearch, check: SavedSearchCheck, *, job_id: int
) -> int:
    """Record what a check of a saved search has brought and want what is new and fits. Returns the number of new wants.

    The sources that have answered are noted for the next run of the job, until the last run.
    """
    if check.is_last:
        answers.drop_answers(connection, job_id)
    else:
        noted = [
            SourceAnswer(source=source, status=OutcomeStatus.FOUND.value, answered_at=check.now, results=())
            for source in check.answered
        ]
        answers.record_answers(connection, job_id, noted)
    checked = check.now if check.answered else None
    if not saved_searches.end_check(
        connection, saved, answered=check.answered, error=check.error, has_ended=check.is_last, now=checked
    ):
        return 0  # it was removed
    wanted = 0
    for source, result in check.found:
        # The first answer of each source: one that was closed at first has no news later, but all that it has.
        is_first = saved.first_check is FirstCheck.SKIP and source not in saved.answered
        want = want_for(saved, source, result, now=check.now)
        known = known_to(saved, want)
        if is_first:
            wants.want(connection, known)
        elif (
            wants.by_key(connection, known.key) is None
            and take_found(connection, chooser, want, source, result, now=check.now) is not None
        ):
            wanted += 1
    return wanted


def record_feed_items(
    connection: Connection, chooser: CandidateChoice, feed: DueFeed, new: Sequence[FeedEntryItem], *, now: datetime
) -> int:
    """Want each new item of a feed, with itself as the only candidate. Returns the number of new wants."""
    source = f"feed:{feed.name}"
    found = [
        take_found(connection, chooser, want_of(feed, item, now), source, result_of(item), now=now) for item in new
    ]
    return sum(want is not None for want in found)


def begin_search(connection: Connection, key: str, *, now: datetime) -> Want | None:
    """Set a want to searching; None when there is nothing to search for. A want whose next search is later stays wanted."""
    want = wants.by_key(connection, key)
    if want is None or want.state is WantState.SEARCHING:
        return want
    if want.state is not WantState.WANTED:
        return None
    if want.next_at is not None and want.next_at > now:
        return want  # its job was lost after the last search; that is no reason to search sooner
    return wants.change(connection, want.id, WantState.SEARCHING, reason="is searched", now=now)


def decide(  # noqa: PLR0913 - all that one decision is made of
    connection: Connection,
    chooser: CandidateChoice,
    want: Want,
    judged: Sequence[Judged],
    *,
    why: str,
    job_id: int,
    tracks: Sequence[Want],
    make_job: Callable[[Want], NewJob],
    again_at: datetime | None,
    now: datetime,
) -> Want | None:
    """Choose a candidate. Without one, want the tracks one by one, search again later, or give up.

    None: a person has decided in the meantime.
    """
    if wants.find(connection, want.id, lock=True).state is not WantState.SEARCHING:
        return None
    chosen = chooser.choose(connection, want, judged, now=now)
    if chosen is not None:
        return chosen
    answers.drop_answers(connection, job_id)  # the next search asks every source again
    if tracks:
        artists.record_wants(connection, [(track, make_job(track)) for track in tracks], now=now)
        reason = f"no whole album; its {len(tracks)} tracks are wanted one by one"
        return wants.change(connection, want.id, WantState.GAVE_UP, reason=reason, looks=want.looks + 1, now=now)
    if again_at is None:
        return wants.change(connection, want.id, WantState.GAVE_UP, reason=why, looks=want.looks + 1, now=now)
    return wants.change(
        connection, want.id, WantState.WANTED, reason=why, looks=want.looks + 1, next_at=again_at, now=now
    )


def search_again(
    connection: Connection,
    want_id: int,
    *,
    targets: WatchTargets,
    make_job: Callable[[Want], NewJob],
    now: datetime,
) -> Want:
    """Search at once for a want that was given up, ignored or not found yet."""
    there = wants.find(connection, want_id, lock=True)
    check_by_hand(there)
    _renew_targets(connection, there, targets)
    want = wants.change(connection, want_id, WantState.WANTED, reason="asked for by hand", looks=0, now=now)
    wants.unreject_candidates(connection, want_id)
    _enqueue_now(connection, make_job(want), now=now)
    return want


def hand_over(  # noqa: PLR0913 - one decision of a person, by name
    connection: Connection,
    want_id: int,
    ref: str | None,
    *,
    chooser: CandidateChoice,
    targets: WatchTargets,
    make_job: Callable[[Want], NewJob],
    now: datetime,
) -> Want:
    """Hand over the chosen candidate, or the one that `ref` names. Raises `CannotHandOver`."""
    want = wants.find(connection, want_id, lock=True)
    check_by_hand(want)
    want = _renew_targets(connection, want, targets)
    if not want.targets:
        raise CannotHandOver(f"want {want_id} has no target; set hand_to for its watch")
    candidate = _candidate(connection, want, ref)
    if chooser.target_for(want, candidate.result) is None:
        gone = [target_removed_reason(name) for name in want.targets if name not in targets.configured]
        told = f"none of its targets ({', '.join(want.targets)}) takes a find of {candidate.result.protocol}"
        raise CannotHandOver(f"want {want_id}: {'; '.join([*gone, told])}; `cormorant targets list` shows all")
    chosen = wants.change(
        connection,
        want_id,
        WantState.CHOSEN,
        reason="is handed over by hand",
        chosen_ref=candidate.ref,
        next_at=now,
        now=now,
    )
    _enqueue_now(connection, make_job(want), now=now)
    return chosen


def settle(
    connection: Connection, number: int, *, has_arrived: bool, make_job: Callable[[Want], NewJob], now: datetime
) -> Want:
    """Decide about a handover that is held: it has arrived, or it is sent again. Raises `CannotHandOver`."""
    handover = handovers.find(connection, number)
    if handover.state is not HandoverState.HELD:
        raise CannotHandOver(f"download {number} is {handover.state.value}; only what is held can be decided")
    if has_arrived:
        handovers.change(connection, handover, HandoverState.DONE, reason="decided by hand", now=now)
        return wants.change(connection, handover.want_id, WantState.DONE, reason="decided by hand", now=now)
    handovers.change(connection, handover, HandoverState.WAITING, reason="decided by hand", now=now)
    want = wants.change(connection, handover.want_id, WantState.SENDING, reason="is sent again", now=now)
    _enqueue_now(connection, make_job(want), now=now)
    return want


def _candidate(connection: Connection, want: Want, ref: str | None) -> Candidate:
    """The candidate that is meant: by its ref, by the short form of it that is shown, or the one that was chosen."""
    known = wants.candidates(connection, want.id)
    wanted = ref or want.chosen_ref
    found = next((each for each in known if wanted in {each.ref, short_ref(each.ref)}), None)
    if found is None:
        raise CannotHandOver(f"want {want.id} has no such candidate; `cormorant wants show {want.id}` lists them")
    return found


def _enqueue_now(connection: Connection, job: NewJob, *, now: datetime) -> None:
    """Enqueue a job that is due now, also when such a job waits for a later time."""
    jobs.enqueue(connection, job, now=now)
    assert job.dedupe_key is not None
    jobs.make_due_now(connection, job.kind, job.dedupe_key, now=now)


def _renew_targets(connection: Connection, want: Want, targets: WatchTargets) -> Want:
    """If none of its targets is configured any more, those that its watch has now."""
    if any(name in targets.configured for name in want.targets):
        return want
    return wants.set_targets(connection, want, _targets_of(connection, want.watch, targets) or want.targets)


def _targets_of(connection: Connection, watch: str, targets: WatchTargets) -> tuple[str, ...]:
    """The configured targets that a watch, such as artist:12, hands over to now."""
    kind, _, name = watch.partition(":")
    named: Sequence[str] = ()
    with suppress(NotFound):
        if kind in _KINDS:
            named = watches.find(connection, _KINDS[kind], name).targets
    there = tuple(each for each in named if each in targets.configured)
    usual = targets.usual if kind == "artist" else ()
    return there or tuple(each for each in usual if each in targets.configured)


_KINDS: Final[Mapping[str, WatchKind[Any]]] = {"artist": ARTIST, "saved": SAVED, "feed": FEED}
"""The kinds of watches that a want names, such as artist:12."""
