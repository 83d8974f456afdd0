"""API documents of searches, jobs and the tree, without keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import field, frozen

from actors.search.source_requests import SourceRequests
from cormorant.rules.search.outcomes import Outcome
from cormorant.rules.search.requests import Result
from cormorant.rules.secrets import NO_SCREEN, SecretFilter, redact_passwords, secret_filter_of
from cormorant.rules.supervision import ChildView
from storage.jobs.reports import JobView

__all__ = [
    "ChildOut",
    "JobsOut",
    "OutcomeOut",
    "ResultOut",
    "SearchBody",
    "SearchOut",
    "StatusOut",
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
