"""One read transaction each for the overview, the scheduler page, the gauges and the readiness check."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from attrs import frozen
from sqlalchemy import Connection, text

from cormorant.rules.ports import Clock
from cormorant.rules.watch.handovers import Handover
from storage import access, pauses
from storage.access import ClientSpend
from storage.jobs import reports
from storage.jobs.reports import KindCount
from storage.search import history, source_views
from storage.search.history import HistoryEntry
from storage.search.source_states import KnownState
from storage.search.source_views import SourceView, WindowSpend
from storage.search.sources import SourceRecord
from storage.watch import feeds, handovers

HISTORY_SHOWN: Final = 30
HELD_SHOWN: Final = 10
_DAY: Final = timedelta(days=1)


@frozen(kw_only=True)
class OverviewRows:
    """The rows behind the overview."""

    looks: Sequence[SourceView]
    clients: Sequence[ClientSpend]
    history: Sequence[HistoryEntry]
    jobs: Sequence[KindCount]
    jobs_took_s: float | None
    """The time that counting the jobs took; None: the caller knew their number."""
    paused_since: datetime | None
    held: Sequence[Handover]


@frozen(kw_only=True)
class SchedulerRows:
    """The rows behind the status of the scheduler. `took_s` is None when the caller knew the number of feeds."""

    is_paused: bool
    total: int
    running: int
    upcoming: datetime | None
    took_s: float | None


@frozen(kw_only=True)
class GaugeRows:
    """The counts behind the gauges. `spent` has the limits of each source."""

    waiting_jobs: int
    running_feeds: int
    spent: Sequence[tuple[SourceRecord, WindowSpend]]


def read_overview(
    connection: Connection,
    records: Sequence[SourceRecord],
    *,
    jobs: Sequence[KindCount] | None,
    now: datetime,
    clock: Clock,
) -> OverviewRows:
    """Everything the overview needs. `jobs` are counts that are recent enough; None: count them now."""
    began = clock.stopwatch()
    counted = reports.count_by_kind(connection) if jobs is None else jobs
    took_s = clock.stopwatch() - began if jobs is None else None
    return OverviewRows(
        jobs=counted,
        jobs_took_s=took_s,
        looks=[source_views.read_view(connection, record, now=now) for record in records],
        clients=access.spent(connection, since=now - _DAY),
        history=history.recent(connection, limit=HISTORY_SHOWN),
        paused_since=reports.pauses(connection).everything_since,
        held=handovers.held(connection, limit=HELD_SHOWN),
    )


def read_scheduler(connection: Connection, *, counted: tuple[int, int] | None, clock: Clock) -> SchedulerRows:
    """The state of the scheduler. `counted` is the number of feeds and of running ones, if recent enough."""
    began = clock.stopwatch()
    total, running = counted or feeds.count(connection)
    took_s = None if counted else clock.stopwatch() - began
    return SchedulerRows(
        took_s=took_s,
        total=total,
        running=running,
        is_paused=pauses.is_all_paused(connection),
        upcoming=feeds.next_due(connection),
    )


def read_gauges(
    connection: Connection, sources: Sequence[tuple[SourceRecord, KnownState]], *, now: datetime
) -> GaugeRows:
    """The counts of waiting jobs, running feeds and spent requests."""
    _, running = feeds.count(connection)
    return GaugeRows(
        waiting_jobs=sum(reports.waiting_kinds(connection).values()),
        running_feeds=running,
        spent=[
            (record, each)
            for record, known in sources
            for each in source_views.spent_of_limits(connection, record.id, known, now=now, is_capped=True)
        ],
    )


def check(connection: Connection) -> None:
    """Ask the database for an answer."""
    connection.execute(text("SELECT 1"))
