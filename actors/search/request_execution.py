"""Executes one reserved request and turns its end into a result, events and history entries."""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

import trio
from attrs import frozen

from actors.environment import SearchSource
from actors.search.search import Execute, SourceFunction, Ticket
from actors.search.source_requests import PendingRequest
from cormorant.rules.errors import split_crash
from cormorant.rules.search.events import SearchFinished, SearchStarted
from cormorant.rules.search.limits import LearnedLimits
from cormorant.rules.search.outcomes import OutcomeStatus, SourceError, SourceRefused, SourceUnavailable
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest, StatedLimits
from cormorant.rules.search.reservations import (
    PROBE_GRACE_S,
    end_of,
    quota_wait_s,
)
from storage.search.history import HistoryEntry
from storage.search.requests import RequestResult
from storage.search.source_states import ReservationRequest
from storage.search.sources import SourceRecord

_NO_RESULTS = SearchPage(results=())

holding_slot: ContextVar[bool] = ContextVar("holding_slot", default=False)
"""Whether this task makes a request for a source. Who does must not wait for another search."""


@frozen(kw_only=True)
class Execution:
    """What a request returned or raised."""

    page: SearchPage | None = None
    value: object = None
    """What a function other than a search returned."""
    error: BaseException | None = None
    was_cancelled: bool = False
    """Whether we ended it ourselves."""


async def execute(pending: PendingRequest, record: SourceRecord, search: SearchSource) -> Execution:
    """Make the request within its time. Its crash is an outcome like any other."""
    with trio.move_on_after(pending.timeout_s) as pending.scope:
        if not pending.is_live:
            pending.stop()
        try:
            function = pending.terms.function
            if function is None:
                return Execution(page=await search(record, pending.request))
            value = await function(record)
            return Execution(page=value if isinstance(value, SearchPage) else _NO_RESULTS, value=value)
        except BaseException as raised:  # noqa: BLE001 - foreign code; what is not its crash goes on up
            crash, rest = split_crash(raised)
            if rest is not None:
                raise rest from None
            return Execution(error=crash)
    if pending.is_stopped:
        return Execution(was_cancelled=True)
    return Execution(error=SourceUnavailable(f"{record.name} did not answer within {pending.timeout_s:g} s"))


def searching_with(function: Execute, request: SearchRequest) -> SourceFunction:
    """The search of a program that brings its own client."""

    async def search(record: SourceRecord) -> SearchPage:
        return _page_of(await _awaited(function(record, request)))

    return search


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


def result_of(ended: Execution, source: str, *, took_s: float, waited_s: float, now: datetime) -> RequestResult:
    """What follows from an answer or an error."""
    if ended.page is not None:
        stated = ended.page.limits
        end = end_of(None, learned=learned_from(stated), quota_wait_s=quota_wait_s(stated, now=now))
        return RequestResult(
            end=end,
            status=OutcomeStatus.FOUND,
            results=ended.page.results,
            value=ended.value,
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
    if stated is None or not stated.states_any:
        return None
    return LearnedLimits(per_day=stated.api_max, grabs_per_day=stated.grab_max, per_minute=stated.rate_limit)


def reservation_request_of(pending: PendingRequest, now: datetime) -> ReservationRequest:
    """What is reserved for a pending request."""
    return ReservationRequest(
        lane=pending.lane,
        priority=pending.priority,
        lease_s=pending.timeout_s + PROBE_GRACE_S,
        pace_s=pending.terms.pace_s,
        waited_s=(now - pending.submitted_at).total_seconds(),
        consumer=pending.terms.consumer,
        share=pending.terms.share,
    )


def started(ticket: Ticket, waited_s: float) -> SearchStarted:
    """What is told when the source is asked, for one of those who wait."""
    return SearchStarted(
        search_id=ticket.search.id, source=ticket.source, priority=ticket.priority.name.lower(), waited_s=waited_s
    )


def finished(ticket: Ticket, result: RequestResult, status: OutcomeStatus) -> SearchFinished:
    """The event of one search that waited for a request."""
    return SearchFinished(
        search_id=ticket.search.id,
        source=ticket.source,
        status=status.value,
        results=len(result.results),
        waited_s=result.waited_s,
        took_s=result.took_s,
        error=None if result.error is None else str(result.error),
        was_cut=result.was_cut,
    )


def history_entry(ticket: Ticket, record: SourceRecord, result: RequestResult, now: datetime) -> HistoryEntry:
    """What the history keeps of one search that waited for a request."""
    return HistoryEntry(
        search_id=ticket.search.id,
        task=ticket.sequence,
        source=record.name,
        query=ticket.request.query,
        priority=ticket.priority,
        consumer=ticket.terms.consumer,
        status=result.status.value,
        results=len(result.results),
        started_at=now - timedelta(seconds=result.took_s),
        took_s=result.took_s,
        waited_s=result.waited_s,
        error=None if result.error is None else f"{type(result.error).__name__}: {result.error}",
    )
