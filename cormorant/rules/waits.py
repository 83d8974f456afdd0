"""Who may wait for whom? Two actors that wait for each other's full mailboxes stop for ever; one direction prevents it."""

from __future__ import annotations

ROLES = (
    "storage",
    "rate_limiter",
    "source_keeper",
    "dispatcher",
    "handover",
    "job_runner",
    "watchlist_ticker",
    "subscription_ticker",
    "saved_search_ticker",
    "reclaim_sweeper",
    "maintenance",
    "web",
)
"""The roles of the tree in the order they are started. Waiting goes only from a later one to an earlier one."""

_RANK = {role: rank for rank, role in enumerate(ROLES)}


def may_wait_for(waiter: str, target: str) -> bool:
    """Whether an actor may wait in a send to, or an answer from, another. Names outside the tree are not restricted.

    A name may say which one of its role it is, after a colon.

    >>> may_wait_for("dispatcher", "rate_limiter:redacted"), may_wait_for("rate_limiter:redacted", "dispatcher")
    (True, False)
    >>> may_wait_for("dispatcher", "dispatcher")
    False
    """
    waiter_rank, target_rank = _rank_of(waiter), _rank_of(target)
    if waiter_rank is None or target_rank is None:
        return waiter != target
    return target_rank < waiter_rank


def _rank_of(name: str) -> int | None:
    return _RANK.get(name.partition(":")[0])
