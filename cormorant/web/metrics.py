"""Prometheus metrics by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from attrs import define, field, frozen
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cormorant.rules.events import EventsLost, ItemFailed, Stamped
from cormorant.rules.jobs.events import JobCompleted, JobFailed, JobRetried, JobStarted
from cormorant.rules.search.events import RequestFinished, SearchFinished, SearchSubmitted
from cormorant.rules.watch.feeds import CheckStatus, SubscriptionChecked, SubscriptionFailed

__all__ = ["METRICS", "TEXT_TYPE", "Metric", "MetricValue", "Metrics"]

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LINES_MAX: Final = 5_000
"""So many have lines of their own, by kind of job or source; what comes after is counted as `other`."""
_QUICK: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_LONG: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)

_KINDS: Final = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}


@frozen(kw_only=True)
class Metric:
    """One metric as Prometheus sees it."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def made(self, registry: CollectorRegistry) -> Any:
        """The metric itself."""
        more = {"buckets": self.buckets} if self.buckets else {}
        return _KINDS[self.kind](self.name, self.meaning, self.labels, registry=registry, **more)


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name=name, kind="counter", meaning=meaning, labels=labels)


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name=name, kind="gauge", meaning=meaning, labels=labels)


def _histogram(name: str, meaning: str, *labels: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name=name, kind="histogram", meaning=meaning, labels=labels, buckets=buckets)


METRICS: Final = (
    _counter("subscription_checks_total", "Checks of subscriptions.", "status"),
    _histogram("subscription_check_duration_seconds", "How long checks of subscriptions took.", buckets=_LONG),
    _gauge("active_subscription_checks", "Checks of subscriptions that run."),
    _gauge("scheduled_jobs_total", "What runs at its time: sweepers, tickers, subscriptions."),
    _gauge("queue_depth", "What waits: durable jobs, and requests in line at sources.", "queue"),
    _histogram("dequeue_latency_histogram", "Seconds that jobs were due before their handler began.", buckets=_LONG),
    _histogram("job_processing_duration", "Seconds that handlers took that completed.", "kind", buckets=_LONG),
    _counter("job_failures_total", "Attempts that failed: to be retried (retry) or for good (fail).", "kind", "verb"),
    _counter(
        "cormorant_item_failures_total",
        "Artists, feeds, saved searches, prices, handovers, wants and jobs that failed with an unexpected exception.",
        "kind",
    ),
    _gauge("breaker_state_gauge", "The breaker of a source: 0 closed, 1 half open, 2 open.", "platform"),
    _counter("cormorant_source_requests_total", "Requests to a source.", "source", "lane", "outcome"),
    _histogram("cormorant_source_request_seconds", "How long the requests to a source took.", "source", buckets=_LONG),
    _histogram(
        "cormorant_source_wait_seconds", "How long requests waited for their turn at a source.", "source", buckets=_LONG
    ),
    _gauge("cormorant_source_waiting", "Requests in line at a source.", "source"),
    _gauge("cormorant_source_cooldown_seconds", "How long a source is still left alone, as it asked.", "source"),
    _gauge("cormorant_source_quota_left", "Requests that a window of a source still has.", "source", "lane", "window"),
    _counter("cormorant_searches_total", "Searches that were taken in.", "priority"),
    _counter("cormorant_search_outcomes_total", "How searches ended at sources.", "status"),
    _histogram("cormorant_event_loop_lag_seconds", "How late the event loop comes to what is due.", buckets=_QUICK),
    _gauge("cormorant_child_restarts", "How often a child of the tree was started again.", "child"),
    _counter("cormorant_events_lost_total", "Events that a reader was too slow for."),
    _gauge("cormorant_web_connections", "Connections to the server."),
    _counter("cormorant_web_requests_total", "Answers of the server by status.", "status"),
    _gauge("cormorant_info", "Always 1; the version is in its label.", "version"),
)


@frozen(kw_only=True)
class MetricValue:
    """What a gauge has just now."""

    metric: str
    value: float
    labels: tuple[str, ...] = ()


@define(eq=False)
class Metrics:
    """A listener of events that counts them. It has a registry of its own: two services in one process have nothing common."""

    registry: CollectorRegistry = field(init=False, factory=CollectorRegistry)
    _by_name: dict[str, Any] = field(init=False)
    _children: dict[tuple[str, ...], Any] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._by_name = {metric.name: metric.made(self.registry) for metric in METRICS}
        for status in (CheckStatus.SUCCESS, CheckStatus.FAILED):
            self._labelled("subscription_checks_total", status.value)

    def __call__(self, stamped: Stamped) -> None:  # noqa: C901 - a list of events, each with what it counts
        """Count one event. It does not raise."""
        match stamped.event:
            case JobStarted() as event:
                self._labelled("dequeue_latency_histogram").observe(max(0.0, event.waited_s))
            case JobCompleted() as event:
                self._labelled("job_processing_duration", event.kind).observe(event.took_s)
            case JobRetried() as event:
                self._labelled("job_failures_total", event.kind, "retry").inc()
            case JobFailed() as event:
                self._labelled("job_failures_total", event.kind, "fail").inc()
            case SearchSubmitted() as event:
                self._labelled("cormorant_searches_total", event.priority).inc()
            case SearchFinished() as event:
                self._labelled("cormorant_search_outcomes_total", event.status).inc()
            case RequestFinished() as event:
                self._labelled("cormorant_source_requests_total", event.source, event.lane, event.outcome).inc()
                self._labelled("cormorant_source_request_seconds", event.source).observe(event.took_s)
                self._labelled("cormorant_source_wait_seconds", event.source).observe(max(0.0, event.waited_s))
            case SubscriptionChecked() | SubscriptionFailed() as event:
                status = CheckStatus.SUCCESS if isinstance(event, SubscriptionChecked) else CheckStatus.FAILED
                self._labelled("subscription_checks_total", status.value).inc()
                took_s = max(0.0, event.duration_ms / 1_000)
                self._labelled("subscription_check_duration_seconds").observe(took_s)
            case ItemFailed() as event:
                self._labelled("cormorant_item_failures_total", event.kind).inc()
            case EventsLost() as event:
                self._labelled("cormorant_events_lost_total").inc(event.count)
            case _:
                pass

    def answered(self, status: int) -> None:
        """Count an answer of the server."""
        self._labelled("cormorant_web_requests_total", str(status)).inc()

    def lagged(self, seconds: float) -> None:
        """Note how late the loop was."""
        self._labelled("cormorant_event_loop_lag_seconds").observe(seconds)

    def set_gauges(self, values: Iterable[MetricValue]) -> None:
        """Take over what was looked up; gauges of things that are gone go."""
        for metric in METRICS:
            if metric.kind == "gauge" and metric.labels:
                self._by_name[metric.name].clear()
        for each in values:
            gauge = self._by_name[each.metric]
            (gauge.labels(*each.labels) if each.labels else gauge).set(each.value)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it. May be called in a thread."""
        return generate_latest(self.registry)

    def _labelled(self, name: str, *labels: str) -> Any:
        found = self._children.get((name, *labels))
        if found is not None:
            return found
        if len(self._children) >= _LINES_MAX:
            labels = ("other",) * len(labels)
        metric = self._by_name[name]
        made = self._children[name, *labels] = metric.labels(*labels) if labels else metric
        return made
