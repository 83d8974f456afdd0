"""Every reason for which a request waits, when each clears, and explain.

Every limit on outgoing requests is decided here and nowhere else. `now` is what the caller's clock says; what counts is the
later of it and of what was last written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

from attrs import define, field, frozen

from cormorant.rules.search.breaker import PROBES_MAX, BreakerState
from cormorant.rules.search.limits import (
    Edges,
    Lane,
    SourceLimits,
    Window,
    WindowName,
    edge_opens_at,
    has_windows,
    tokens_at,
    windows_of,
)
from cormorant.rules.search.priorities import AGEING_STEP_S, Priority, aged, multiplier
from cormorant.rules.search.source_state import LaneState, SourceState, leases_of, newest_time
from cormorant.rules.units import clock_time, rough

__all__ = [
    "Explanation",
    "NextRequest",
    "Reason",
    "ReasonName",
    "earliest_opening",
    "explain",
    "next_opening",
    "openings",
    "recheck_at",
    "set_aside",
    "share_reason",
    "whole_second",
]


class ReasonName(StrEnum):
    """The gates, in the order in which they are looked at."""

    ENABLED = "enabled"
    STOPPED = "stopped"
    PAUSED = "paused"
    BREAKER = "breaker"
    COOLDOWN = "cooldown"
    IN_FLIGHT = "in_flight"
    SPACING = "spacing"
    PACE = "pace"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    RESET = "reset"
    """The day, where the site's own begins at a fixed hour."""
    MONTH = "month"
    APP_SHARE = "app_share"
    """The part of an hour, a day or a month that one app may use."""


_WORDS = {
    ReasonName.ENABLED: "its being enabled",
    ReasonName.STOPPED: "new credentials",
    ReasonName.PAUSED: "the end of its pause",
    ReasonName.BREAKER: "the breaker",
    ReasonName.COOLDOWN: "the end of its cooldown",
    ReasonName.IN_FLIGHT: "the request in flight",
    ReasonName.MINUTE: "the limit per minute",
    ReasonName.HOUR: "the limit per hour",
    ReasonName.DAY: "the limit per day",
    ReasonName.RESET: "the limit per day",
    ReasonName.MONTH: "the limit per month",
    ReasonName.APP_SHARE: "the share of the app",
}
_COUNTED = {Lane.QUERY: "queries", Lane.GRAB: "grabs"}


@frozen(kw_only=True)
class Reason:
    """One thing in the way."""

    name: ReasonName
    opens_at: datetime | None
    """None: nobody knows; a person has to act, or a request has to end."""
    why: str
    recheck_at: datetime | None = None
    """When a gate without a known opening opens at the latest; None: by hand only."""


@frozen(kw_only=True)
class NextRequest:
    """A request that is to go, and what its source may look at.

    One that has `waited_s` keeps the pace of its aged class, but never draws on what is kept for people: else every backlog
    would, after a quarter of an hour.
    """

    lane: Lane = Lane.QUERY
    priority: Priority = Priority.BACKGROUND
    pace_s: float | None = None
    """None: the pace of the source."""
    waited_s: float = 0.0
    share_reason: Reason | None = None
    """Why its app has to wait, as `share_reason` says; None: the app has some of its share left, or all is open to it."""


@define(kw_only=True)
class _ReasonContext:
    """One look at a source, for one request."""

    state: SourceState
    limits: SourceLimits
    request: NextRequest
    aged: Priority
    at: datetime
    edges: Edges
    pace_s: float

    @property
    def own(self) -> LaneState:
        return self.state.lane(self.request.lane)


def openings(
    state: SourceState, limits: SourceLimits, request: NextRequest, *, now: datetime, edges: Edges
) -> tuple[Reason, ...]:
    """The gates that are in the way now, in order. Empty: the request may go. `edges` holds what `edges_wanted` names.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> state = SourceState(query=LaneState(last_seq=1, last_at=noon, last_end_at=noon))
    >>> reasons = openings(state, SourceLimits(), NextRequest(priority=Priority.RSS), now=noon, edges={})
    >>> [f"{reason.name} {reason.opens_at:%H:%M:%S}" for reason in reasons]
    ['spacing 12:00:02', 'pace 12:00:30']
    """
    look = _ReasonContext(
        state=state,
        limits=limits,
        request=request,
        aged=aged(request.priority, request.waited_s),
        at=newest_time(state, now),
        edges=edges,
        pace_s=limits.pace_s if request.pace_s is None else request.pace_s,
    )
    # What cannot be in the way is not looked at: of most sources that is all but the intervals.
    reasons = list(_intervals(look))
    if state.breaker.state is not BreakerState.CLOSED or state.cooldown.until is not None:
        reasons[:0] = _health(look)
    if not state.is_enabled or state.is_paused or state.paused_until or state.stopped_because is not None:
        reasons[:0] = _by_hand(look)
    if has_windows(limits):
        reasons += _quotas(look)
    share = request.share_reason
    if share is not None and share.opens_at is not None and look.at < share.opens_at:
        reasons.append(share)
    return tuple(reasons)


def next_opening(reasons: Sequence[Reason], *, now: datetime) -> datetime | None:
    """When the last of the gates opens; None: nobody knows. With no gate in the way, now."""
    return _last_of([reason.opens_at for reason in reasons], now)


def recheck_at(reasons: Sequence[Reason], *, now: datetime) -> datetime | None:
    """When it is worth looking again at the latest, though something may end before; None: only once a person acted."""
    return _last_of([reason.opens_at or reason.recheck_at for reason in reasons], now)


def _last_of(times: Sequence[datetime | None], now: datetime) -> datetime | None:
    known = [time for time in times if time is not None]
    return max([now, *known]) if len(known) == len(times) else None


def earliest_opening(
    state: SourceState, limits: SourceLimits, request: NextRequest, *, now: datetime, edges: Edges
) -> datetime | None:
    """When a request can go that waits from now on: sooner than its class says if it grows older than a step before.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> state = SourceState(query=LaneState(last_seq=1, last_at=noon, last_end_at=noon))
    >>> slow = SourceLimits(pace_s=1_000)
    >>> earliest = earliest_opening(state, slow, NextRequest(priority=Priority.RSS), now=noon, edges={})
    >>> f"{earliest:%H:%M:%S}"
    '12:05:00'
    """
    reasons = openings(state, limits, request, now=now, edges=edges)
    others = [reason for reason in reasons if reason.name is not ReasonName.PACE]
    rest_opens_at = next_opening(others, now=now)
    if rest_opens_at is None or len(others) == len(reasons):
        return rest_opens_at
    # Only the pace depends on the class. At each step the request can go once both have come: the step and its pace.
    last = _last_that_counts(state.lane(request.lane), limits) or now
    own_pace_s = limits.pace_s if request.pace_s is None else request.pace_s
    priority, waited_s = request.priority, request.waited_s
    waits_s = [waited_s, *(step * AGEING_STEP_S for step in range(1, priority + 1) if step * AGEING_STEP_S > waited_s)]
    return min(
        max(
            rest_opens_at,
            now + timedelta(seconds=wait_s - waited_s),
            last + timedelta(seconds=own_pace_s * multiplier(aged(priority, wait_s))),
        )
        for wait_s in waits_s
    )


@frozen(kw_only=True)
class Explanation:
    """Why a request submitted now waits, in words for people, and when it can go."""

    reasons: tuple[Reason, ...]
    opens_at: datetime | None
    """None: nobody knows. Ageing is counted in, so it may come before the last gate's own opening."""
    lines: tuple[str, ...] = field(repr=False)


def explain(
    state: SourceState,
    limits: SourceLimits,
    request: NextRequest,
    *,
    now: datetime,
    edges: Edges,
    zone: tzinfo = UTC,
) -> Explanation:
    """What is in the way of a request submitted now, a line for each gate.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> state = SourceState(query=LaneState(last_seq=1, last_at=noon, last_end_at=noon - timedelta(seconds=2)))
    >>> limits = SourceLimits(spacing_s=10, pace_s=0)
    >>> explain(state, limits, NextRequest(lane=Lane.GRAB, priority=Priority.RSS), now=noon, edges={}).lines
    ('waits for spacing until 12:00:10: the last request ended 0 s ago and the site allows one every 10 s',)
    """
    reasons = openings(state, limits, request, now=now, edges=edges)
    opens_at = earliest_opening(state, limits, request, now=now, edges=edges)
    lines = [_line(reason, now, zone) for reason in reasons]
    if opens_at is not None and (last := next_opening(reasons, now=now)) is not None and opens_at < last:
        when = clock_time(whole_second(opens_at), now, zone)
        lines.append(f"goes at {when} all the same: by then it has waited long enough to count as more urgent")
    return Explanation(reasons=reasons, opens_at=opens_at, lines=tuple(lines) or ("may go now",))


def set_aside(explanation: Explanation, why: str) -> Explanation:
    """The same, for a source that is not asked at all because what asks it crashed too often.

    >>> nothing = Explanation(reasons=(), opens_at=None, lines=("may go now",))
    >>> set_aside(nothing, "ValueError: odd").lines
    ('waits for a restart of the service: what asks it crashed too often (ValueError: odd)',)
    """
    reason = Reason(name=ReasonName.STOPPED, opens_at=None, why=f"what asks it crashed too often ({why})")
    others = explanation.lines if explanation.reasons else ()
    lines = (f"waits for a restart of the service: {reason.why}", *others)
    return Explanation(reasons=(reason, *explanation.reasons), opens_at=None, lines=lines)


def _line(reason: Reason, now: datetime, zone: tzinfo) -> str:
    until = "" if reason.opens_at is None else f" until {clock_time(whole_second(reason.opens_at), now, zone)}"
    return f"waits for {_WORDS.get(reason.name, reason.name.value)}{until}: {reason.why}"


def whole_second(moment: datetime) -> datetime:
    """Rounded up: a time shown must not be too early."""
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)


def _by_hand(look: _ReasonContext) -> Iterator[Reason]:
    state = look.state
    if not state.is_enabled:
        yield Reason(name=ReasonName.ENABLED, opens_at=None, why="the source is disabled")
    if state.stopped_because is not None:
        yield Reason(
            name=ReasonName.STOPPED,
            opens_at=None,
            why=f"it refused our credentials ({state.stopped_because.partition(';')[0]}); correct them and reset it",
        )
    if state.paused_until is None:
        if state.is_paused:
            yield Reason(name=ReasonName.PAUSED, opens_at=None, why="it was paused by hand; resume it")
    elif look.at < state.paused_until:
        yield Reason(name=ReasonName.PAUSED, opens_at=state.paused_until, why="it was paused for a while")


def _health(look: _ReasonContext) -> Iterator[Reason]:
    breaker, cooldown = look.state.breaker, look.state.cooldown
    if breaker.state is BreakerState.OPEN and breaker.open_until is not None and look.at < breaker.open_until:
        why = f"{look.state.failure_streak} requests in a row failed"
        yield Reason(name=ReasonName.BREAKER, opens_at=breaker.open_until, why=why)
    if breaker.state is BreakerState.HALF_OPEN:
        out = breaker.probes_out(look.at)
        if len(out) >= PROBES_MAX:
            first = min(probe.expires_at for probe in out)
            why = f"it failed before, and {len(out)} probes have not reported yet"
            yield Reason(name=ReasonName.BREAKER, opens_at=None, why=why, recheck_at=first)
    if cooldown.until is not None and look.at < cooldown.until:
        yield Reason(name=ReasonName.COOLDOWN, opens_at=cooldown.until, why="the site told us to slow down")


def _intervals(look: _ReasonContext) -> Iterator[Reason]:
    leases = leases_of(look.state, look.at)
    if len(leases) >= look.limits.in_flight_max:
        # As many must end as are over the limit, which may have been lowered meanwhile.
        ends = sorted(lease.expires_at for lease in leases)
        why = f"{len(leases)} of {look.limits.in_flight_max} allowed at once"
        last = ends[len(ends) - look.limits.in_flight_max]
        yield Reason(name=ReasonName.IN_FLIGHT, opens_at=None, why=why, recheck_at=last)
    is_single = look.limits.in_flight_max == 1
    if is_single and leases:
        return  # intervals count from an end that nobody knows yet
    verb = "ended" if is_single else "began"
    spacing_s, pace_s = look.limits.spacing_s, look.pace_s * multiplier(look.aged)
    if not spacing_s and not pace_s:
        return
    last_query = _last_that_counts(look.state.query, look.limits)
    last_grab = _last_that_counts(look.state.grab, look.limits)
    last_of_all = _latest(last_query, last_grab)
    if last_of_all is not None and look.at < (opens_at := last_of_all + timedelta(seconds=spacing_s)):
        ago = rough((look.at - last_of_all).total_seconds())
        why = f"the last request {verb} {ago} ago and the site allows one every {spacing_s:g} s"
        yield Reason(name=ReasonName.SPACING, opens_at=opens_at, why=why)
    last_own = last_query if look.request.lane is Lane.QUERY else last_grab
    if pace_s > spacing_s and last_own is not None and look.at < (opens_at := last_own + timedelta(seconds=pace_s)):
        ago = rough((look.at - last_own).total_seconds())
        why = (
            f"the last {look.request.lane} {verb} {ago} ago and {look.aged.name.lower()} work keeps {pace_s:g} s apart"
        )
        yield Reason(name=ReasonName.PACE, opens_at=opens_at, why=why)


def _last_that_counts(lane: LaneState, limits: SourceLimits) -> datetime | None:
    """From when intervals count: the end of the last request, or its start where several may run at once.

    One whose end was never recorded may have lasted until its lease expired.
    """
    if limits.in_flight_max > 1:
        return lane.last_at
    return _latest(lane.last_at, lane.last_end_at, *(lease.expires_at for lease in lane.in_flight))


def _latest(*times: datetime | None) -> datetime | None:
    latest = None
    for time in times:
        if time is not None and (latest is None or time > latest):
            latest = time
    return latest


def _quotas(look: _ReasonContext) -> Iterator[Reason]:
    request = look.request
    for window in windows_of(look.limits, request.lane, request.priority):
        opens_at = edge_opens_at(window, look.edges, last_seq=look.own.last_seq)
        if window.name is WindowName.MINUTE:
            opens_at = _latest(opens_at, _bucket_opens_at(look.own, window.limit))
        if opens_at is not None and look.at < opens_at:
            name = ReasonName.RESET if window.reset is not None else ReasonName(window.name.value)
            yield Reason(name=name, opens_at=opens_at, why=_spent(window, request.lane))


def share_reason(
    app: str, lane: Lane, windows: Iterable[Window], nth_latest: Mapping[int, datetime | None]
) -> Reason | None:
    """Until when an app has used its share: the window that opens last. None: it has made too few requests for any.

    `nth_latest` has, for the limit of each window, when its n-th latest request was made.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> from cormorant.rules.search.limits import share_windows
    >>> windows = share_windows(SourceLimits(per_hour=60, per_day=4), Lane.QUERY, 0.25)
    >>> share_reason("sonarr", Lane.QUERY, windows, {15: None, 1: noon}).why
    'sonarr has spent its share, 1 of 4 queries per day'
    """
    # The app's own requests, numbered so that the one that decides is the first.
    times = [(edge_opens_at(each, {1: nth_latest[each.limit]}, last_seq=each.limit), each) for each in windows]
    full = [(opens_at, window) for opens_at, window in times if opens_at is not None]
    if not full:
        return None
    opens_at, window = max(full, key=lambda pair: pair[0])
    why = f"{app} has spent its share, {window.limit} of {window.whole} {_COUNTED[lane]} per {window.name}"
    return Reason(name=ReasonName.APP_SHARE, opens_at=opens_at, why=why)


def _bucket_opens_at(lane: LaneState, per_minute: int) -> datetime | None:
    if lane.tokens is None or lane.tokens_at is None:
        return None
    left = tokens_at(lane.tokens, since=lane.tokens_at, per_minute=per_minute, at=lane.tokens_at)
    return lane.tokens_at + timedelta(seconds=max(0.0, 1 - left) * 60 / per_minute)


def _spent(window: Window, lane: Lane) -> str:
    kept = window.whole - window.limit
    words = f"{window.limit} of {window.whole} {_COUNTED[lane]} per {window.name} are spent"
    if kept:
        words += f" and {kept} are kept for people"
    if window.reset is not None:
        words += f"; the site's day begins at {window.reset:%H:%M} {window.reset_zone}"
    return words
