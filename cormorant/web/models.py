"""API documents of searches, sources and the tree, without keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import field, frozen

from actors.search.source_requests import SourceRequests
from cormorant.rules.search.outcomes import Outcome
from cormorant.rules.search.reasons import Explanation
from cormorant.rules.search.requests import Result
from cormorant.rules.secrets import NO_SCREEN, SecretFilter, redact_passwords, secret_filter_of
from cormorant.rules.supervision import ChildView
from storage.access import ClientAppView
from storage.jobs.reports import JobView

__all__ = [
    "AddedClientOut",
    "ChildOut",
    "ClientBody",
    "ClientOut",
    "ClientSpendOut",
    "ExplanationOut",
    "GateOut",
    "JobsOut",
    "OutcomeOut",
    "ResultOut",
    "SearchBody",
    "SearchOut",
    "SourceOut",
    "StatusOut",
    "client_out",
    "explanation_out",
    "outcome_out",
    "tree_out",
]


@frozen(kw_only=True)
class ChildOut:
    """A child of the supervision tree."""

    name: str
    state: str
    restarts: int
    last_crash: str | None
    children: list[ChildOut]


@frozen(kw_only=True)
class StatusOut:
    """What is running."""

    version: str
    is_ready: bool
    tree: list[ChildOut]


@frozen(kw_only=True)
class GateOut:
    """One thing in the way of a request."""

    name: str
    opens_at: datetime | None
    why: str


@frozen(kw_only=True)
class ExplanationOut:
    """Why a request submitted now would wait. `opens_at` is null when nobody knows."""

    priority: str
    lane: str
    opens_at: datetime | None
    gates: list[GateOut]
    lines: list[str]


@frozen(kw_only=True)
class SourceOut:
    """A source, and why it waits."""

    name: str
    kind: str
    url: str
    origin: str
    waiting: int
    running: int
    explanation: ExplanationOut


@frozen(kw_only=True)
class ResultOut:
    """One find. Its link is not shown: it may hold a key."""

    title: str
    guid: str
    protocol: str
    size_bytes: int | None
    published: datetime | None
    categories: list[str]
    seeders: int | None
    peers: int | None
    grabs: int | None
    infohash: str | None
    details: str


@frozen(kw_only=True)
class OutcomeOut:
    """What came of a search at one source."""

    source: str
    status: str
    error: str | None
    waited_s: float
    took_s: float
    is_cached: bool
    was_cut: bool
    results: list[ResultOut]


@frozen(kw_only=True)
class SearchOut:
    """A search and what has come of it so far."""

    id: int
    is_done: bool
    outcomes: list[OutcomeOut]


@frozen(kw_only=True)
class SearchBody:
    """A search to be made. Without `sources` all are asked; `wait_s` is how long the answer may wait for the outcomes."""

    query: str = ""
    kind: str = "search"
    categories: list[int] = field(factory=list)
    params: dict[str, str] = field(factory=dict)
    sources: list[str] | None = None
    priority: str = "interactive"
    max_wait_s: float | None = None
    wait_s: float = 0.0


@frozen(kw_only=True)
class JobsOut:
    """A page of jobs, newest first. `next_before` gets the next page; null: there is none."""

    jobs: list[JobView]
    next_before: int | None


@frozen(kw_only=True)
class ClientSpendOut:
    """What an app has spent at one source in the last 24 hours."""

    source: str
    queries_today: int
    grabs_today: int


@frozen(kw_only=True)
class ClientOut:
    """An app that searches through the gate. One `from_file` is changed in the settings file."""

    name: str
    priority: str
    share: float
    hold_s: float
    from_file: bool
    queries_today: int
    grabs_today: int
    sources: list[ClientSpendOut]


@frozen(kw_only=True)
class ClientBody:
    """An app to be let in."""

    name: str
    priority: str = "completion"
    share: float = 1.0
    hold_s: float = 60.0


@frozen(kw_only=True)
class AddedClientOut:
    """An app that was let in, and its key, which is told this once."""

    client: ClientOut
    key: str


def client_out(look: ClientAppView) -> ClientOut:
    """An app as it is shown."""
    chosen = look.settings
    return ClientOut(
        name=look.name,
        priority=chosen.priority,
        share=chosen.share,
        hold_s=chosen.hold_s,
        from_file=look.from_file,
        queries_today=look.queries_today,
        grabs_today=look.grabs_today,
        sources=[
            ClientSpendOut(source=each.source, queries_today=each.queries, grabs_today=each.grabs)
            for each in look.spent
        ],
    )


def tree_out(children: Sequence[ChildView]) -> list[ChildOut]:
    """The tree as it is shown."""
    return [
        ChildOut(
            name=child.name,
            state=str(child.state.value),
            restarts=child.restarts,
            last_crash=None if child.last_crash is None else _error(child.last_crash),
            children=tree_out(child.children),
        )
        for child in children
    ]


def _error(error: BaseException, secret_filter: SecretFilter = NO_SCREEN) -> str:
    return redact_passwords(secret_filter.redact(f"{type(error).__name__}: {error}"))


def explanation_out(explanation: Explanation, *, priority: str, lane: str) -> ExplanationOut:
    """Why a request waits, as it is shown."""
    return ExplanationOut(
        priority=priority,
        lane=lane,
        opens_at=explanation.opens_at,
        gates=[GateOut(name=gate.name.value, opens_at=gate.opens_at, why=gate.why) for gate in explanation.reasons],
        lines=list(explanation.lines),
    )


def outcome_out(outcome: Outcome, requests: SourceRequests | None) -> OutcomeOut:
    """What came of a search at one source, without the keys of that source."""
    secret_filter = NO_SCREEN if requests is None else secret_filter_of(requests.record.key, requests.record.proxy)
    return OutcomeOut(
        source=outcome.source,
        status=outcome.status.value,
        error=None if outcome.error is None else _error(outcome.error, secret_filter),
        waited_s=outcome.waited_s,
        took_s=outcome.took_s,
        is_cached=outcome.is_cached,
        was_cut=outcome.was_cut,
        results=[_result_out(result, secret_filter) for result in outcome.results],
    )


def _result_out(result: Result, secret_filter: SecretFilter) -> ResultOut:
    return ResultOut(
        title=secret_filter.redact(result.title),
        guid=secret_filter.redact(result.guid),
        details=secret_filter.redact(result.details),
        protocol=result.protocol,
        size_bytes=result.size_bytes,
        published=result.published,
        categories=[each for each in result.categories if not secret_filter.shows(each)],
        seeders=result.seeders,
        peers=result.peers,
        grabs=result.grabs,
        infohash=result.infohash,
    )
