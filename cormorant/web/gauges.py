"""What do the gauges show when somebody looks? The tree, the sources and the queues as they are at that moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import trio
from attrs import frozen
from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler
from sqlalchemy import Connection

from cormorant import __version__
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.search.breaker import BreakerState
from cormorant.rules.search.limits import Lane, counts_since, windows_of
from cormorant.rules.search.priorities import Priority
from cormorant.rules.supervision import ChildView
from cormorant.web.metrics import TEXT_TYPE, MetricValue
from cormorant.web.parts import WebParts
from cormorant.web.problems import AnyRequest, parts_of
from storage.jobs import reports
from storage.search import source_views
from storage.watch import feeds

__all__ = ["looked_up", "metrics_route"]

_PATIENCE_S = 2.0
_BREAKER = {BreakerState.CLOSED: 0.0, BreakerState.HALF_OPEN: 1.0, BreakerState.OPEN: 2.0}


def metrics_route(*, is_open: bool) -> HTTPRouteHandler:
    """The address that Prometheus asks."""

    @get(
        "/metrics",
        opt={"open": is_open},
        media_type=MediaType.TEXT,
        summary="For Prometheus",
        description="All metrics in Prometheus' text format.",
        tags=["status"],
    )
    async def metrics(request: AnyRequest) -> Response[bytes]:
        parts = parts_of(request)
        values = await looked_up(parts)
        values.append(MetricValue(metric="cormorant_web_connections", value=len(request.app.state["doors"].open)))
        parts.metrics.look(values)
        return Response(await parts.offload(parts.metrics.text), media_type=TEXT_TYPE)

    return metrics


async def looked_up(parts: WebParts) -> list[MetricValue]:
    """What the gauges have now. Without what the database would know, when it is away."""
    now = parts.clock.now()
    values = [
        MetricValue(metric="cormorant_info", value=1, labels=(__version__,)),
        MetricValue(metric="active_subscription_checks", value=parts.subscriptions.active()),
        *_of_sources(parts, now),
        *_of_tree(parts.tree()),
    ]
    with trio.move_on_after(_PATIENCE_S):
        try:
            waiting, subscribed, counted = await parts.database.read(_counted, _windows(parts, now))
        except (StorageUnavailable, CommitUnknown):
            return values
        values.append(MetricValue(metric="queue_depth", value=waiting, labels=("jobs",)))
        values.append(MetricValue(metric="scheduled_jobs_total", value=len(parts.scheduled()) + subscribed))
        values += counted
    return values


def _of_sources(parts: WebParts, now: datetime) -> Iterator[MetricValue]:
    desks = parts.searches.desks.by_name
    yield MetricValue(metric="queue_depth", value=sum(desk.waiting() for desk in desks.values()), labels=("searches",))
    for name, desk in desks.items():
        yield MetricValue(metric="cormorant_source_waiting", value=desk.waiting(), labels=(name,))
        if desk.known is None:
            continue
        state = desk.known.state
        yield MetricValue(metric="breaker_state_gauge", value=_BREAKER[state.breaker.state], labels=(name,))
        until = state.cooldown.until
        left_s = 0.0 if until is None else max(0.0, (until - now).total_seconds())
        yield MetricValue(metric="cormorant_source_cooldown_seconds", value=left_s, labels=(name,))


def _of_tree(children: Sequence[ChildView]) -> Iterator[MetricValue]:
    for child in children:
        yield MetricValue(metric="cormorant_child_restarts", value=child.restarts, labels=(child.name,))
        yield from _of_tree(child.children)


@frozen(kw_only=True)
class _GaugeRows:
    """A window of a source that is to be counted."""

    source_id: int
    lane: Lane
    since: datetime
    after: int
    limit: int
    labels: tuple[str, ...]


def _windows(parts: WebParts, now: datetime) -> list[_GaugeRows]:
    return [
        _GaugeRows(
            source_id=desk.record.id,
            lane=lane,
            since=counts_since(window, now=now),
            after=desk.known.state.lane(lane).last_seq - window.whole,
            limit=window.whole,
            labels=(name, lane.value, window.name.value),
        )
        for name, desk in parts.searches.desks.by_name.items()
        if desk.known is not None
        for lane in Lane
        for window in windows_of(desk.known.limits, lane, Priority.INTERACTIVE)
    ]


def _counted(connection: Connection, asked: Sequence[_GaugeRows]) -> tuple[int, int, list[MetricValue]]:
    waiting = sum(reports.waiting_kinds(connection).values())
    _, subscribed = feeds.count(connection)
    return (
        waiting,
        subscribed,
        [
            MetricValue(
                metric="cormorant_source_quota_left",
                value=max(0, each.limit - _spent(connection, each)),
                labels=each.labels,
            )
            for each in asked
        ],
    )


def _spent(connection: Connection, each: _GaugeRows) -> int:
    return source_views.spent_at_most(connection, each.source_id, each.lane, since=each.since, after=each.after)
