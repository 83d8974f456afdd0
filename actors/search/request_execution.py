"""How is one request made, and what is kept of how it ended?"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

import trio
from attrs import frozen
from sqlalchemy import Connection

from actors.search.search import Ticket
from actors.search.source_requests import PendingRequest
from cormorant.rules.errors import split_crash
from cormorant.rules.ports import Clock
from cormorant.rules.search.events import RequestFinished, SearchFinished, SearchStarted
from cormorant.rules.search.limits import Lane, LearnedLimits, SourceLimits
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, SourceError, SourceRefused, SourceUnavailable
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest, StatedLimits
from cormorant.rules.search.reservations import (
    PROBE_GRACE_S,
    EndKind,
    RequestEnd,
    RequestPermit,
    Reserved,
    SourceClosedNow,
    end_of,
    quota_wait_s,
)
from storage.search import answers, history, source_states
from storage.search.history import HistoryEntry
from storage.search.source_states import KnownState, ReservationRequest
from storage.search.sources import SourceRecord

Ask = Callable[[SourceRecord, SearchRequest], Awaitable[SearchPage]]
"""The usual way to ask a source: the client of its kind."""

holding_slot: ContextVar[bool] = ContextVar("holding_slot", default=False)
"""Whether this task makes a request for a source. Who does must not wait for another search."""


@frozen(kw_only=True)
class Execution:
    """What an execute function returned or raised."""

    page: SearchPage | None = None
    error: BaseException | None = None
    was_cancelled: bool = False
    """Whether we ended it ourselves."""


async def execute(flight: PendingRequest, record: SourceRecord, ask: Ask) -> Execution:
    """Make the request within its time. Its crash is an outcome like any other."""
    with trio.move_on_after(flight.timeout_s) as flight.scope:
        if not flight.is_live:
            flight.stop()
        try:
            function = flight.execute
            if function is None:
                return Execution(page=await ask(record, flight.request))
            return Execution(page=_page_of(await _awaited(function(record, flight.request))))
        except BaseException as raised:  # noqa: BLE001 - foreign code; what is not its crash goes on up
            crash, rest = split_crash(raised)
            if rest is not None:
                raise rest from None
            return Execution(error=crash)
    if flight.is_stopped:
        return Execution(was_cancelled=True)
    return Execution(error=SourceUnavailable(f"{record.name} did not answer within {flight.timeout_s:g} s"))


async def _awaited(returned: Any) -> Any:
    if not inspect.isawaitable(returned):
        raise TypeError("the execute function is not async: make it `async def`")
    return await returned


def _page_of(found: Any) -> SearchPage:
    if isinstance(found, SearchPage):
        return found
    results = tuple(found or ())
    strange = next((each for each in results if not isinstance(each, Result)), None)
    if strange is not None:
        raise TypeError(f"the execute function returned {type(strange).__name__}, not results")
    return SearchPage(results=results)


@frozen(kw_only=True)
class RequestResult:
    """How a request ended: what follows for its source, and what those who wait are told."""

    end: RequestEnd
    status: OutcomeStatus
    results: tuple[Result, ...] = ()
    error: BaseException | None = None
    took_s: float = 0.0
    waited_s: float = 0.0
    was_cut: bool = False

    @property
    def was_cancelled(self) -> bool:
        """Whether we ended it ourselves."""
        return self.status is OutcomeStatus.CANCELLED

    def outcome(self, source: str, status: OutcomeStatus) -> Outcome:
        """What those who wait are told; each gets it under the number of its own search."""
        return Outcome(
            job_id=0,
            source=source,
            status=status,
            results=self.results,
            coverage=(source,) if status is OutcomeStatus.FOUND else (),
            error=self.error,
            waited_s=self.waited_s,
            took_s=self.took_s,
            was_cut=self.was_cut,
        )

    def finished(self, ticket: Ticket, status: OutcomeStatus) -> SearchFinished:
        """What is told of it for one of those who waited."""
        return SearchFinished(
            search_id=ticket.search.id,
            source=ticket.source,
            status=status.value,
            results=len(self.results),
            waited_s=self.waited_s,
            took_s=self.took_s,
            error=None if self.error is None else str(self.error),
            was_cut=self.was_cut,
        )

    def request_finished(self, source: str, lane: Lane, status: OutcomeStatus) -> RequestFinished:
        """What is told of the request itself, however many waited for it."""
        return RequestFinished(
            source=source, lane=lane.value, outcome=status.value, waited_s=self.waited_s, took_s=self.took_s
        )


def landing_of(ended: Execution, source: str, *, took_s: float, waited_s: float, now: datetime) -> RequestResult:
    """What follows from an answer or an error."""
    if ended.page is not None:
        stated = ended.page.limits
        end = end_of(None, learned=learned_from(stated), quota_wait_s=quota_wait_s(stated, now=now))
        return RequestResult(
            end=end,
            status=OutcomeStatus.FOUND,
            results=ended.page.results,
            took_s=took_s,
            waited_s=waited_s,
            was_cut=ended.page.was_cut,
        )
    error = ended.error
    if isinstance(error, SourceError):
        error.source = source
    status = OutcomeStatus.REFUSED if isinstance(error, SourceRefused) else OutcomeStatus.FAILED
    return RequestResult(end=end_of(error), status=status, error=error, took_s=took_s, waited_s=waited_s)


def learned_from(stated: StatedLimits | None) -> LearnedLimits | None:
    """The limits that a source states of itself: counts of a rolling day, and of a minute in its headers.

    >>> learned = learned_from(StatedLimits(api_max=100, grab_max=20))
    >>> learned.per_day, learned.grabs_per_day, learned.per_minute
    (100, 20, None)
    """
    if stated is None or not stated.says_anything:
        return None
    return LearnedLimits(per_day=stated.api_max, grabs_per_day=stated.grab_max, per_minute=stated.rate_limit)


def wish_of(flight: PendingRequest, now: datetime) -> ReservationRequest:
    """What is to be reserved for a flight."""
    return ReservationRequest(
        lane=flight.lane,
        priority=flight.priority,
        lease_s=flight.timeout_s + PROBE_GRACE_S,
        pace_s=flight.pace_s,
        waited_s=(now - flight.submitted_at).total_seconds(),
        consumer=flight.consumer,
    )


def started(ticket: Ticket, waited_s: float) -> SearchStarted:
    """What is told when the source is asked, for one of those who wait."""
    return SearchStarted(
        search_id=ticket.search.id, source=ticket.source, priority=ticket.priority.name.lower(), waited_s=waited_s
    )


@frozen
class CachedAnswer:
    """An answer that another process has got meanwhile."""

    results: Sequence[Result]


def reserve_now(  # noqa: PLR0913 - one look at the database has all that it needs, by name
    connection: Connection,
    source_id: int,
    wish: ReservationRequest,
    *,
    configured: SourceLimits,
    clock: Clock,
    hint: KnownState | None = None,
    key: str | None = None,
) -> tuple[Reserved | SourceClosedNow, KnownState] | tuple[CachedAnswer, None]:
    """Spend a request as of the moment at which the database takes it, and not as of that at which we came to it.

    A call may be held through an outage; counted from before it, a window would open while the request still counts. Nothing
    is spent where the answer is kept under `key` by now.
    """
    if key is not None and (kept := answers.find_cached(connection, [source_id], key, now=clock.now())):
        return CachedAnswer(kept[source_id]), None
    return source_states.reserve(connection, source_id, wish, configured=configured, now=clock.now(), hint=hint)


def record_landing(  # noqa: PLR0913 - all that is written at the end of a request, in one transaction
    connection: Connection,
    record: SourceRecord,
    permit: RequestPermit,
    landing: RequestResult,
    *,
    tickets: Sequence[Ticket],
    key: str | None,
    ttl_s: float,
    now: datetime,
    is_in_doubt: bool = False,
    hint: KnownState | None = None,
) -> KnownState:
    """Keep the state of the source, the history and the answer. In doubt, only if that was not done before."""
    if is_in_doubt and not source_states.is_in_flight(connection, record.id, permit):
        return source_states.look(connection, record.id, configured=record.limits)
    known = source_states.finish(
        connection, record.id, permit, landing.end, configured=record.limits, now=now, hint=hint
    )
    history.record(connection, [_asked(ticket, record, landing, now) for ticket in tickets])
    if key is None or ttl_s <= 0:
        return known  # nothing is kept, so nothing is to be forgotten
    # A cut answer is not kept: a search with a longer time-out may find more.
    if landing.end.kind is EndKind.ANSWERED and not landing.was_cut:
        answers.put_cached(connection, record.id, key, landing.results, ttl_s=ttl_s, now=now)
    else:
        answers.drop_cached(connection, record.id, key)
    return known


def _asked(ticket: Ticket, record: SourceRecord, landing: RequestResult, now: datetime) -> HistoryEntry:
    return HistoryEntry(
        search_id=ticket.search.id,
        task=ticket.sequence,
        source=record.name,
        query=ticket.request.query,
        priority=ticket.priority,
        consumer=ticket.consumer,
        status=landing.status.value,
        results=len(landing.results),
        started_at=now - timedelta(seconds=landing.took_s),
        took_s=landing.took_s,
        waited_s=landing.waited_s,
        error=None if landing.error is None else f"{type(landing.error).__name__}: {landing.error}",
    )
