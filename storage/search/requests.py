"""The two transactions of a request: reserve it, and record its result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.ports import Clock
from cormorant.rules.search.events import RequestFinished
from cormorant.rules.search.limits import Lane, SourceLimits
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus
from cormorant.rules.search.requests import Result
from cormorant.rules.search.reservations import EndKind, RequestEnd, RequestPermit, Reserved, SourceClosedNow
from storage.engine.statements import announce
from storage.search import answers, history, source_states, sources
from storage.search.history import HistoryEntry
from storage.search.source_states import KnownState, ReservationRequest
from storage.search.sources import SourceRecord


@frozen(kw_only=True)
class RequestResult:
    """How a request ended: what follows for its source, and what those who wait are told."""

    end: RequestEnd
    status: OutcomeStatus
    results: tuple[Result, ...] = ()
    value: object = None
    error: BaseException | None = None
    took_s: float = 0.0
    waited_s: float = 0.0
    was_cut: bool = False

    @property
    def was_cancelled(self) -> bool:
        """Whether we ended it ourselves."""
        return self.status is OutcomeStatus.CANCELLED

    def outcome(self, source: str, status: OutcomeStatus, job_id: int) -> Outcome:
        """What a search that waits is told, under its number."""
        return Outcome(
            job_id=job_id,
            source=source,
            status=status,
            results=self.results,
            value=self.value,
            coverage=(source,) if status is OutcomeStatus.FOUND else (),
            error=self.error,
            waited_s=self.waited_s,
            took_s=self.took_s,
            was_cut=self.was_cut,
        )

    def request_finished(self, source: str, lane: Lane, status: OutcomeStatus) -> RequestFinished:
        """What is told of the request itself, however many waited for it."""
        return RequestFinished(
            source=source, lane=lane.value, outcome=status.value, waited_s=self.waited_s, took_s=self.took_s
        )


@frozen
class CachedAnswer:
    """An answer that another process has got meanwhile."""

    results: Sequence[Result]


def reserve_now(  # noqa: PLR0913 - one look at the database has all that it needs, by name
    connection: Connection,
    source_id: int,
    wanted: ReservationRequest,
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
    return source_states.reserve(connection, source_id, wanted, configured=configured, now=clock.now(), hint=hint)


@frozen(kw_only=True)
class EndedRequest:
    """Everything that is recorded at the end of a request."""

    record: SourceRecord
    permit: RequestPermit
    result: RequestResult
    entries: Sequence[HistoryEntry]
    key: str | None
    """The key of the cached answer; None: it is not cached."""
    ttl_s: float
    now: datetime
    is_poll: bool = False
    """Whether an empty answer is kept, too."""
    is_in_doubt: bool = False
    """Whether a COMMIT of unknown outcome may have recorded it."""


def record_result(connection: Connection, ended: EndedRequest, *, hint: KnownState | None = None) -> KnownState:
    """Record the state of the source, the history and the answer. In doubt, only if that was not done before."""
    record, result = ended.record, ended.result
    if ended.is_in_doubt and not source_states.is_in_flight(connection, record.id, ended.permit):
        return source_states.read(connection, record.id, configured=record.limits)
    known = source_states.finish(
        connection, record.id, ended.permit, result.end, configured=record.limits, now=ended.now, hint=hint
    )
    history.record(connection, ended.entries)
    if ended.key is None or ended.ttl_s <= 0:
        return known  # nothing is kept, so nothing is to be forgotten
    # A cut answer is not kept: a search with a longer time-out may find more. Nor is an empty one of a search: what is
    # not there yet may be there in a minute.
    if result.end.kind is EndKind.ANSWERED and not result.was_cut and (result.results or ended.is_poll):
        answers.put_cached(connection, record.id, ended.key, result.results, ttl_s=ended.ttl_s, now=ended.now)
    else:
        answers.drop_cached(connection, record.id, ended.key)
    return known


def record_caps(
    connection: Connection,
    record: SourceRecord,
    permit: RequestPermit,
    end: RequestEnd,
    caps: Any,
    *,
    now: datetime,
) -> None:
    """Record the end of a request for caps, and the caps if the source stated them."""
    source_states.finish(connection, record.id, permit, end, configured=record.limits, now=now)
    announce(connection, source_states.CHANNEL)
    if caps is not None:
        sources.set_caps(connection, record.id, caps, now=now)
