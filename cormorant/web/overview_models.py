"""API documents of the overview."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from attrs import frozen

from cormorant.services.search_views import GateOut
from cormorant.web.models import ChildOut

__all__ = [
    "EXAMPLE",
    "AccountOut",
    "ClientSpendTodayOut",
    "HealthOut",
    "HistoryOut",
    "JobCountsOut",
    "NeedOut",
    "OverviewOut",
    "QuotaOut",
    "RunningOut",
    "StatedOut",
    "WaitingOut",
]


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
