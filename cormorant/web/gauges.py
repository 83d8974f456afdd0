"""Gauges read at scrape time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler

from cormorant import __version__
from cormorant.rules.search.breaker import BreakerState
from cormorant.web.metrics import TEXT_TYPE, MetricValue
from cormorant.web.parts import WebParts, all_children, database_patience
from cormorant.web.problems import AnyRequest, parts_of
from storage.overview import read_gauges
from storage.search.source_views import WindowSpend

__all__ = ["gauge_values", "metrics_route"]

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
        values = await gauge_values(parts)
        values.append(MetricValue(metric="cormorant_web_connections", value=len(request.app.state["listener"].open)))
        parts.metrics.set_gauges(values)
        return Response(await parts.environment.offload(parts.metrics.text), media_type=TEXT_TYPE)

    return metrics


async def gauge_values(parts: WebParts) -> list[MetricValue]:
    """What the gauges have now. Without what the database would know, when it is away."""
    now = parts.environment.now()
    values = [
        MetricValue(metric="cormorant_info", value=1, labels=(__version__,)),
        MetricValue(metric="active_subscription_checks", value=len(parts.feeds.running)),
        *_of_sources(parts, now),
        *(
            MetricValue(metric="cormorant_child_restarts", value=child.restarts, labels=(child.name,))
            for child in all_children(parts.monitor.children())
        ),
    ]
    with database_patience():
        snapshots = [entry.snapshot for entry in parts.searches.directory.by_name.values()]
        sources = [(each.record, each.known) for each in snapshots if each.known is not None]
        rows = await parts.environment.database.read(read_gauges, sources, now=now)
        values.append(MetricValue(metric="queue_depth", value=rows.waiting_jobs, labels=("jobs",)))
        running = len(parts.timetable.due()) + rows.running_feeds
        values.append(MetricValue(metric="scheduled_jobs_total", value=running))
        values += [_quota_left(record.name, spend) for record, spend in rows.spent]
    return values


def _quota_left(name: str, spend: WindowSpend) -> MetricValue:
    left, labels = max(0, spend.window.whole - spend.count), (name, spend.lane.value, spend.window.name.value)
    return MetricValue(metric="cormorant_source_quota_left", value=left, labels=labels)


def _of_sources(parts: WebParts, now: datetime) -> Iterator[MetricValue]:
    snapshots = {name: entry.snapshot for name, entry in parts.searches.directory.by_name.items()}
    waiting = sum(snapshot.waiting for snapshot in snapshots.values())
    yield MetricValue(metric="queue_depth", value=waiting, labels=("searches",))
    for name, snapshot in snapshots.items():
        yield MetricValue(metric="cormorant_source_waiting", value=snapshot.waiting, labels=(name,))
        if snapshot.known is None:
            continue
        state = snapshot.known.state
        yield MetricValue(metric="breaker_state_gauge", value=_BREAKER[state.breaker.state], labels=(name,))
        until = state.cooldown.until
        left_s = 0.0 if until is None else max(0.0, (until - now).total_seconds())
        yield MetricValue(metric="cormorant_source_cooldown_seconds", value=left_s, labels=(name,))
