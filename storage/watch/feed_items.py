"""Feed entries seen before, check records, and the transaction that records a check."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, bindparam, text

from cormorant.rules.watch.feeds import (
    IMPORTED_TOGETHER,
    CheckStatus,
    DueFeed,
    FeedCheck,
    FeedEntryItem,
    FetchedFeed,
    NextCheck,
    after_check,
    is_wanted,
)
from cormorant.rules.watch.wants import short_key
from storage.engine.columns import from_micros, kept_text, maybe_to_micros, to_micros
from storage.engine.statements import FastStatement
from storage.watch import choice, feed_claims
from storage.watch.choice import CandidateChoice
from storage.watch.feed_claims import CheckedElsewhere

KEY_LENGTH_MAX = 500
TITLE_LENGTH_MAX = 500
KNOWN_MAX = 20_000
"""So many are remembered of a feed that is never read whole."""
FORGOTTEN_TOGETHER = 2_000


def record_new(
    connection: Connection,
    subscription_id: int,
    items: Sequence[FeedEntryItem],
    *,
    now: datetime,
    is_whole: bool = True,
    limit: int | None = None,
) -> list[FeedEntryItem]:
    """Remember what is in a feed now, no more than `limit` new ones. Returns what was not seen before, in its order.

    Invariant: what is in the feed has no time at which it went, however long nobody looked or nothing changed.
    `is_whole`: what is not among the items is no longer in the feed; that is noted with the last of what is new.
    """
    unique: dict[str, FeedEntryItem] = {}
    for item in items:
        unique.setdefault(kept_text(short_key(item.key, KEY_LENGTH_MAX), KEY_LENGTH_MAX), item)
    known = _known(connection, subscription_id, unique)
    _COME_BACK.change_many(connection, [(subscription_id, key) for key in sorted(known) if not known[key]])
    came = islice((key for key in unique if key not in known), limit)
    new = _new(connection, subscription_id, list(came), unique, now=now)
    if limit is None or len(new) < limit:
        (_remove_absent if is_whole else _forget_some)(connection, subscription_id, unique, now=now)
    return [item for key, item in unique.items() if key in new]


def prune(connection: Connection, *, before: datetime, limit: int) -> int:
    """Forget some that went out of their feed before that, the longest gone first."""
    return _PRUNE.change(connection, (to_micros(before), limit, to_micros(before)))


def _known(connection: Connection, subscription_id: int, keys: Iterable[str]) -> dict[str, bool]:
    """Those that were seen before, and whether they were there at the last look. A feed may have thousands of others."""
    statement = _KNOWN_OF_POSTGRES if connection.dialect.name == "postgresql" else _KNOWN
    return {row[0]: row[1] is None for row in statement.rows(connection, (subscription_id, json.dumps(list(keys))))}


def _remove_absent(connection: Connection, subscription_id: int, keys: Collection[str], *, now: datetime) -> None:
    """Note which are no longer in the feed."""
    went = sorted({row[0] for row in _THERE.rows(connection, (subscription_id,))}.difference(keys))
    _GO.change_many(connection, [(to_micros(now), subscription_id, key) for key in went])


def _forget_some(connection: Connection, subscription_id: int, keys: Collection[str], *, now: datetime) -> None:  # noqa: ARG001 - as the other
    """Of a feed that is never read whole nobody knows what is no longer in it: only so many are remembered."""
    room = KNOWN_MAX + FORGOTTEN_TOGETHER
    [count] = _COUNT.first(connection, (subscription_id, room + FORGOTTEN_TOGETHER)) or (0,)
    if count <= room:
        return
    oldest = (row[0] for row in _OLDEST.rows(connection, (subscription_id, FORGOTTEN_TOGETHER + len(keys))))
    gone = sorted(islice((key for key in oldest if key not in keys), FORGOTTEN_TOGETHER))
    _FORGET.change_many(connection, [(subscription_id, key) for key in gone])


def _new(
    connection: Connection,
    subscription_id: int,
    fresh: Sequence[str],
    unique: dict[str, FeedEntryItem],
    *,
    now: datetime,
) -> Collection[str]:
    """Remember these; returns those that nobody else has meanwhile."""
    rows = [
        {
            "key": key,
            "title": kept_text(unique[key].title, TITLE_LENGTH_MAX),
            "published": maybe_to_micros(unique[key].published),
        }
        for key in sorted(fresh)
    ]
    return _put(connection, rows, {"id": subscription_id, "now": to_micros(now)}) if rows else ()


def _put(connection: Connection, rows: Sequence[dict[str, Any]], words: dict[str, int]) -> Collection[str]:
    """The keys that nobody else has put meanwhile. SQLite has one writer at a time."""
    if connection.dialect.name == "postgresql":
        return set(connection.execute(_PUT_ALL, words | {"rows": json.dumps(rows)}).scalars())
    connection.execute(_PUT, [row | words for row in rows])
    return {row["key"] for row in rows}


LOOKED_AT = 10


"""For each that may go so many are looked at: some that a clock that ran ahead has dated do not keep the others."""


def recent_new(connection: Connection, number: int, *, limit: int) -> list[int]:
    """How many new items the last successful checks brought, newest first."""
    return list(connection.execute(_RECENT_NEW, {"id": number, "limit": limit}).scalars())


def checks(connection: Connection, number: int, *, limit: int = 20) -> list[FeedCheck]:
    """The last checks, newest first."""
    return [_check(row) for row in connection.execute(_CHECKS, {"id": number, "limit": limit})]


def last_checks(connection: Connection, numbers: Sequence[int]) -> dict[int, FeedCheck]:
    """The last check of each of these subscriptions, as far as there is one."""
    rows = connection.execute(_LAST, {"ids": list(numbers)})
    return {row.subscription_id: _check(row) for row in rows}


def prune_checks(connection: Connection, *, before: datetime, after: datetime, limit: int) -> int:
    """Forget old checks, oldest first: they came in the order of their numbers, but for jumps of the clock.

    Those that a clock that ran ahead has dated after that go as well: thousands of them would keep all others.
    """
    words = {"before": to_micros(before), "after": to_micros(after), "limit": limit, "looked_at": limit * LOOKED_AT}
    return connection.execute(_PRUNE_CHECKS, words).rowcount


def _check(row: Any) -> FeedCheck:
    return FeedCheck(
        subscription_id=row.subscription_id,
        started_at=from_micros(row.started_at),
        status=CheckStatus(row.status),
        items_found=row.items_found,
        new_items=row.new_items,
        duration_ms=row.duration_ms,
        error=row.error,
    )


ADAPTED_BY = 10


"""So many of the last checks say how busy a feed is."""


def record_check(
    connection: Connection,
    feed: DueFeed,
    page: FetchedFeed,
    check: FeedCheck,
    *,
    chooser: CandidateChoice,
    now: datetime,
) -> tuple[FeedCheck, int, NextCheck | None]:
    """Record a check and its new items, at most `IMPORTED_TOGETHER` of them in one transaction.

    Returns the check with the number of new items, how many of them are wanted, and what follows. None: the page has more
    new items, and the caller repeats the call. Raises `CheckedElsewhere` when this process has lost its claim.
    """
    is_first = not feed.has_succeeded and not feed.takes_first
    is_imported = feed.auto_import and not is_first
    limit = IMPORTED_TOGETHER if is_imported else None
    new: Sequence[FeedEntryItem] = ()
    if check.status is CheckStatus.SUCCESS and not page.is_unchanged:
        new = record_new(connection, feed.id, page.items, now=now, is_whole=page.left_out == 0, limit=limit)
    check = check if is_first else evolve(check, new_items=check.new_items + len(new))
    wanted = [item for item in new if is_wanted(item, feed)] if is_imported else []
    if limit is not None and len(new) == limit:
        if not feed_claims.lock(connection, feed):
            raise CheckedElsewhere(feed.id)
        return check, choice.record_feed_items(connection, chooser, feed, wanted, now=now), None
    following = _end(connection, feed, page, check, is_first=is_first, now=now)
    return check, choice.record_feed_items(connection, chooser, feed, wanted, now=now) if wanted else 0, following


def _end(
    connection: Connection, feed: DueFeed, page: FetchedFeed, check: FeedCheck, *, is_first: bool, now: datetime
) -> NextCheck:
    recent: Sequence[int] = ()
    if feed.is_adaptive and not is_first:  # items of the first check say nothing about how busy the feed is
        recent = [check.new_items, *recent_new(connection, feed.id, limit=ADAPTED_BY - 1)]
    following = after_check(feed, error=check.error, recent_new=recent, now=now, wait_s=page.wait_s)
    is_ours = feed_claims.end_check(
        connection,
        feed,
        following,
        check=check,
        etag=feed.etag if page.is_unchanged else page.etag,
        last_modified=feed.last_modified if page.is_unchanged else page.last_modified,
        url=page.moved_to,
    )
    if not is_ours:
        raise CheckedElsewhere(feed.id)
    return following


_THERE = FastStatement("SELECT key FROM subscription_items WHERE gone_at IS NULL AND subscription_id = :id")
_GO = FastStatement("UPDATE subscription_items SET gone_at = :now WHERE subscription_id = :id AND key = :key")
_COME_BACK = FastStatement("UPDATE subscription_items SET gone_at = NULL WHERE subscription_id = :id AND key = :key")
# Twice: on PostgreSQL one may come back between the two, and then it is not forgotten.
_PRUNE = FastStatement("""
    DELETE FROM subscription_items WHERE (subscription_id, key) IN (
        SELECT subscription_id, key FROM subscription_items WHERE gone_at < :before ORDER BY gone_at LIMIT :limit)
    AND gone_at < :before_still
""")
_SEEN = "SELECT key, gone_at FROM subscription_items WHERE subscription_id = :id AND key IN"
_KNOWN = FastStatement(f"{_SEEN} (SELECT value FROM json_each(:keys))")
_KNOWN_OF_POSTGRES = FastStatement(f"{_SEEN} (SELECT json_array_elements_text(CAST(:keys AS json)))")
_COUNT = FastStatement("""
    SELECT count(*) FROM (SELECT 1 AS one FROM subscription_items WHERE subscription_id = :id LIMIT :limit) AS counted
""")
_OLDEST = FastStatement(
    "SELECT key FROM subscription_items WHERE subscription_id = :id ORDER BY seen_at, key LIMIT :limit"
)
_FORGET = FastStatement("DELETE FROM subscription_items WHERE subscription_id = :id AND key = :key")
_INSERT = "INSERT INTO subscription_items (subscription_id, key, title, published_at, seen_at)"
_PUT = text(f"{_INSERT} VALUES (:id, :key, :title, :published, :now)")
_PUT_ALL = text(f"""
    {_INSERT} SELECT CAST(:id AS bigint), key, title, published, CAST(:now AS bigint)
    FROM json_to_recordset(CAST(:rows AS json)) AS told(key text, title text, published bigint)
    ON CONFLICT (subscription_id, key) DO NOTHING RETURNING key
""")
_RECENT_NEW = text("""
    SELECT new_items FROM subscription_checks WHERE subscription_id = :id AND status = 'success'
    ORDER BY id DESC LIMIT :limit
""")
_CHECKS = text("SELECT * FROM subscription_checks WHERE subscription_id = :id ORDER BY id DESC LIMIT :limit")
_LAST = text("""
    SELECT * FROM subscription_checks WHERE id IN (
        SELECT MAX(id) FROM subscription_checks WHERE subscription_id IN :ids GROUP BY subscription_id)
""").bindparams(bindparam("ids", expanding=True))
_PRUNE_CHECKS = text("""
    DELETE FROM subscription_checks WHERE id IN (
        SELECT id FROM (SELECT id, started_at FROM subscription_checks ORDER BY id LIMIT :looked_at) AS first
        WHERE started_at < :before OR started_at > :after ORDER BY id LIMIT :limit)
""")
