"""Claims of feeds, and the end of a check by the process that holds the claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from attrs import frozen
from sqlalchemy import Connection, text

from cormorant.rules.errors import CormorantError
from cormorant.rules.schedules import overdue_delay_s
from cormorant.rules.watch.feeds import CheckStatus, DueFeed, FeedCheck, NextCheck, host_of
from storage import pauses
from storage.engine.columns import from_micros, kept_text, to_micros
from storage.engine.statements import SKIP_LOCKED, FastStatement, announce, skip_locked
from storage.jobs import workers
from storage.tables import FEEDS
from storage.watch.feeds import DUE_COLUMNS, RESCHEDULE, due_of, next_due

TEXT_LENGTH_MAX: Final = 500


class CheckedElsewhere(CormorantError):
    """Another process is checking it, or it was changed meanwhile, or is no more."""

    http_status = 409

    def __init__(self, number: int) -> None:
        super().__init__(
            f"subscription {number} is being checked by another process, or was changed or removed meanwhile; look again soon"
        )


def claim(connection: Connection, *, worker: str, now: datetime, limit: int) -> list[DueFeed]:
    """Claim due feeds, the longest due first. A worker that was declared dead claims nothing."""
    if not workers.may_claim(connection, worker):
        return []
    if connection.dialect.name == "postgresql":
        found = _CLAIM.rows(connection, (worker, to_micros(now), limit))
        return sorted(map(due_of, found), key=lambda each: (each.next_attempt_at, each.id))
    # SQLite has one writer at a time, and two plain statements take half as long as one that returns what it has changed.
    due = [due_of(row, claims=1) for row in _DUE.rows(connection, (to_micros(now), limit))]
    _TAKE.change_many(connection, [(worker, each.token, each.id) for each in due])
    return due


def claim_one(connection: Connection, number: int, *, worker: str) -> DueFeed | None:
    """Claim one feed, due or not; None when another process has claimed it, or it is no more."""
    if not workers.may_claim(connection, worker):
        return None
    row = _CLAIM_ONE.first(connection, (worker, number))
    return None if row is None else due_of(row)


def is_held(connection: Connection, mine: DueFeed, *, even_paused: bool) -> bool:
    """Whether a claim still holds, and the feed may be checked now.

    Otherwise another process has it, it was changed or removed, or it is paused and not to be checked `even_paused`.
    """
    row = _CLAIMED.first(connection, (mine.id, mine.token))
    if row is None:
        return False
    return even_paused or not (row[0] or pauses.is_all_paused(connection))


def lock(connection: Connection, mine: DueFeed) -> bool:
    """Whether a claim holds until this transaction ends."""
    statement = _CLAIMED_LOCKED if connection.dialect.name == "postgresql" else _CLAIMED
    return statement.first(connection, (mine.id, mine.token)) is not None


def release(connection: Connection, mine: Sequence[DueFeed]) -> None:
    """Give back what was not checked: it is due as before."""
    _RELEASE.change_many(connection, [(each.id, each.token) for each in _sorted(mine)])
    announce(connection, FEEDS.name, own=False)


def release_until(connection: Connection, turns: Mapping[DueFeed, datetime]) -> None:
    """Give back what has its turn later, each with its time. A time that it got meanwhile is kept."""
    rows = [(to_micros(each.next_attempt_at), to_micros(turns[each]), each.id, each.token) for each in _sorted(turns)]
    _RELEASE_UNTIL.change_many(connection, rows)
    announce(connection, FEEDS.name, own=False)


def count(connection: Connection) -> int:
    """How many feeds are checked at this moment or wait for their host, in any process."""
    return int(connection.execute(_COUNT).scalar_one())


@frozen
class DueFeeds:
    """What the feed ticker needs to know before it claims."""

    is_paused: bool
    next_due: datetime | None


def read_due(connection: Connection) -> DueFeeds:
    """Whether everything is paused, and when the next feed is due."""
    return DueFeeds(pauses.is_all_paused(connection), next_due(connection))


def spread_overdue(
    connection: Connection, *, before: datetime, now: datetime, limit: int
) -> list[tuple[str, datetime]]:
    """Let some that were due before that wait for their share of a minute; their names, and when they were due."""
    found = connection.execute(skip_locked(connection, _OVERDUE), {"before": to_micros(before), "limit": limit}).all()
    moved = [{"id": row.id, "at": to_micros(now + timedelta(seconds=overdue_delay_s(row.id)))} for row in found]
    if moved:
        connection.execute(RESCHEDULE, sorted(moved, key=lambda each: each["id"]))
    return [(row.name, from_micros(row.next_attempt_at)) for row in found]


def end_check(  # noqa: PLR0913 - all that a check leaves behind
    connection: Connection,
    subscription: DueFeed,
    following: NextCheck,
    *,
    check: FeedCheck,
    etag: str | None,
    last_modified: str | None,
    url: str | None = None,
) -> bool:
    """A check has ended. False: it is no longer ours, and nothing is written. A time that it got meanwhile is kept."""
    checked = to_micros(check.started_at)
    error = None if check.error is None else kept_text(check.error, TEXT_LENGTH_MAX)
    known = subscription.failures  # who resumed it meanwhile has said zero, and that stands
    ended = checked + check.duration_ms * 1_000
    due = to_micros(subscription.next_attempt_at)
    soon = (due, ended, known, to_micros(following.next_check_at), known, following.effective_s, checked)
    mine = (subscription.id, subscription.token)
    status = check.status.value
    if check.status is CheckStatus.SUCCESS:
        changed = _END_WELL.change(connection, (*soon, checked, etag, last_modified, *mine))
    else:
        why = following.paused_because
        how = (known, following.failures, error, why is not None, known, known, why)
        changed = _END_BADLY.change(connection, (*soon, *how, *mine))
    if not changed:
        return False
    if url is not None:
        _MOVE.change(connection, (url, host_of(url) != host_of(subscription.url), subscription.id))
    found = (check.items_found, check.new_items, check.duration_ms)
    _RECORD.change(connection, (subscription.id, checked, status, *found, error))
    return True


def postpone(connection: Connection, mine: DueFeed, following: NextCheck, *, error: str) -> bool:
    """Write no more of a check than that it failed, and when the next one is. False: it is no longer ours."""
    why = following.paused_because
    paused = (why is not None, why)
    words = (to_micros(following.next_check_at), following.failures, kept_text(error, TEXT_LENGTH_MAX), *paused)
    return _PUT_OFF.change(connection, (*words, mine.id, mine.token)) > 0


def _sorted(mine: Iterable[DueFeed]) -> list[DueFeed]:
    """In one order, so that two processes cannot wait for each other."""
    return sorted(mine, key=lambda each: each.id)


_COUNT = text("SELECT count(*) FROM subscriptions WHERE claimed_by IS NOT NULL")
_IS_DUE = "NOT is_paused AND next_attempt_at <= :now AND claimed_by IS NULL ORDER BY next_attempt_at, id LIMIT :limit"
# An array, because PostgreSQL might think of a plan that reads the whole table for what it joins with.
_CLAIM = FastStatement(f"""
    UPDATE subscriptions SET claimed_by = :worker, token = token + 1
    WHERE id = ANY(ARRAY(SELECT id FROM subscriptions WHERE {_IS_DUE} {SKIP_LOCKED}))
    RETURNING {DUE_COLUMNS}
""")
_DUE = FastStatement(f"SELECT {DUE_COLUMNS} FROM subscriptions WHERE {_IS_DUE}")
_TAKE = FastStatement("UPDATE subscriptions SET claimed_by = :worker, token = :token WHERE id = :id")
_CLAIM_ONE = FastStatement(f"""
    UPDATE subscriptions SET claimed_by = :worker, token = token + 1 WHERE id = :id AND claimed_by IS NULL
    RETURNING {DUE_COLUMNS}
""")
_CLAIMED = FastStatement(
    "SELECT is_paused FROM subscriptions WHERE id = :id AND token = :token AND claimed_by IS NOT NULL"
)
_CLAIMED_LOCKED = FastStatement("""
    SELECT is_paused FROM subscriptions WHERE id = :id AND token = :token AND claimed_by IS NOT NULL FOR UPDATE
""")
_RELEASE = FastStatement("UPDATE subscriptions SET claimed_by = NULL WHERE id = :id AND token = :token")
_RELEASE_UNTIL = FastStatement("""
    UPDATE subscriptions SET claimed_by = NULL, next_attempt_at = CASE WHEN next_attempt_at = :due THEN :at ELSE next_attempt_at END
    WHERE id = :id AND token = :token
""")
_OVERDUE = """
    SELECT id, name, next_attempt_at FROM subscriptions
    WHERE NOT is_paused AND next_attempt_at < :before AND claimed_by IS NULL
    ORDER BY next_attempt_at, id LIMIT :limit {lock}
"""
_SOON = """
    claimed_by = NULL,
    next_attempt_at = CASE WHEN next_attempt_at <> :due AND (next_attempt_at > :ended OR failures <> :known)
        THEN next_attempt_at ELSE :next END,
    effective_s = CASE WHEN failures = :known THEN :effective_s ELSE effective_s END,
    last_checked = :checked
"""
# Two, because each column that is set and each value that is given costs: most checks go well.
_END_WELL = FastStatement(f"""
    UPDATE subscriptions SET {_SOON}, failures = 0,
        last_success = :succeeded, last_error = NULL, etag = :etag, last_modified = :last_modified
    WHERE id = :id AND token = :token
""")
_END_BADLY = FastStatement(f"""
    UPDATE subscriptions SET {_SOON}, failures = CASE WHEN failures = :known THEN :failures ELSE failures END,
        last_error = :error, is_paused = CASE WHEN :is_paused AND failures = :known THEN true ELSE is_paused END,
        paused_because = CASE WHEN failures = :known THEN COALESCE(:paused_because, paused_because) ELSE paused_because END
    WHERE id = :id AND token = :token
""")
_PUT_OFF = FastStatement("""
    UPDATE subscriptions SET claimed_by = NULL, next_attempt_at = :next, failures = :failures, last_error = :error,
        is_paused = CASE WHEN :is_paused THEN true ELSE is_paused END, paused_because = COALESCE(:why, paused_because)
    WHERE id = :id AND token = :token
""")
_MOVE = FastStatement("""
    UPDATE subscriptions SET url = :url, has_moved = CASE WHEN :has_moved THEN true ELSE has_moved END WHERE id = :id
""")
_RECORD = FastStatement("""
    INSERT INTO subscription_checks (subscription_id, started_at, status, items_found, new_items, duration_ms, error)
    VALUES (:id, :started_at, :status, :items_found, :new_items, :duration_ms, :error)
""")
