"""The supervision tree: children, start order and grace periods."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from actors.environment import Environment
from actors.notifier import LAST_S
from cormorant.rules.errors import SettingsError
from cormorant.rules.settings.settings import Settings
from cormorant.rules.supervision import Strategy
from cormorant.rules.units import format_duration
from supervisors.child import ChildSpec, Runnable, stop_bound_s
from supervisors.supervisor import Supervisor

SPARE_S = 2.5
"""What the runner needs after the grace of its handlers, to release what they did not finish."""

WEB_GRACE_S = 3.0
"""What answers under way get, and a little for the server to end."""

MIGRATION_S = 3600.0
"""A start with a backup and a migration of a large database may take long; one without takes no time."""


@frozen(kw_only=True)
class TreeChildren:
    """The children of the tree."""

    storage: Runnable
    search: Supervisor
    handover: Runnable
    job_runner: Runnable
    tickers: Supervisor
    reclaim_sweeper: Runnable
    maintenance: Runnable
    clock_watch: Runnable
    notifier: Runnable | None
    """None: no notification is sent."""
    web: Runnable | None
    """None: no server."""


def tree(environment: Environment, children: TreeChildren) -> Supervisor:
    """The root: started in this order, stopped in reverse."""
    emit, chance, settings = environment.emit, environment.chance, environment.settings
    notifier, web = children.notifier, children.web
    sweepers = Supervisor(
        [
            ChildSpec("reclaim_sweeper", children.reclaim_sweeper, grace_s=0.7),
            ChildSpec("maintenance", children.maintenance, grace_s=0.7),
            ChildSpec("clock_watch", children.clock_watch, grace_s=0.0),
        ],
        name="sweepers",
        added_s=0.0,
        emit=emit,
        chance=chance,
    )
    specs = [
        ChildSpec("storage", children.storage, grace_s=5.0, start_timeout_s=MIGRATION_S),
        # All others may emit events that become notices until they have stopped.
        *([] if notifier is None else [ChildSpec("notifier", notifier, grace_s=LAST_S + 0.2)]),
        ChildSpec("search", children.search),
        ChildSpec("handover", children.handover, grace_s=0.5),
        ChildSpec("jobs", children.job_runner, grace_s=settings.jobs.grace_s + SPARE_S),
        ChildSpec("tickers", children.tickers),
        ChildSpec("sweepers", sweepers),
        *([] if web is None else [ChildSpec("web", web, grace_s=WEB_GRACE_S)]),
    ]
    _check_stop(settings, specs)
    return Supervisor(
        specs,
        name="root",
        strategy=Strategy.ONE_FOR_ONE,  # addresses survive a restart, so a crash of one need not end the others
        intensity=3,
        period_s=5.0,
        stop_total_s=settings.service.stop_total_s,
        emit=emit,
        chance=chance,
    )


def _check_stop(settings: Settings, specs: Sequence[ChildSpec]) -> None:
    """Refuse settings by which a stop would be cut short."""
    bound_s, total_s = stop_bound_s(specs), settings.service.stop_total_s
    if total_s < bound_s:
        parts = ", ".join(f"{spec.name} {format_duration(spec.grace_s)}" for spec in specs)
        problem = (
            f"service.stop_total: {format_duration(total_s)} is less than the parts of the service may take to stop ({parts}); "
            f"allowed: at least {format_duration(bound_s)}; a shorter jobs.grace or watchlist.shutdown_grace lowers it"
        )
        raise SettingsError([problem])
