"""Feeds beyond the common verbs: the settings file, other times, clock jumps, and when the next one is due."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from attrs import evolve
from sqlalchemy import Connection, text
from typing_extensions import override

from cormorant.rules.schedules import Schedule
from cormorant.rules.settings.watch import FeedSettings
from cormorant.rules.watch.feeds import DueFeed, Subscription, is_same_feed, next_time_anew
from cormorant.rules.watch.watches import fields_set_by
from storage.engine.columns import from_micros, to_micros
from storage.engine.statements import FastStatement, announce, skip_locked
from storage.tables import FEEDS, RowCodec
from storage.watch import watches
from storage.watch.watches import WatchKind

AHEAD: Final = timedelta(hours=2)
"""A check later than that was made by a clock that ran ahead."""
SCHEDULES_KEPT: Final = 1_000


def set_configured(connection: Connection, wanted: Sequence[Subscription]) -> None:
    """Make those of the settings file what it says now. What was seen stays seen; others are left alone."""
    watches.remove_unconfigured(connection, FEED, {each.name for each in wanted})
    written = {row.name: row.written_url for row in connection.execute(_WRITTEN)}
    for each in sorted(wanted, key=lambda subscription: subscription.name):
        before = written.get(each.name)
        is_other = before is not None and not is_same_feed(before, each.url)
        watches.configure(connection, FEED, each, is_other=is_other)
        if before != each.url:
            connection.execute(_WRITE, {"name": each.name, "url": each.url})


def names(connection: Connection) -> list[tuple[str, str]]:
    """The names and addresses of all; several may have one address."""
    return [(row.name, row.url) for row in connection.execute(_NAMES)]


def due_until(connection: Connection, *, until: datetime, limit: int) -> list[Subscription]:
    """Those that are due by then and not paused, soonest first."""
    rows = connection.execute(_DUE_UNTIL, {"until": to_micros(until), "limit": limit})
    return [FEED.codec.from_row(row) for row in rows]


def reschedule_after_clock_jump(connection: Connection, *, now: datetime, limit: int) -> int:
    """Let some of those that a clock that ran ahead put off be due now; how many."""
    found = connection.execute(skip_locked(connection, _PUT_OFF), _ahead(now) | {"limit": limit}).scalars()
    moved = [{"id": number, "at": to_micros(now)} for number in sorted(found)]
    if moved:
        connection.execute(RESCHEDULE, moved)
        announce(connection, FEEDS.name)
    return len(moved)


def _ahead(now: datetime) -> dict[str, int]:
    return {"now": to_micros(now), "ahead": to_micros(now + AHEAD)}


def reschedule(connection: Connection, number: int, at: datetime) -> None:
    """Check it at this time."""
    if not connection.execute(RESCHEDULE, {"id": number, "at": to_micros(at)}).rowcount:
        raise FEED.not_found(number)
    announce(connection, FEEDS.name)


def reschedule_all(connection: Connection, times: Mapping[int, datetime]) -> None:
    """Check each at its time. Those that are no more are passed over."""
    connection.execute(RESCHEDULE, [{"id": number, "at": to_micros(times[number])} for number in sorted(times)])
    announce(connection, FEEDS.name)


def next_due(connection: Connection) -> datetime | None:
    """When the next feed is due that no process has claimed."""
    row = _NEXT_DUE.first(connection, ())
    return None if row is None else from_micros(row[0])


def count(connection: Connection) -> tuple[int, int]:
    """How many there are, and how many of them are not paused."""
    row = connection.execute(_COUNT).one()
    return row.total, row.running or 0


class _FeedCodec(RowCodec[Subscription]):
    """The schedule of a feed is three columns."""

    @override
    def to_row(self, thing: Subscription, **more: Any) -> dict[str, Any]:
        schedule = thing.schedule
        return super().to_row(thing, every_s=schedule.every_s, cron=schedule.cron, zone=schedule.zone, **more)

    @override
    def from_row(self, row: Any, **more: Any) -> Subscription:
        schedule = _schedule(row.every_s, row.cron, row.zone)
        return super().from_row(row, schedule=schedule, has_succeeded=row.last_success is not None, **more)


def due_of(row: Sequence[Any], *, claims: int = 0) -> DueFeed:
    """What a check needs by the order of `DUE_COLUMNS`, after so many more claims."""
    return DueFeed(
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
        next_attempt_at=from_micros(row[13]),
        etag=row[14],
        last_modified=row[15],
        failures=row[16],
        has_succeeded=row[17] is not None,
        token=row[18] + claims,
        has_moved=bool(row[19]),
    )


@lru_cache(SCHEDULES_KEPT)
def _schedule(every_s: float | None, cron: str | None, zone: str) -> Schedule:
    """To look whether it can be kept takes longer than all the rest."""
    return Schedule(every_s=every_s, cron=cron, zone=zone)


def _words(told: str) -> tuple[str, ...]:
    return () if told == "[]" else tuple(json.loads(told))


DUE_COLUMNS = """
    id, name, url, every_s, cron, zone, effective_s, is_adaptive, auto_import, takes_first, accept, reject, targets,
    next_attempt_at, etag, last_modified, failures, last_success, token, has_moved
"""


RESCHEDULE = text("UPDATE subscriptions SET next_attempt_at = :at WHERE id = :id")


def reschedule_anew(connection: Connection, number: int, *, now: datetime) -> Subscription:
    """Set the next check as if the last one had just ended."""
    found = watches.by_id(connection, FEED, number)
    if found is None:
        raise FEED.not_found(number)
    moved = evolve(found, next_attempt_at=next_time_anew(found, now=now))
    reschedule(connection, number, moved.next_attempt_at)
    return moved


_SAME_TIMES = """
    COALESCE(subscriptions.every_s, 0) = COALESCE(excluded.every_s, 0)
    AND COALESCE(subscriptions.cron, '') = COALESCE(excluded.cron, '') AND subscriptions.zone = excluded.zone
"""
# A check that runs is of what it was: what it brings is not written, and it is made anew.
_SAME = f"(subscriptions.url = excluded.url AND {_SAME_TIMES})"
FEED = WatchKind(
    codec=_FeedCodec(FEEDS, Subscription, also=("every_s", "cron", "zone")),
    what="subscription",
    command="subscriptions",
    section="feeds",
    matches="id = :number OR name = :wanted",
    first="id <> :number, id",
    set_by_file=("every_s", "cron", "zone", "takes_first", "origin", *fields_set_by(FeedSettings, Subscription)),
    set_with_file=f"""
        has_moved = false,
        token = subscriptions.token + CASE WHEN {_SAME} THEN 0 ELSE 1 END,
        claimed_by = CASE WHEN {_SAME} THEN subscriptions.claimed_by END,
        etag = CASE WHEN subscriptions.url = excluded.url THEN subscriptions.etag END,
        last_modified = CASE WHEN subscriptions.url = excluded.url THEN subscriptions.last_modified END,
        last_success = CASE WHEN CAST(:is_other AS boolean) THEN NULL ELSE subscriptions.last_success END,
        effective_s = CASE WHEN {_SAME_TIMES} THEN subscriptions.effective_s END,
        next_attempt_at = CASE WHEN {_SAME_TIMES} THEN subscriptions.next_attempt_at ELSE excluded.next_attempt_at END
    """,
    belongings=(("subscription_items", "subscription_id"), ("subscription_checks", "subscription_id")),
    set_with_pause="paused_because = 'paused by hand'",
    set_with_resume="paused_because = NULL, failures = 0, effective_s = NULL, next_attempt_at = :now",
)
_WRITTEN = text("SELECT name, written_url FROM subscriptions WHERE origin = 'configured' AND written_url IS NOT NULL")
_WRITE = text("UPDATE subscriptions SET written_url = :url WHERE name = :name")
_NAMES = text("SELECT url, name FROM subscriptions")
_DUE_UNTIL = text(f"""
    SELECT {FEED.codec.columns} FROM subscriptions WHERE NOT is_paused AND next_attempt_at < :until
    ORDER BY next_attempt_at, id LIMIT :limit
""")
_PUT_OFF = """
    SELECT id FROM subscriptions WHERE NOT is_paused AND last_checked > :ahead AND next_attempt_at > :now LIMIT :limit {lock}
"""
_NEXT_DUE = FastStatement("""
    SELECT next_attempt_at FROM subscriptions WHERE NOT is_paused AND claimed_by IS NULL ORDER BY next_attempt_at, id LIMIT 1
""")
_COUNT = text("SELECT count(*) AS total, sum(CASE WHEN is_paused THEN 0 ELSE 1 END) AS running FROM subscriptions")
