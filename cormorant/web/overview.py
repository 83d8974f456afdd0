"""Everything the page shows, in one document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
from attrs import frozen

from actors.search.source_requests import RequestView, SourceSnapshot
from cormorant import __version__
from cormorant.rules.jobs.states import JobState
from cormorant.rules.search.limits import Lane, windows_of
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Reason
from cormorant.rules.secrets import NO_SCREEN, SecretFilter, redact_passwords
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.supervision import ChildState, ChildView
from cormorant.rules.views import view_of
from cormorant.rules.watch.handovers import Handover
from cormorant.services.search_views import BY_HAND, GateOut, decisive, filter_of
from cormorant.services.watch.views import WantViews
from cormorant.web.parts import CountCache, WebParts, all_children
from storage.access import ClientSpend
from storage.jobs.reports import KindCount
from storage.overview import read_overview
from storage.search.history import HistoryEntry
from storage.search.source_views import SourceView, WindowSpend
from storage.search.sources import SourceRecord

__all__ = ["EXAMPLE", "ChildOut", "JobCounts", "OverviewOut", "overview_of", "tree_out"]


@frozen(kw_only=True)
class ChildOut:
    """A child of the supervision tree."""

    name: str
    state: str
    restarts: int
    last_crash: str | None
    children: list[ChildOut]


@frozen(kw_only=True)
class QuotaOut:
    """One limit and what is spent of it. `kept` of it are for people; `is_stated`: the site says so itself."""

    lane: str
    per: str
    used: int
    limit: int
    kept: int
    since: datetime
    is_stated: bool


@frozen(kw_only=True)
class StatedOut:
    """A limit that the site has stated itself."""

    name: str
    value: float


@frozen(kw_only=True)
class AccountOut:
    """A source: what is spent, when the next request of a person may go, and what is in its way.

    `state` is open, waits, paused, stopped (its credentials were refused), disabled or gone (given up after crashes).
    `opens_at` is null when nobody knows. `gate` and `why` tell of the gate that opens last.
    """

    name: str
    kind: str
    host: str
    origin: str
    state: str
    opens_at: datetime | None
    gate: str | None
    why: str
    gates: list[GateOut]
    quotas: list[QuotaOut]
    stated: list[StatedOut]
    spacing_s: float
    pace_s: float
    in_flight_max: int
    queries_today: int
    grabs_opens_at: datetime | None
    waiting: int
    running: int
    failures_in_a_row: int
    last_success_at: datetime | None
    last_failure_at: datetime | None


@frozen(kw_only=True)
class ClientSpendTodayOut:
    """What an app has spent in the last 24 hours, at all sources together. The one without a name is this program itself."""

    name: str
    priority: str | None
    queries: int
    grabs: int
    part: float


@frozen(kw_only=True)
class RunningOut:
    """A request that is being made now."""

    source: str
    query: str
    kind: str
    lane: str
    client: str
    priority: str
    asked_at: datetime
    shared_by: int


@frozen(kw_only=True)
class WaitingOut:
    """Requests of one client that wait for one source, for the same reason. `opens_at` null: nobody knows."""

    source: str
    client: str
    lane: str
    priority: str
    count: int
    queries: list[str]
    asked_at: datetime
    opens_at: datetime | None
    gate: str | None
    why: str


@frozen(kw_only=True)
class HistoryOut:
    """A request that has ended."""

    search_id: int
    source: str
    query: str
    client: str
    priority: str
    status: str
    results: int
    started_at: datetime
    took_s: float
    waited_s: float
    error: str | None


@frozen(kw_only=True)
class NeedOut:
    """Something that only a person can mend."""

    what: str
    name: str
    why: str
    remedy: str


@frozen(kw_only=True)
class JobCountsOut:
    """How many jobs are in each state."""

    pending: int
    running: int
    retryable: int
    failed: int


@frozen(kw_only=True)
class HealthOut:
    """The supervision tree in numbers. `unwell` names the children that should run and do not."""

    children: int
    restarts: int
    unwell: list[str]


@frozen(kw_only=True)
class OverviewOut:
    """What needs you, the accounts, who spent what, what runs, waits and was."""

    at: datetime
    version: str
    is_ready: bool
    mode: str
    paused_since: datetime | None
    needs_you: list[NeedOut]
    accounts: list[AccountOut]
    clients: list[ClientSpendTodayOut]
    running: list[RunningOut]
    waiting: list[WaitingOut]
    history: list[HistoryOut]
    jobs: JobCountsOut
    health: HealthOut
    tree: list[ChildOut]


EXAMPLE: Final[dict[str, Any]] = {
    "at": "2026-01-01T12:00:00Z",
    "version": "0.1.0",
    "is_ready": True,
    "mode": "observe",
    "paused_since": None,
    "needs_you": [
        {
            "what": "source",
            "name": "loft",
            "why": "it refused our credentials (100 wrong key); correct them and reset it",
            "remedy": "correct its key, then reset it",
        }
    ],
    "accounts": [
        {
            "name": "attic",
            "kind": "torznab",
            "host": "prowlarr:9696",
            "origin": "configured",
            "state": "waits",
            "opens_at": "2026-01-01T12:00:08Z",
            "gate": "spacing",
            "why": "the last request ended 2 s ago and the site allows one every 10 s",
            "gates": [
                {
                    "name": "spacing",
                    "opens_at": "2026-01-01T12:00:08Z",
                    "why": "the last request ended 2 s ago and the site allows one every 10 s",
                }
            ],
            "quotas": [
                {
                    "lane": "query",
                    "per": "day",
                    "used": 141,
                    "limit": 300,
                    "kept": 60,
                    "since": "2025-12-31T12:00:00Z",
                    "is_stated": False,
                }
            ],
            "stated": [{"name": "grabs_per_day", "value": 50.0}],
            "spacing_s": 10.0,
            "pace_s": 60.0,
            "in_flight_max": 1,
            "queries_today": 141,
            "grabs_opens_at": "2026-01-01T12:00:08Z",
            "waiting": 4,
            "running": 0,
            "failures_in_a_row": 0,
            "last_success_at": "2026-01-01T11:59:58Z",
            "last_failure_at": None,
        }
    ],
    "clients": [{"name": "sonarr", "priority": "completion", "queries": 86, "grabs": 3, "part": 0.61}],
    "running": [],
    "waiting": [
        {
            "source": "attic",
            "client": "cross-seed",
            "lane": "query",
            "priority": "background",
            "count": 4,
            "queries": ["boards of canada"],
            "asked_at": "2026-01-01T11:59:30Z",
            "opens_at": "2026-01-01T12:00:58Z",
            "gate": "pace",
            "why": "the last query ended 2 s ago and background work keeps 60 s apart",
        }
    ],
    "history": [],
    "jobs": {"pending": 0, "running": 0, "retryable": 0, "failed": 0},
    "health": {"children": 9, "restarts": 0, "unwell": []},
    "tree": [],
}


WAITING_SHOWN: Final = 100
QUERIES_SHOWN: Final = 3
_UNWELL: Final = frozenset({ChildState.BACKING_OFF, ChildState.SET_ASIDE})
_GONE: Final = "its limiter crashed again and again, and is not started any more"


JobCounts = CountCache[Sequence[KindCount]]


async def overview_of(parts: WebParts, counts: JobCounts) -> OverviewOut:
    """Everything that the page shows. How many jobs there are may be a little old where there are very many."""
    directory = dict(sorted(parts.searches.directory.by_name.items()))
    now = parts.environment.now()
    records = [entry.record for entry in directory.values()]
    read = await parts.environment.database.read(
        read_overview, records, jobs=counts.known, now=now, clock=parts.environment.clock
    )
    if read.jobs_took_s is not None:
        counts.keep(read.jobs, took_s=read.jobs_took_s)
    looks = {look.record.name: look for look in read.looks}
    secret_filters = {name: filter_of(entry.record) for name, entry in directory.items()}
    tree = list(all_children(parts.monitor.children()))
    accounts = [_account(entry.snapshot, looks[name], secret_filters[name]) for name, entry in directory.items()]
    requests = {name: entry.view() for name, entry in directory.items()}
    return OverviewOut(
        at=now,
        version=__version__,
        is_ready=parts.monitor.is_ready(),
        mode=parts.environment.settings.mode,
        paused_since=read.paused_since,
        needs_you=[*_needs(accounts), *_needs_of_tree(tree), *_needs_of_downloads(read.held, records)],
        accounts=accounts,
        clients=_clients(parts.environment.settings.clients, read.clients),
        running=[_running(name, each) for name, found in requests.items() for each in found.running],
        waiting=[
            group
            for name, found in requests.items()
            for group in _waiting(name, found.waiting, looks[name], secret_filters[name])
        ],
        history=[_was(asked, secret_filters.get(asked.source, NO_SCREEN)) for asked in read.history],
        jobs=_job_counts(read.jobs),
        health=_health(tree),
        tree=tree_out(parts.monitor.children()),
    )


def _account(snapshot: SourceSnapshot, look: SourceView, secret_filter: SecretFilter) -> AccountOut:
    explanation = look.explain(Priority.INTERACTIVE)
    gate = decisive(explanation)
    state = look.known.state
    return view_of(
        AccountOut,
        look.limits,
        name=look.record.name,
        kind=look.record.kind,
        host=urlsplit(look.record.url).netloc.rpartition("@")[2],
        origin=look.record.origin,
        state="gone" if snapshot.gone_because else _state(gate),
        opens_at=explanation.opens_at,
        gate=None if gate is None else gate.name.value,
        why=_GONE if snapshot.gone_because else _why(gate, secret_filter),
        gates=[view_of(GateOut, each, why=secret_filter.redact(each.why)) for each in explanation.reasons],
        quotas=[_quota(spent, look) for spent in look.spent],
        stated=[
            StatedOut(name=name, value=float(value))
            for name, value in attrs.asdict(look.known.learned).items()
            if value is not None
        ],
        queries_today=look.queries_today,
        grabs_opens_at=look.explain(Priority.INTERACTIVE, Lane.GRAB).opens_at,
        waiting=snapshot.waiting,
        running=snapshot.running,
        failures_in_a_row=state.failure_streak,
        last_success_at=state.last_success_at,
        last_failure_at=state.last_failure_at,
    )


def _state(gate: Reason | None) -> str:
    return "open" if gate is None else BY_HAND.get(gate.name, "waits")


def _why(gate: Reason | None, secret_filter: SecretFilter) -> str:
    return "" if gate is None else redact_passwords(secret_filter.redact(gate.why))


def _quota(spent: WindowSpend, look: SourceView) -> QuotaOut:
    window = spent.window
    others = {each.name: each.limit for each in windows_of(look.limits, spent.lane, Priority.BACKGROUND)}
    configured = {each.name: each.whole for each in windows_of(look.record.limits, spent.lane, Priority.INTERACTIVE)}
    return QuotaOut(
        lane=spent.lane.value,
        per=window.name.value,
        used=spent.count,
        limit=window.whole,
        kept=window.whole - others[window.name],
        since=spent.since,
        is_stated=configured.get(window.name) != window.whole,
    )


def _clients(settings: Mapping[str, ClientSettings], spent: Sequence[ClientSpend]) -> list[ClientSpendTodayOut]:
    queries, grabs = Counter[str](), Counter[str]()
    for each in spent:
        queries[each.consumer] += each.queries
        grabs[each.consumer] += each.grabs
    names = sorted({"", *settings, *queries})
    whole = (queries + grabs).total()
    found = [
        ClientSpendTodayOut(
            name=name,
            priority=settings[name].priority if name in settings else None,
            queries=queries[name],
            grabs=grabs[name],
            part=(queries[name] + grabs[name]) / whole if whole else 0.0,
        )
        for name in names
    ]
    return sorted(found, key=lambda client: -client.part)


def _running(source: str, running: RequestView) -> RunningOut:
    return view_of(
        RunningOut,
        running.request,
        source=source,
        lane=running.lane.value,
        client=running.consumer,
        priority=running.priority.name.lower(),
        asked_at=running.submitted_at,
        shared_by=running.shared_by,
    )


def _waiting(
    source: str, waiting: Sequence[RequestView], look: SourceView, secret_filter: SecretFilter
) -> Iterator[WaitingOut]:
    groups: defaultdict[tuple[Lane, Priority, str], list[RequestView]] = defaultdict(list)
    for each in waiting:
        groups[each.lane, each.priority, each.consumer].append(each)
    for (lane, priority, consumer), group in sorted(groups.items())[:WAITING_SHOWN]:
        explanation = look.explain(priority, lane)
        gate = decisive(explanation)
        yield WaitingOut(
            source=source,
            client=consumer,
            lane=lane.value,
            priority=priority.name.lower(),
            count=len(group),
            queries=[each.request.query for each in group[:QUERIES_SHOWN]],
            asked_at=group[0].submitted_at,
            opens_at=explanation.opens_at,
            gate=None if gate is None else gate.name.value,
            why=_why(gate, secret_filter),
        )


def _was(asked: HistoryEntry, secret_filter: SecretFilter) -> HistoryOut:
    return view_of(
        HistoryOut,
        asked,
        client=asked.consumer,
        priority=Priority(asked.priority).name.lower(),
        error=None if asked.error is None else redact_passwords(secret_filter.redact(asked.error)),
    )


def _needs(accounts: Sequence[AccountOut]) -> Iterator[NeedOut]:
    remedies = {"stopped": "correct its key, then reset it", "gone": "look into the log, then restart the service"}
    for account in accounts:
        if account.state in remedies:
            yield NeedOut(what="source", name=account.name, why=account.why, remedy=remedies[account.state])


def _needs_of_tree(tree: Sequence[ChildView]) -> Iterator[NeedOut]:
    for child in tree:
        if child.state is ChildState.SET_ASIDE:
            why = f"it crashed too often and was set aside: {_crash(child)}"
            yield NeedOut(what="child", name=child.name, why=why, remedy="look into the log, then restart the service")


def _needs_of_downloads(held: Sequence[Handover], records: Sequence[SourceRecord]) -> Iterator[NeedOut]:
    words = WantViews.of(records)
    for each in held:
        why = f"may have arrived at {each.target}: {words.redact(each.reason)}"
        yield NeedOut(what="download", name=words.redact(each.title), why=why, remedy="say whether it has")


def _job_counts(counts: Sequence[KindCount]) -> JobCountsOut:
    by_state: Counter[JobState] = Counter()
    for each in counts:
        by_state[each.state] += each.count
    return JobCountsOut(
        pending=by_state[JobState.PENDING],
        running=by_state[JobState.RUNNING],
        retryable=by_state[JobState.RETRYABLE],
        failed=by_state[JobState.FAILED],
    )


def _health(tree: Sequence[ChildView]) -> HealthOut:
    return HealthOut(
        children=len(tree),
        restarts=sum(child.restarts for child in tree),
        unwell=[child.name for child in tree if child.state in _UNWELL],
    )


def tree_out(children: Sequence[ChildView]) -> list[ChildOut]:
    """The tree as it is shown."""
    return [view_of(ChildOut, child, last_crash=_crash(child), children=tree_out(child.children)) for child in children]


def _crash(child: ChildView) -> str | None:
    crash = child.last_crash
    return None if crash is None else redact_passwords(f"{type(crash).__name__}: {crash}")
