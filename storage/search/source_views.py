"""What is there to be seen of one source? Its state, what was spent of each limit, and why a request would wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.search.limits import Lane, SourceLimits, Window, counts_since, windows_of
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation, explain
from storage.search import source_reports, source_states
from storage.search.source_states import KnownState
from storage.search.sources import CONFIGURED, SourceRecord

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


@frozen(kw_only=True)
class WindowSpend:
    """How much of one limit is used up."""

    lane: Lane
    window: Window
    count: int
    since: datetime


@frozen(kw_only=True)
class SourceView:
    """A source at one moment."""

    now: datetime
    record: SourceRecord
    known: KnownState
    spent: tuple[WindowSpend, ...]
    """Of every limit that holds, queries first, the narrowest first."""
    queries_this_hour: int
    """In the last 60 minutes, whether that is limited or not."""
    queries_today: int
    """In the last 24 hours, likewise."""
    caps_at: datetime | None

    @property
    def limits(self) -> SourceLimits:
        """What holds: of what is configured and what was learned, the stricter."""
        return self.known.limits

    @property
    def is_configured(self) -> bool:
        """Whether it is a source of the settings file."""
        return self.record.origin == CONFIGURED

    def explain(self, priority: Priority, lane: Lane = Lane.QUERY, *, zone: tzinfo = UTC) -> Explanation:
        """Why a request submitted now would wait."""
        return explain(
            self.known.state,
            self.limits,
            lane=lane,
            priority=priority,
            now=self.now,
            edges=self.known.edges[lane],
            zone=zone,
        )


def look(connection: Connection, record: SourceRecord, *, now: datetime) -> SourceView:
    """A source as the database has it."""
    known = source_states.look(connection, record.id, configured=record.limits)
    spent = []
    for lane in Lane:
        for window in windows_of(known.limits, lane, Priority.INTERACTIVE):
            since = counts_since(window, now=now)
            count = source_reports.spent(connection, record.id, lane, since=since)
            spent.append(WindowSpend(lane=lane, window=window, count=count, since=since))
    return SourceView(
        now=now,
        record=record,
        known=known,
        spent=tuple(spent),
        queries_this_hour=source_reports.spent(connection, record.id, Lane.QUERY, since=now - _HOUR),
        queries_today=source_reports.spent(connection, record.id, Lane.QUERY, since=now - _DAY),
        caps_at=source_reports.caps_at(connection, record.id),
    )
