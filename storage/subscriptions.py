"""Which feeds are subscribed to, and which of them are due? By an index, so that a million cost what a thousand do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.errors import CormorantError
from cormorant.rules.schedules import Schedule
from cormorant.rules.subscriptions import Check, CheckStatus, Next, Subscription, host_of
from storage.columns import check_text, from_micros, kept_text, to_micros

CONFIGURED = "configured"
TEXT_LENGTH_MAX = 500


class UnknownSubscription(CormorantError):
    """There is no subscription of this name or number."""

    def __init__(self, wanted: object) -> None:
        super().__init__(f"there is no subscription {wanted!r}; `cormorant subscriptions list` shows them")


class SubscriptionExists(CormorantError):
    """A subscription of this name is there already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a subscription {name!r} already; choose another name, or remove it first")


class CheckedElsewhere(CormorantError):
    """Another process is checking it, or it is no more."""

    def __init__(self, number: int) -> None:
        super().__init__(f"subscription {number} is being checked by another process, or is no more; look again soon")


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


def claim(connection: Connection, *, now: datetime, until: datetime, limit: int) -> list[Subscription]:
    """Take due ones in hand, the longest due first, so that no other process does until `until`."""
    lock = "FOR UPDATE SKIP LOCKED" if connection.dialect.name == "postgresql" else ""
    words = {"now": to_micros(now), "until": to_micros(until), "limit": limit}
    rows = connection.execute(text(_CLAIM.format(lock=lock)), words)
    return sorted((_subscription(row) for row in rows), key=lambda each: (each.next_check_at, each.id))


def claim_one(connection: Connection, number: int, *, now: datetime, until: datetime) -> Subscription | None:
    """Take one in hand, due or not; None when another process has it."""
    words = {"id": number, "now": to_micros(now), "until": to_micros(until)}
    row = connection.execute(_CLAIM_ONE, words).one_or_none()
    return None if row is None else _subscription(row)


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
    """A check has ended. False: it is no longer ours, and nothing is written."""
    is_ok = check.status is CheckStatus.SUCCESS
    words = {
        "id": subscription.id,
        "token": subscription.token,
        "next": to_micros(following.next_check_at),
        "effective_s": following.effective_s,
        "failures": following.failures,
        "paused_because": following.paused_because,
        "is_paused": following.paused_because is not None,
        "checked": to_micros(check.started_at),
        "succeeded": to_micros(check.started_at) if is_ok else None,
        "error": None if check.error is None else kept_text(check.error, TEXT_LENGTH_MAX),
        "etag": etag if is_ok else subscription.etag,
        "last_modified": last_modified if is_ok else subscription.last_modified,
        "url": url or subscription.url,
        "has_moved": subscription.has_moved or (url is not None and host_of(url) != host_of(subscription.url)),
    }
    if not connection.execute(_END, words).rowcount:
        return False
    connection.execute(_RECORD, _plain_check(check))
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


def recent_new(connection: Connection, number: int, *, limit: int) -> list[int]:
    """How many new items the last successful checks brought, newest first."""
    return list(connection.execute(_RECENT_NEW, {"id": number, "limit": limit}).scalars())


def checks(connection: Connection, number: int, *, limit: int = 20) -> list[Check]:
    """The last checks, newest first."""
    return [_check(row) for row in connection.execute(_CHECKS, {"id": number, "limit": limit})]


def prune_checks(connection: Connection, *, before: datetime, limit: int) -> int:
    """Forget old checks, oldest first."""
    return connection.execute(_PRUNE, {"before": to_micros(before), "limit": limit}).rowcount


def next_due(connection: Connection) -> datetime | None:
    """When the next one is due."""
    row = connection.execute(_NEXT_DUE).one_or_none()
    return None if row is None else from_micros(row.next_check_at)


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


def _plain_check(check: Check) -> dict[str, Any]:
    return {
        "id": check.subscription_id,
        "started_at": to_micros(check.started_at),
        "status": check.status.value,
        "items_found": check.items_found,
        "new_items": check.new_items,
        "duration_ms": check.duration_ms,
        "error": None if check.error is None else kept_text(check.error, TEXT_LENGTH_MAX),
    }


def _subscription(row: Any) -> Subscription:
    return Subscription(
        id=row.id,
        name=row.name,
        url=row.url,
        has_moved=bool(row.has_moved),
        schedule=Schedule(every_s=row.every_s, cron=row.cron, zone=row.zone),
        effective_s=row.effective_s,
        is_adaptive=bool(row.is_adaptive),
        auto_import=bool(row.auto_import),
        takes_first=bool(row.takes_first),
        accept=tuple(json.loads(row.accept)),
        reject=tuple(json.loads(row.reject)),
        targets=tuple(json.loads(row.targets)),
        origin=row.origin,
        is_paused=bool(row.is_paused),
        paused_because=row.paused_because,
        next_check_at=from_micros(row.next_check_at),
        etag=row.etag,
        last_modified=row.last_modified,
        failures=row.failures,
        last_checked=_moment(row.last_checked),
        last_success=_moment(row.last_success),
        last_error=row.last_error,
        added_at=from_micros(row.added_at),
        token=row.token,
    )


def _check(row: Any) -> Check:
    return Check(
        subscription_id=row.subscription_id,
        started_at=from_micros(row.started_at),
        status=CheckStatus(row.status),
        items_found=row.items_found,
        new_items=row.new_items,
        duration_ms=row.duration_ms,
        error=row.error,
    )


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


_INSERT = """
    INSERT INTO subscriptions (name, url, every_s, cron, zone, is_adaptive, auto_import, takes_first, accept, reject, targets,
                               origin, next_check_at, added_at)
    VALUES (:name, :url, :every_s, :cron, :zone, :is_adaptive, :auto_import, :takes_first, :accept, :reject, :targets,
            :origin, :next, :now)
"""
_ADD = text(f"{_INSERT} ON CONFLICT (name) DO NOTHING RETURNING id")
_CONFIGURE = text(f"""
    {_INSERT} ON CONFLICT (name) DO UPDATE SET every_s = excluded.every_s, cron = excluded.cron, zone = excluded.zone,
        is_adaptive = excluded.is_adaptive, auto_import = excluded.auto_import, accept = excluded.accept,
        reject = excluded.reject, targets = excluded.targets, origin = excluded.origin, url = excluded.url,
        has_moved = false
""")
_CONFIGURED_NAMES = text("SELECT name FROM subscriptions WHERE origin = 'configured'")
_REMOVE = text("DELETE FROM subscriptions WHERE id = :id")
_FORGET_ITEMS = text("DELETE FROM subscription_items WHERE subscription_id = :id")
_FORGET_CHECKS = text("DELETE FROM subscription_checks WHERE subscription_id = :id")
_PAGE = text("SELECT * FROM subscriptions WHERE id > :after_id ORDER BY id LIMIT :limit")
_BY_ID = text("SELECT * FROM subscriptions WHERE id = :wanted")
_BY_NAME = text("SELECT * FROM subscriptions WHERE name = :wanted")
_CLAIM = """
    UPDATE subscriptions SET claimed_until = :until, token = token + 1 WHERE id IN (
        SELECT id FROM subscriptions
        WHERE NOT is_paused AND next_check_at <= :now AND (claimed_until IS NULL OR claimed_until <= :now)
        ORDER BY next_check_at, id LIMIT :limit {lock})
    RETURNING *
"""
_CLAIM_ONE = text("""
    UPDATE subscriptions SET claimed_until = :until, token = token + 1
    WHERE id = :id AND (claimed_until IS NULL OR claimed_until <= :now) RETURNING *
""")
_RELEASE = text("UPDATE subscriptions SET claimed_until = NULL WHERE id = :id AND token = :token")
_END = text("""
    UPDATE subscriptions SET claimed_until = NULL, next_check_at = :next, effective_s = :effective_s, failures = :failures,
        is_paused = CASE WHEN :is_paused THEN true ELSE is_paused END,
        paused_because = COALESCE(:paused_because, paused_because), last_checked = :checked,
        last_success = COALESCE(:succeeded, last_success), last_error = :error, etag = :etag,
        last_modified = :last_modified, url = :url, has_moved = :has_moved
    WHERE id = :id AND token = :token
""")
_RECORD = text("""
    INSERT INTO subscription_checks (subscription_id, started_at, status, items_found, new_items, duration_ms, error)
    VALUES (:id, :started_at, :status, :items_found, :new_items, :duration_ms, :error)
""")
_RESCHEDULE = text("UPDATE subscriptions SET next_check_at = :at WHERE id = :id")
_PAUSE = text("UPDATE subscriptions SET is_paused = true, paused_because = :why WHERE name = :name")
_RESUME = text("""
    UPDATE subscriptions SET is_paused = false, paused_because = NULL, failures = 0, effective_s = NULL, next_check_at = :now
    WHERE name = :name
""")
_RECENT_NEW = text("""
    SELECT new_items FROM subscription_checks WHERE subscription_id = :id AND status = 'success'
    ORDER BY id DESC LIMIT :limit
""")
_CHECKS = text("SELECT * FROM subscription_checks WHERE subscription_id = :id ORDER BY id DESC LIMIT :limit")
_PRUNE = text("""
    DELETE FROM subscription_checks WHERE id IN (
        SELECT id FROM subscription_checks WHERE started_at < :before ORDER BY started_at LIMIT :limit)
""")
_NEXT_DUE = text("SELECT next_check_at FROM subscriptions WHERE NOT is_paused ORDER BY next_check_at, id LIMIT 1")
_COUNT = text("SELECT count(*) AS total, sum(CASE WHEN is_paused THEN 0 ELSE 1 END) AS running FROM subscriptions")
