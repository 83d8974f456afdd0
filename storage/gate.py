"""New releases kept for apps, and the download links given to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from attrs import field, frozen
from sqlalchemy import Connection, bindparam, text

from cormorant.rules.latest_polls import LatestState, with_times
from cormorant.rules.search.caps import are_wanted, category_numbers
from cormorant.rules.search.requests import Result
from storage.engine.columns import from_micros, to_micros
from storage.search.answers import dump_results, load_results

ITEMS_MAX: Final = 1_000
"""Of one source. Sonarr, Radarr and Lidarr read at most 30 pages of 100, and seldom more than three."""
_CATEGORIES_MAX: Final = 50


@frozen(kw_only=True)
class LatestRow:
    """A find of a feed, and the time by which it is sorted."""

    source_id: int
    result: Result
    sort_at: datetime


@frozen(kw_only=True)
class LatestSlice:
    """A page of what is new. `total` counts what is kept in these categories, `kept` in all of them."""

    rows: Sequence[LatestRow]
    total: int
    kept: int


def look(connection: Connection, source_id: int) -> LatestState:
    """What is known of asking a source for what is new."""
    row = connection.execute(_LOOK, {"source_id": source_id}).one_or_none()
    return LatestState() if row is None else _state(row)


def want(connection: Connection, source_id: int, wanted: Collection[int], *, now: datetime) -> LatestState:
    """Note that an app wants these categories. Returns what is known by now."""
    state = _lock(connection, source_id)
    times = with_times(state.wanted, wanted, now=now)
    connection.execute(_WANT, {"source_id": source_id, "wanted": _dumped(times)})
    return LatestState(fetched=state.fetched, wanted=times)


def keep(
    connection: Connection, source_id: int, results: Sequence[Result], *, asked: Collection[int], now: datetime
) -> None:
    """Take in a page, and note that the source was asked for these categories."""
    if asked:
        times = with_times(_lock(connection, source_id).fetched, asked, now=now)
        connection.execute(_FETCHED, {"source_id": source_id, "fetched": _dumped(times)})
    rows = _rows(source_id, results, now)
    if rows:
        connection.execute(_PUT, rows)
        connection.execute(_TRIM, {"source_id": source_id, "most": ITEMS_MAX})


def page(
    connection: Connection, source_ids: Collection[int], categories: Collection[int], *, offset: int, limit: int
) -> LatestSlice:
    """What is new at these sources in these categories, newest first."""
    if not source_ids:
        return LatestSlice(rows=(), total=0, kept=0)
    ids = sorted(source_ids)
    every = connection.execute(_KEYS, {"source_ids": ids}).all()
    keys = [each.key for each in every if are_wanted(_numbers(each.categories), categories)]
    shown = keys[offset : offset + limit]
    found = {}
    if shown:
        found = {each.key: each for each in connection.execute(_RESULTS, {"source_ids": ids, "keys": shown})}
    rows = [_row(found[key]) for key in shown if key in found]
    return LatestSlice(rows=rows, total=len(keys), kept=len(every))


def _rows(source_id: int, results: Sequence[Result], now: datetime) -> list[dict[str, Any]]:
    seen: dict[str, dict[str, Any]] = {}
    at = to_micros(now)
    for position, result in enumerate(results):
        key = hashlib.sha256(f"{source_id}\0{result.guid}".encode(errors="replace")).hexdigest()[:40]
        if not result.link or key in seen:
            continue
        seen[key] = {
            "source_id": source_id,
            "key": key,
            # One that claims to come from the future would stay the newest until then.
            "sort_at": at if result.published is None else min(at, to_micros(result.published)),
            "rank": at - position,
            "seen_at": at,
            "categories": ",".join(map(str, sorted(category_numbers(result.categories))[:_CATEGORIES_MAX])),
            "result": dump_results([result]),
        }
    # Sorted: two processes that write the same finds must not lock them in different orders.
    return [seen[key] for key in sorted(seen)]


def _row(row: Any) -> LatestRow:
    [result] = load_results(row.result)
    return LatestRow(source_id=row.source_id, result=result, sort_at=from_micros(row.sort_at))


def _numbers(written: str) -> frozenset[int]:
    return frozenset(int(each) for each in written.split(",") if each)


def _state(row: Any) -> LatestState:
    return LatestState(fetched=_loaded(row.fetched), wanted=_loaded(row.wanted))


def _lock(connection: Connection, source_id: int) -> LatestState:
    return _state(connection.execute(_LOCK, {"source_id": source_id}).one())


def _loaded(written: str) -> dict[int, datetime]:
    return {int(category): from_micros(at) for category, at in json.loads(written).items()}


def _dumped(times: Mapping[int, datetime]) -> str:
    return json.dumps({str(category): to_micros(at) for category, at in sorted(times.items())})


@frozen(kw_only=True)
class GateLink:
    """A link of a source, and the reference that stands for it."""

    ref: str
    source_id: int
    link: str = field(repr=False)


def remember(connection: Connection, links: Sequence[GateLink], *, now: datetime) -> Mapping[str, datetime]:
    """Keep links. Returns when each was first seen, by its reference."""
    unique = {each.ref: each for each in links if "\0" not in each.link}
    if not unique:
        return {}
    written = {"now": to_micros(now), "stale": to_micros(now - _FRESH)}
    rows = [{"ref": each.ref, "source_id": each.source_id, "link": each.link} | written for each in unique.values()]
    # Sorted: two processes that write the same links must not lock them in different orders.
    connection.execute(_PUT_LINK, sorted(rows, key=lambda row: str(row["ref"])))
    found = connection.execute(_SEEN, {"refs": sorted(unique)})
    return {row.ref: from_micros(row.first_seen_at) for row in found}


def find(connection: Connection, ref: str, *, source_id: int) -> str | None:
    """The link of a source that a reference stands for."""
    link: str | None = connection.execute(_FIND, {"ref": ref, "source_id": source_id}).scalar_one_or_none()
    return link


_LOOK = text("SELECT fetched, wanted FROM feed_polls WHERE source_id = :source_id")
_LOCK = text("""
    INSERT INTO feed_polls (source_id) VALUES (:source_id)
    ON CONFLICT (source_id) DO UPDATE SET wanted = feed_polls.wanted RETURNING fetched, wanted
""")
_WANT = text("UPDATE feed_polls SET wanted = :wanted WHERE source_id = :source_id")
_FETCHED = text("UPDATE feed_polls SET fetched = :fetched WHERE source_id = :source_id")
_PUT = text("""
    INSERT INTO feed_items (source_id, key, sort_at, rank, seen_at, categories, result)
    VALUES (:source_id, :key, :sort_at, :rank, :seen_at, :categories, :result)
    ON CONFLICT (source_id, key) DO UPDATE SET seen_at = excluded.seen_at, categories = excluded.categories,
                                               result = excluded.result
""")
_TRIM = text("""
    DELETE FROM feed_items WHERE source_id = :source_id AND key NOT IN (
        SELECT key FROM feed_items WHERE source_id = :source_id ORDER BY sort_at DESC, rank DESC, key LIMIT :most)
""")
_KEYS = text("""
    SELECT key, categories FROM feed_items WHERE source_id IN :source_ids ORDER BY sort_at DESC, rank DESC, key
""").bindparams(bindparam("source_ids", expanding=True))
_RESULTS = text("""
    SELECT source_id, key, sort_at, result FROM feed_items WHERE source_id IN :source_ids AND key IN :keys
""").bindparams(bindparam("source_ids", expanding=True), bindparam("keys", expanding=True))
_FRESH = timedelta(days=1)
"""So long it is not written again that a link was seen."""
_PUT_LINK = text("""
    INSERT INTO gate_links (ref, source_id, link, first_seen_at, seen_at) VALUES (:ref, :source_id, :link, :now, :now)
    ON CONFLICT (ref) DO UPDATE SET seen_at = excluded.seen_at WHERE gate_links.seen_at < :stale
""")
_SEEN = text("SELECT ref, first_seen_at FROM gate_links WHERE ref IN :refs").bindparams(
    bindparam("refs", expanding=True)
)
_FIND = text("SELECT link FROM gate_links WHERE ref = :ref AND source_id = :source_id")
