"""Everything the page shows, in one document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import attrs

from actors.search.source_requests import PendingRequest, SourceRequests
from cormorant import __version__
from cormorant.rules.jobs.states import JobState
from cormorant.rules.search.limits import Lane, windows_of
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation, Reason, ReasonName
from cormorant.rules.secrets import NO_SCREEN, SecretFilter, redact_passwords, secret_filter_of
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.watch.handovers import Handover
from cormorant.services.search_views import GateOut
from cormorant.services.watch.views import WantViews
from cormorant.web.models import ChildOut, tree_out
from cormorant.web.overview_models import (
    AccountOut,
    ClientSpendTodayOut,
    HealthOut,
    HistoryOut,
    JobCountsOut,
    NeedOut,
    OverviewOut,
    QuotaOut,
    RunningOut,
    StatedOut,
    WaitingOut,
)
from cormorant.web.parts import CountCache, WebParts
from storage.access import ClientSpend
from storage.jobs.reports import KindCount
from storage.overview import read_overview
from storage.search.history import HistoryEntry
from storage.search.source_views import SourceView, WindowSpend

__all__ = ["JobCounts", "decisive", "overview_of"]

WAITING_SHOWN: Final = 100
QUERIES_SHOWN: Final = 3
_UNWELL: Final = frozenset({"backing_off", "set_aside"})
_BY_HAND: Final = {ReasonName.ENABLED: "disabled", ReasonName.STOPPED: "stopped", ReasonName.PAUSED: "paused"}
_GONE: Final = "its limiter crashed again and again, and is not started any more"


JobCounts = CountCache[Sequence[KindCount]]


async def overview_of(parts: WebParts, counts: JobCounts) -> OverviewOut:
    """Everything that the page shows. How many jobs there are may be a little old where there are very many."""
    directory = dict(sorted(parts.searches.directory.by_name.items()))
    now = parts.environment.now()
    records = [requests.record for requests in directory.values()]
    read = await parts.environment.database.read(
        read_overview, records, jobs=counts.known, now=now, clock=parts.environment.clock
    )
    if read.jobs_took_s is not None:
        counts.keep(read.jobs, took_s=read.jobs_took_s)
    looks = {look.record.name: look for look in read.looks}
    secret_filters = {
        name: secret_filter_of(requests.record.key, requests.record.proxy) for name, requests in directory.items()
    }
    tree = tree_out(parts.monitor.children())
    accounts = [_account(requests, looks[name], secret_filters[name]) for name, requests in directory.items()]
    return OverviewOut(
        at=now,
        version=__version__,
        is_ready=parts.monitor.is_ready(),
        mode=parts.environment.settings.mode,
        paused_since=read.paused_since,
        needs_you=[*_needs(accounts), *_needs_of_tree(tree), *_needs_of_downloads(read.held, directory.values())],
        accounts=accounts,
        clients=_clients(parts.environment.settings.clients, read.clients),
        running=[_running(requests, pending) for requests in directory.values() for pending in list(requests.running)],
        waiting=[
            group
            for name, requests in directory.items()
            for group in _waiting(requests, looks[name], secret_filters[name])
        ],
        history=[_was(asked, secret_filters.get(asked.source, NO_SCREEN)) for asked in read.history],
        jobs=_job_counts(read.jobs),
        health=_health(tree),
        tree=tree,
    )


def decisive(explanation: Explanation) -> Reason | None:
    """The one gate that says most: what only a person can open, then what nobody knows the end of, then what opens last."""
    gates = explanation.reasons
    by_hand = [gate for gate in gates if gate.name in _BY_HAND]
    unknown = [gate for gate in gates if gate.opens_at is None]
    by_time = sorted((gate.opens_at, place) for place, gate in enumerate(gates) if gate.opens_at is not None)
    last = [gates[place] for _, place in by_time[-1:]]
    return next(iter([*by_hand, *unknown, *last]), None)


def _account(requests: SourceRequests, look: SourceView, secret_filter: SecretFilter) -> AccountOut:
    explanation = look.explain(Priority.INTERACTIVE)
    gate = decisive(explanation)
    state = look.known.state
    return AccountOut(
        name=requests.name,
        kind=look.record.kind,
        host=urlsplit(look.record.url).netloc.rpartition("@")[2],
        origin=look.record.origin,
        state="gone" if requests.is_gone else _state(gate),
        opens_at=explanation.opens_at,
        gate=None if gate is None else gate.name.value,
        why=_GONE if requests.is_gone else _why(gate, secret_filter),
        gates=[
            GateOut(name=each.name.value, opens_at=each.opens_at, why=secret_filter.redact(each.why))
            for each in explanation.reasons
        ],
        quotas=[_quota(spent, look) for spent in look.spent],
        stated=[
            StatedOut(name=name, value=float(value))
            for name, value in attrs.asdict(look.known.learned).items()
            if value is not None
        ],
        spacing_s=look.limits.spacing_s,
        pace_s=look.limits.pace_s,
        in_flight_max=look.limits.in_flight_max,
        queries_today=look.queries_today,
        grabs_opens_at=look.explain(Priority.INTERACTIVE, Lane.GRAB).opens_at,
        waiting=requests.waiting(),
        running=len(requests.running),
        failures_in_a_row=state.failure_streak,
        last_success_at=state.last_success_at,
        last_failure_at=state.last_failure_at,
    )


def _state(gate: Reason | None) -> str:
    return "open" if gate is None else _BY_HAND.get(gate.name, "waits")


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


def _running(requests: SourceRequests, pending: PendingRequest) -> RunningOut:
    return RunningOut(
        source=requests.name,
        query=pending.request.query,
        kind=pending.request.kind,
        lane=pending.lane.value,
        client=pending.consumer,
        priority=pending.priority.name.lower(),
        asked_at=pending.submitted_at,
        shared_by=len(pending.living()),
    )


def _waiting(requests: SourceRequests, look: SourceView, secret_filter: SecretFilter) -> Iterator[WaitingOut]:
    groups: defaultdict[tuple[Lane, Priority, str], list[PendingRequest]] = defaultdict(list)
    for queue in requests.queues.values():
        for pending in queue.waiting():
            groups[pending.lane, pending.priority, pending.consumer].append(pending)
    for (lane, priority, consumer), group in sorted(groups.items())[:WAITING_SHOWN]:
        explanation = look.explain(priority, lane)
        gate = decisive(explanation)
        yield WaitingOut(
            source=requests.name,
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
    return HistoryOut(
        search_id=asked.search_id,
        source=asked.source,
        query=asked.query,
        client=asked.consumer,
        priority=Priority(asked.priority).name.lower(),
        status=asked.status,
        results=asked.results,
        started_at=asked.started_at,
        took_s=asked.took_s,
        waited_s=asked.waited_s,
        error=None if asked.error is None else redact_passwords(secret_filter.redact(asked.error)),
    )


def _needs(accounts: Sequence[AccountOut]) -> Iterator[NeedOut]:
    remedies = {"stopped": "correct its key, then reset it", "gone": "look into the log, then restart the service"}
    for account in accounts:
        if account.state in remedies:
            yield NeedOut(what="source", name=account.name, why=account.why, remedy=remedies[account.state])


def _needs_of_tree(tree: Sequence[ChildOut]) -> Iterator[NeedOut]:
    for child in _all_of(tree):
        if child.state == "set_aside":
            why = f"it crashed too often and was set aside: {child.last_crash}"
            yield NeedOut(what="child", name=child.name, why=why, remedy="look into the log, then restart the service")


def _needs_of_downloads(held: Sequence[Handover], directory: Iterable[SourceRequests]) -> Iterator[NeedOut]:
    words = WantViews.of(requests.record for requests in directory)
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


def _health(tree: Sequence[ChildOut]) -> HealthOut:
    children = list(_all_of(tree))
    return HealthOut(
        children=len(children),
        restarts=sum(child.restarts for child in children),
        unwell=[child.name for child in children if child.state in _UNWELL],
    )


def _all_of(tree: Sequence[ChildOut]) -> Iterator[ChildOut]:
    for child in tree:
        yield child
        yield from _all_of(child.children)
