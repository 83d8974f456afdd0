"""Claims of feeds, and the end of a check by the process that holds the claim.

A claim has no end of its own: clocks may differ. Who holds one renews it again and again, which changes its row; others
watch, and free what has not changed for long. `claimed_until` says to people when that may be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from attrs import frozen
from sqlalchemy import Connection, bindparam, text

from cormorant.rules.errors import CormorantError
from cormorant.rules.ports import Clock
from cormorant.rules.schedules import overdue_delay_s
from cormorant.rules.watch.feeds import CheckStatus, DueFeed, FeedCheck, NextCheck, host_of
from storage import pauses
from storage.engine.columns import from_micros, kept_text, to_micros
from storage.engine.statements import SKIP_LOCKED, FastStatement, skip_locked
from storage.watch.feeds import DUE_COLUMNS, RESCHEDULE, due_of, next_due

__all__ = [
    "CheckedElsewhere",
    "DueFeeds",
    "claim",
    "claim_one",
    "end_check",
    "free",
    "held",
    "postpone",
    "read_due",
    "release",
    "release_until",
    "renew",
    "renew_running",
    "spread_overdue",
]

TEXT_LENGTH_MAX: Final = 500
WATCHED_MAX: Final = 2_000
"""Claims are made in the order in which things are due: those of the dead are among the first so many."""


class CheckedElsewhere(CormorantError):
    """Another process is checking it, or it was changed meanwhile, or is no more."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"subscription {number} is being checked by another process, or was changed or removed meanwhile; look again soon"
        )


def claim(connection: Connection, *, now: datetime, until: datetime, limit: int) -> list[DueFeed]:
    """Take due ones in hand, the longest due first, so that no other process does."""
    if connection.dialect.name == "postgresql":
        found = _CLAIM.rows(connection, (to_micros(until), to_micros(now), limit))
        return sorted(map(due_of, found), key=lambda each: (each.next_check_at, each.id))
    # SQLite has one writer at a time, and two plain statements take half as long as one that returns what it has changed.
    due = [due_of(row, claims=1) for row in _DUE.rows(connection, (to_micros(now), limit))]
    ends = to_micros(until)
    _TAKE.change_many(connection, [(ends, each.token, each.id) for each in due])
    return due


def claim_one(connection: Connection, number: int, *, until: datetime) -> DueFeed | None:
    """Take one in hand, due or not; None when another process has it, or it is no more."""
    row = _CLAIM_ONE.first(connection, (to_micros(until), number))
    return None if row is None else due_of(row)


def renew(
    connection: Connection, mine: Sequence[DueFeed], *, until: datetime, even_paused: Collection[int] | None = None
) -> set[int]:
    """Show that these are still held. Returns the numbers of those that are.

    The others belong to somebody else, were changed or removed, or are paused and not among `even_paused`; None: all may be.
    """
    ends = to_micros(until)
    return {
        each.id
        for each in _sorted(mine)
        if _RENEW.change(connection, (ends, each.id, each.token, even_paused is None or each.id in even_paused))
    }


def renew_running(
    connection: Connection, mine: Sequence[DueFeed], *, keep_even_if_paused: Collection[int], until: datetime
) -> set[int]:
    """As `renew`. While everything is paused, only those of `keep_even_if_paused` are renewed."""
    if len(keep_even_if_paused) < len(mine) and pauses.is_all_paused(connection):
        mine = [each for each in mine if each.id in keep_even_if_paused]
    return renew(connection, mine, until=until, even_paused=keep_even_if_paused)


def release(connection: Connection, mine: Sequence[DueFeed]) -> None:
    """Give back what was not checked: it is due as before."""
    _RELEASE.change_many(connection, [(each.id, each.token) for each in _sorted(mine)])


def release_until(connection: Connection, turns: Mapping[DueFeed, datetime]) -> None:
    """Give back what has its turn later, each with its time. A time that it got meanwhile is kept."""
    rows = [(to_micros(each.next_check_at), to_micros(turns[each]), each.id, each.token) for each in _sorted(turns)]
    _GIVE_BACK.change_many(connection, rows)


def held(connection: Connection, *, now: datetime, also: Sequence[int] = ()) -> dict[tuple[int, int], int]:
    """What is in hand somewhere, though due: number and token, with what changes when the claim is renewed. `also` due or not."""
    found = {(row[0], row[1]): row[2] for row in _HELD.rows(connection, (to_micros(now), WATCHED_MAX))}
    if also:
        rows = connection.execute(_HELD_ALSO, {"numbers": sorted(also)})
        found |= {(row.id, row.token): row.claimed_until for row in rows}
    return found


@frozen
class DueFeeds:
    """What the feed ticker needs to know before it claims. `held` is None unless it was asked for."""

    is_paused: bool
    next_due: datetime | None
    held: Mapping[tuple[int, int], int] | None


def read_due(connection: Connection, *, clock: Clock | None, also: Collection[int] = ()) -> DueFeeds:
    """Whether everything is paused, when the next feed is due, and with a `clock` the claims of all processes.

    The database may serve the call after an outage, so the time is read here.
    """
    claims = None if clock is None else held(connection, now=clock.now(), also=sorted(also))
    return DueFeeds(pauses.is_all_paused(connection), next_due(connection), claims)


def free(connection: Connection, dead: Mapping[tuple[int, int], int]) -> None:
    """Let go what a process that is no more had in hand, unless it has been renewed since it was seen like this."""
    rows = [(number, token, seen) for (number, token), seen in sorted(dead.items())]
    _FREE.change_many(connection, rows)


def spread_overdue(
    connection: Connection, *, before: datetime, now: datetime, limit: int
) -> list[tuple[str, datetime]]:
    """Let some that were due before that wait for their share of a minute; their names, and when they were due."""
    found = connection.execute(skip_locked(connection, _OVERDUE), {"before": to_micros(before), "limit": limit}).all()
    moved = [{"id": row.id, "at": to_micros(now + timedelta(seconds=overdue_delay_s(row.id)))} for row in found]
    if moved:
        connection.execute(RESCHEDULE, sorted(moved, key=lambda each: each["id"]))
    return [(row.name, from_micros(row.next_check_at)) for row in found]


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
    due = to_micros(subscription.next_check_at)
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


_IS_DUE = "NOT is_paused AND next_check_at <= :now AND claimed_until IS NULL ORDER BY next_check_at, id LIMIT :limit"
# An array, because PostgreSQL might think of a plan that reads the whole table for what it joins with.
_CLAIM = FastStatement(f"""
    UPDATE subscriptions SET claimed_until = :until, token = token + 1
    WHERE id = ANY(ARRAY(SELECT id FROM subscriptions WHERE {_IS_DUE} {SKIP_LOCKED}))
    RETURNING {DUE_COLUMNS}
""")  # noqa: S608 - all parts are ours
_DUE = FastStatement(f"SELECT {DUE_COLUMNS} FROM subscriptions WHERE {_IS_DUE}")  # noqa: S608 - all parts are ours
_TAKE = FastStatement("UPDATE subscriptions SET claimed_until = :until, token = :token WHERE id = :id")
_CLAIM_ONE = FastStatement(f"""
    UPDATE subscriptions SET claimed_until = :until, token = token + 1 WHERE id = :id AND claimed_until IS NULL
    RETURNING {DUE_COLUMNS}
""")  # noqa: S608 - all parts are ours
_RENEW = FastStatement("""
    UPDATE subscriptions SET claimed_until = :until
    WHERE id = :id AND token = :token AND claimed_until IS NOT NULL AND (:any OR NOT is_paused)
""")
_RELEASE = FastStatement("UPDATE subscriptions SET claimed_until = NULL WHERE id = :id AND token = :token")
_GIVE_BACK = FastStatement("""
    UPDATE subscriptions SET claimed_until = NULL, next_check_at = CASE WHEN next_check_at = :due THEN :at ELSE next_check_at END
    WHERE id = :id AND token = :token
""")
_HELD = FastStatement("""
    SELECT id, token, claimed_until FROM (
        SELECT id, token, claimed_until FROM subscriptions WHERE NOT is_paused AND next_check_at <= :now
        ORDER BY next_check_at, id LIMIT :limit) AS due
    WHERE claimed_until IS NOT NULL
""")
_HELD_ALSO = text(
    "SELECT id, token, claimed_until FROM subscriptions WHERE id IN :numbers AND claimed_until IS NOT NULL"
).bindparams(bindparam("numbers", expanding=True))
_FREE = FastStatement(
    "UPDATE subscriptions SET claimed_until = NULL WHERE id = :id AND token = :token AND claimed_until = :seen"
)
_OVERDUE = """
    SELECT id, name, next_check_at FROM subscriptions
    WHERE NOT is_paused AND next_check_at < :before AND claimed_until IS NULL
    ORDER BY next_check_at, id LIMIT :limit {lock}
"""
_SOON = """
    claimed_until = NULL,
    next_check_at = CASE WHEN next_check_at <> :due AND (next_check_at > :ended OR failures <> :known)
        THEN next_check_at ELSE :next END,
    effective_s = CASE WHEN failures = :known THEN :effective_s ELSE effective_s END,
    last_checked = :checked
"""
# Two, because each column that is set and each value that is given costs: most checks go well.
_END_WELL = FastStatement(f"""
    UPDATE subscriptions SET {_SOON}, failures = 0,
        last_success = :succeeded, last_error = NULL, etag = :etag, last_modified = :last_modified
    WHERE id = :id AND token = :token
""")  # noqa: S608 - all parts are ours
_END_BADLY = FastStatement(f"""
    UPDATE subscriptions SET {_SOON}, failures = CASE WHEN failures = :known THEN :failures ELSE failures END,
        last_error = :error, is_paused = CASE WHEN :is_paused AND failures = :known THEN true ELSE is_paused END,
        paused_because = CASE WHEN failures = :known THEN COALESCE(:paused_because, paused_because) ELSE paused_because END
    WHERE id = :id AND token = :token
""")  # noqa: S608 - all parts are ours
_PUT_OFF = FastStatement("""
    UPDATE subscriptions SET claimed_until = NULL, next_check_at = :next, failures = :failures, last_error = :error,
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
