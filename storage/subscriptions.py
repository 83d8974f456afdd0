"""Which feeds are subscribed to, and which of them are due? By an index, so that a million cost what a thousand do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.errors import CormorantError
from cormorant.rules.schedules import Schedule, overdue_delay_s
from cormorant.rules.subscriptions import Check, CheckStatus, Next, Subscription, host_of
from storage.columns import check_text, from_micros, kept_text, maybe_from_micros, to_micros
from storage.locking import SKIP_LOCKED, passing_locked
from storage.plain import Plain

CONFIGURED = "configured"
TEXT_LENGTH_MAX = 500
NUMBER_LENGTH_MAX = 18
NAME_SHOWN_MAX = 120
AHEAD: Final = timedelta(hours=2)
"""No claim lasts that long: one that ends later was made by a clock that ran ahead. So was a check later than that."""
SCHEDULES_KEPT: Final = 1_000


class UnknownSubscription(CormorantError):
    """There is no subscription of this name or number."""

    def __init__(self, wanted: object) -> None:
        super().__init__(f"there is no subscription {wanted!r}; `cormorant subscriptions list` shows them")


class SubscriptionExists(CormorantError):
    """A subscription of this name is there already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a subscription {name!r} already; choose another name, or remove it first")


class SubscriptionConfigured(CormorantError):
    """A subscription stands in the settings file, and is changed there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the subscription {name!r} is one of the settings file; take [feeds.{name}] out of it")


class CheckedElsewhere(CormorantError):
    """Another process is checking it, or it was changed meanwhile, or is no more."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"subscription {number} is being checked by another process, or was changed or removed meanwhile; look again soon"
        )


def add(connection: Connection, subscription: Subscription) -> Subscription:
    """Subscribe, or `SubscriptionExists`."""
    found: int | None = connection.execute(_ADD, _plain(subscription)).scalar_one_or_none()
    if found is None:
        raise SubscriptionExists(subscription.name)
    return evolve(subscription, id=found)


def set_configured(connection: Connection, wanted: Sequence[Subscription]) -> None:
    """Make those of the settings file what it says now. What was seen stays seen; others are left alone."""
    names = {each.name for each in wanted}
    for name in connection.execute(_CONFIGURED_NAMES).scalars().all():
        if name not in names:
            remove(connection, name)
    for each in sorted(wanted, key=lambda subscription: subscription.name):
        connection.execute(_CONFIGURE, _plain(evolve(each, origin=CONFIGURED)))


def remove(connection: Connection, name: str) -> None:
    """Subscribe no more. What was wanted stays."""
    words = {"id": find(connection, name).id}
    for statement in (_REMOVE, _FORGET_ITEMS, _FORGET_CHECKS):
        connection.execute(statement, words)


def page(connection: Connection, *, after_id: int = 0, limit: int = 100) -> list[Subscription]:
    """Some of them, in the order they came."""
    return [_subscription(row) for row in connection.execute(_PAGE, {"after_id": after_id, "limit": limit})]


def find(connection: Connection, wanted: str | int) -> Subscription:
    """One of them by name or number, or `UnknownSubscription`."""
    by_number = isinstance(wanted, int)
    row = connection.execute(_BY_ID if by_number else _BY_NAME, {"wanted": wanted}).one_or_none()
    if row is None:
        raise UnknownSubscription(wanted)
    return _subscription(row)


def find_any(connection: Connection, wanted: str) -> Subscription:
    """One of them by name or, where none has this name, by number; or `UnknownSubscription`."""
    row = connection.execute(_BY_NAME, {"wanted": check_text(wanted)}).one_or_none()
    if row is not None:
        return _subscription(row)
    if wanted.isascii() and wanted.isdecimal() and len(wanted) <= NUMBER_LENGTH_MAX:
        return find(connection, int(wanted))
    raise UnknownSubscription(wanted[:NAME_SHOWN_MAX])


def names(connection: Connection) -> dict[str, str]:
    """The names of all, by their addresses."""
    return {row.url: row.name for row in connection.execute(_NAMES)}


def due_until(connection: Connection, *, until: datetime, limit: int) -> list[Subscription]:
    """Those that are due by then and not paused, soonest first."""
    rows = connection.execute(_DUE_UNTIL, {"until": to_micros(until), "limit": limit})
    return [_subscription(row) for row in rows]


def claim(connection: Connection, *, now: datetime, until: datetime, limit: int) -> list[Subscription]:
    """Take due ones in hand, the longest due first, so that no other process does until `until`."""
    words = (to_micros(until), to_micros(now), to_micros(now), to_micros(now + AHEAD), limit)
    found = _CLAIM[connection.dialect.name].rows(connection, words)
    return sorted((_subscription(row) for row in found), key=lambda each: (each.next_check_at, each.id))


def claim_one(connection: Connection, number: int, *, now: datetime, until: datetime) -> Subscription | None:
    """Take one in hand, due or not; None when another process has it."""
    words = (to_micros(until), number, to_micros(now), to_micros(now + AHEAD))
    row = _CLAIM_ONE.first(connection, words)
    return None if row is None else _subscription(row)


def renew(connection: Connection, subscription: Subscription, *, until: datetime, even_paused: bool = True) -> None:
    """Keep one in hand for longer, or `CheckedElsewhere`: also when it was removed, changed or, unless allowed, paused."""
    words = {"id": subscription.id, "token": subscription.token, "until": to_micros(until), "any": even_paused}
    if not connection.execute(_RENEW, words).rowcount:
        raise CheckedElsewhere(subscription.id)


def spread_overdue(
    connection: Connection, *, before: datetime, now: datetime, limit: int
) -> list[tuple[str, datetime]]:
    """Let some that were due before that wait for their share of a minute; their names, and when they were due."""
    words = {"before": to_micros(before), "now": to_micros(now), "ahead": to_micros(now + AHEAD), "limit": limit}
    found = connection.execute(passing_locked(connection, _OVERDUE), words).all()
    moved = [{"id": row.id, "at": to_micros(now + timedelta(seconds=overdue_delay_s(row.id)))} for row in found]
    if moved:
        connection.execute(_RESCHEDULE, sorted(moved, key=lambda each: each["id"]))
    return [(row.name, from_micros(row.next_check_at)) for row in found]


def is_any_ahead(connection: Connection, *, now: datetime) -> bool:
    """Whether some were checked in what is the future: the clock ran ahead, and they would wait until then."""
    return connection.execute(text(_PUT_OFF.format(lock="")), _ahead(now) | {"limit": 1}).first() is not None


def pull_in(connection: Connection, *, now: datetime, limit: int) -> int:
    """Let some of those that a clock that ran ahead put off be due now; how many."""
    found = connection.execute(passing_locked(connection, _PUT_OFF), _ahead(now) | {"limit": limit}).scalars()
    moved = [{"id": number, "at": to_micros(now)} for number in sorted(found)]
    if moved:
        connection.execute(_RESCHEDULE, moved)
    return len(moved)


def _ahead(now: datetime) -> dict[str, int]:
    return {"now": to_micros(now), "ahead": to_micros(now + AHEAD)}


def release(connection: Connection, subscriptions: Sequence[Subscription]) -> None:
    """Give back what was not checked: it is due as before."""
    for each in sorted(subscriptions, key=lambda subscription: subscription.id):
        connection.execute(_RELEASE, {"id": each.id, "token": each.token})


def end_check(  # noqa: PLR0913 - all that a check leaves behind
    connection: Connection,
    subscription: Subscription,
    following: Next,
    *,
    check: Check,
    etag: str | None,
    last_modified: str | None,
    url: str | None = None,
) -> bool:
    """A check has ended. False: it is no longer ours, and nothing is written. A time that it got meanwhile is kept."""
    is_ok = check.status is CheckStatus.SUCCESS
    checked = to_micros(check.started_at)
    error = None if check.error is None else kept_text(check.error, TEXT_LENGTH_MAX)
    known = subscription.failures  # who resumed it meanwhile has said zero, and that stands
    words = (
        to_micros(subscription.next_check_at),
        to_micros(check.started_at + timedelta(milliseconds=check.duration_ms)),
        known,
        to_micros(following.next_check_at),
        known,
        following.effective_s,
        known,
        following.failures,
        following.paused_because is not None,
        known,
        known,
        following.paused_because,
        checked,
        checked if is_ok else None,
        error,
        etag if is_ok else subscription.etag,
        last_modified if is_ok else subscription.last_modified,
        url,
        url is not None and host_of(url) != host_of(subscription.url),
        subscription.id,
        subscription.token,
    )
    if not _END.change(connection, words):
        return False
    counts = (check.items_found, check.new_items, check.duration_ms)
    _RECORD.change(connection, (check.subscription_id, checked, check.status.value, *counts, error))
    return True


def reschedule(connection: Connection, number: int, at: datetime) -> None:
    """Check it at this time."""
    if not connection.execute(_RESCHEDULE, {"id": number, "at": to_micros(at)}).rowcount:
        raise UnknownSubscription(number)


def set_paused(connection: Connection, name: str, *, why: str | None, now: datetime) -> None:
    """Leave it alone for a reason, or go on: then failures and effective interval begin anew."""
    statement, words = (_PAUSE, {"why": why}) if why is not None else (_RESUME, {"now": to_micros(now)})
    if not connection.execute(statement, words | {"name": name}).rowcount:
        raise UnknownSubscription(name)


def next_due(connection: Connection, *, now: datetime) -> datetime | None:
    """When the next of those is due that nobody has in hand."""
    row = _NEXT_DUE.first(connection, (to_micros(now), to_micros(now + AHEAD)))
    return None if row is None else from_micros(row[0])


def count(connection: Connection) -> tuple[int, int]:
    """How many there are, and how many of them are not paused."""
    row = connection.execute(_COUNT).one()
    return row.total, row.running or 0


def _plain(subscription: Subscription) -> dict[str, Any]:
    return {
        "name": check_text(subscription.name),
        "url": check_text(subscription.url),
        "every_s": subscription.schedule.every_s,
        "cron": subscription.schedule.cron,
        "zone": subscription.schedule.zone,
        "is_adaptive": subscription.is_adaptive,
        "auto_import": subscription.auto_import,
        "takes_first": subscription.takes_first,
        "accept": json.dumps(subscription.accept),
        "reject": json.dumps(subscription.reject),
        "targets": json.dumps(subscription.targets),
        "origin": subscription.origin,
        "next": to_micros(subscription.next_check_at),
        "now": to_micros(subscription.added_at),
    }


def _subscription(row: Sequence[Any]) -> Subscription:
    """One by the order of `_COLUMNS`."""
    return Subscription(
        id=row[0],
        name=row[1],
        url=row[2],
        schedule=_schedule(row[3], row[4], row[5]),
        effective_s=row[6],
        is_adaptive=bool(row[7]),
        auto_import=bool(row[8]),
        takes_first=bool(row[9]),
        accept=_words(row[10]),
        reject=_words(row[11]),
        targets=_words(row[12]),
        origin=row[13],
        is_paused=bool(row[14]),
        paused_because=row[15],
        next_check_at=from_micros(row[16]),
        etag=row[17],
        last_modified=row[18],
        failures=row[19],
        last_checked=maybe_from_micros(row[20]),
        last_success=maybe_from_micros(row[21]),
        last_error=row[22],
        added_at=from_micros(row[23]),
        token=row[24],
        has_moved=bool(row[25]),
    )


@lru_cache(SCHEDULES_KEPT)
def _schedule(every_s: float | None, cron: str | None, zone: str) -> Schedule:
    """To look whether it can be kept takes longer than all the rest."""
    return Schedule(every_s=every_s, cron=cron, zone=zone)


def _words(told: str) -> tuple[str, ...]:
    return () if told == "[]" else tuple(json.loads(told))


_COLUMNS = """
    id, name, url, every_s, cron, zone, effective_s, is_adaptive, auto_import, takes_first, accept, reject, targets, origin,
    is_paused, paused_because, next_check_at, etag, last_modified, failures, last_checked, last_success, last_error, added_at,
    token, has_moved
"""
_FREE = "(claimed_until IS NULL OR claimed_until <= :now OR claimed_until > :ahead)"
_INSERT = """
    INSERT INTO subscriptions (name, url, every_s, cron, zone, is_adaptive, auto_import, takes_first, accept, reject, targets,
                               origin, next_check_at, added_at)
    VALUES (:name, :url, :every_s, :cron, :zone, :is_adaptive, :auto_import, :takes_first, :accept, :reject, :targets,
            :origin, :next, :now)
"""
_ADD = text(f"{_INSERT} ON CONFLICT (name) DO NOTHING RETURNING id")
_SAME_TIMES = """
    COALESCE(subscriptions.every_s, 0) = COALESCE(excluded.every_s, 0)
    AND COALESCE(subscriptions.cron, '') = COALESCE(excluded.cron, '') AND subscriptions.zone = excluded.zone
"""
# A check that runs is of what it was: what it brings is not written, and it is made anew.
_SAME = f"(subscriptions.url = excluded.url AND {_SAME_TIMES})"
_CONFIGURE = text(f"""
    {_INSERT} ON CONFLICT (name) DO UPDATE SET every_s = excluded.every_s, cron = excluded.cron, zone = excluded.zone,
        is_adaptive = excluded.is_adaptive, auto_import = excluded.auto_import, accept = excluded.accept,
        reject = excluded.reject, targets = excluded.targets, origin = excluded.origin, url = excluded.url,
        has_moved = false,
        token = subscriptions.token + CASE WHEN {_SAME} THEN 0 ELSE 1 END,
        claimed_until = CASE WHEN {_SAME} THEN subscriptions.claimed_until END,
        etag = CASE WHEN subscriptions.url = excluded.url THEN subscriptions.etag END,
        last_modified = CASE WHEN subscriptions.url = excluded.url THEN subscriptions.last_modified END,
        effective_s = CASE WHEN {_SAME_TIMES} THEN subscriptions.effective_s END,
        next_check_at = CASE WHEN {_SAME_TIMES} THEN subscriptions.next_check_at ELSE excluded.next_check_at END
""")
_CONFIGURED_NAMES = text("SELECT name FROM subscriptions WHERE origin = 'configured'")
_REMOVE = text("DELETE FROM subscriptions WHERE id = :id")
_FORGET_ITEMS = text("DELETE FROM subscription_items WHERE subscription_id = :id")
_FORGET_CHECKS = text("DELETE FROM subscription_checks WHERE subscription_id = :id")
_PAGE = text(f"SELECT {_COLUMNS} FROM subscriptions WHERE id > :after_id ORDER BY id LIMIT :limit")  # noqa: S608 - columns are ours
_BY_ID = text(f"SELECT {_COLUMNS} FROM subscriptions WHERE id = :wanted")  # noqa: S608 - columns are ours
_BY_NAME = text(f"SELECT {_COLUMNS} FROM subscriptions WHERE name = :wanted")  # noqa: S608 - columns are ours
_NAMES = text("SELECT url, name FROM subscriptions")
_DUE_UNTIL = text(f"""
    SELECT {_COLUMNS} FROM subscriptions WHERE NOT is_paused AND next_check_at < :until
    ORDER BY next_check_at, id LIMIT :limit
""")  # noqa: S608 - columns are ours
_CLAIM = {
    # An array, because PostgreSQL might think of a plan that reads the whole table for what it joins with.
    name: Plain(f"""
        UPDATE subscriptions SET claimed_until = :until, token = token + 1 WHERE id {is_in} (
            SELECT id FROM subscriptions WHERE NOT is_paused AND next_check_at <= :now AND {_FREE}
            ORDER BY next_check_at, id LIMIT :limit {lock}){end}
        RETURNING {_COLUMNS}
    """)  # noqa: S608 - all parts are ours
    for name, is_in, lock, end in (("sqlite", "IN", "", ""), ("postgresql", "= ANY(ARRAY", SKIP_LOCKED, ")"))
}
_CLAIM_ONE = Plain(f"""
    UPDATE subscriptions SET claimed_until = :until, token = token + 1 WHERE id = :id AND {_FREE} RETURNING {_COLUMNS}
""")  # noqa: S608 - all parts are ours
_RENEW = text("""
    UPDATE subscriptions SET claimed_until = :until WHERE id = :id AND token = :token AND (:any OR NOT is_paused)
""")
_OVERDUE = f"""
    SELECT id, name, next_check_at FROM subscriptions WHERE NOT is_paused AND next_check_at < :before AND {_FREE}
    ORDER BY next_check_at, id LIMIT :limit {{lock}}
"""  # noqa: S608 - all parts are ours
_PUT_OFF = """
    SELECT id FROM subscriptions WHERE NOT is_paused AND last_checked > :ahead AND next_check_at > :now LIMIT :limit {lock}
"""
_RELEASE = text("UPDATE subscriptions SET claimed_until = NULL WHERE id = :id AND token = :token")
_END = Plain("""
    UPDATE subscriptions SET claimed_until = NULL,
        next_check_at = CASE WHEN next_check_at <> :due AND (next_check_at > :ended OR failures <> :known)
            THEN next_check_at ELSE :next END,
        effective_s = CASE WHEN failures = :known THEN :effective_s ELSE effective_s END,
        failures = CASE WHEN failures = :known THEN :failures ELSE failures END,
        is_paused = CASE WHEN :is_paused AND failures = :known THEN true ELSE is_paused END,
        paused_because = CASE WHEN failures = :known THEN COALESCE(:paused_because, paused_because) ELSE paused_because END,
        last_checked = :checked,
        last_success = COALESCE(:succeeded, last_success), last_error = :error, etag = :etag,
        last_modified = :last_modified, url = COALESCE(:url, url),
        has_moved = CASE WHEN :has_moved THEN true ELSE has_moved END
    WHERE id = :id AND token = :token
""")
_RECORD = Plain("""
    INSERT INTO subscription_checks (subscription_id, started_at, status, items_found, new_items, duration_ms, error)
    VALUES (:id, :started_at, :status, :items_found, :new_items, :duration_ms, :error)
""")
_RESCHEDULE = text("UPDATE subscriptions SET next_check_at = :at WHERE id = :id")
_PAUSE = text("UPDATE subscriptions SET is_paused = true, paused_because = :why WHERE name = :name")
_RESUME = text("""
    UPDATE subscriptions SET is_paused = false, paused_because = NULL, failures = 0, effective_s = NULL, next_check_at = :now
    WHERE name = :name
""")
_NEXT_DUE = Plain(f"""
    SELECT next_check_at FROM subscriptions WHERE NOT is_paused AND {_FREE} ORDER BY next_check_at, id LIMIT 1
""")  # noqa: S608 - all parts are ours
_COUNT = text("SELECT count(*) AS total, sum(CASE WHEN is_paused THEN 0 ELSE 1 END) AS running FROM subscriptions")
