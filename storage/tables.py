"""All tables, column by column, and the codec between rows and attrs classes.

Statements that run often are texts beside the functions that use them. They name columns of these tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from enum import Enum
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args

import attrs
from attrs import define, field
from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Float,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    event,
    false,
    text,
    true,
)
from sqlalchemy.types import TypeEngine

from storage.engine.columns import JsonText, Micros, PlainText, check_text, from_micros, to_micros

T = TypeVar("T")
Coder = Callable[[Any], Any] | None

METADATA: Final = MetaData()
ClaimedTable: TypeAlias = Table
"""A table whose rows are claimed."""

_ID_TYPE: Final = BigInteger().with_variant(Integer, "sqlite")
_ZERO: Final = text("0")
_EMPTY: Final = text("''")
_EMPTY_LIST: Final = text("'[]'")
_EMPTY_OBJECT: Final = text("'{}'")


def _id() -> Column[int]:
    """A number that is never used again: a stale owner must not write to another row that got the number of its own."""
    return Column("id", _ID_TYPE, Identity(), primary_key=True)


def _names(name: str) -> Column[Any]:
    return Column(name, JsonText, nullable=False, server_default=_EMPTY_LIST)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=false())


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=_ZERO)


def _claim_columns() -> list[Column[Any]]:
    """The worker that has claimed the row, and a number that rises with each claim."""
    return [Column("claimed_by", Text), Column("token", BigInteger, nullable=False, server_default=_ZERO)]


def _watch_table(name: str, *columns: Column[Any], one: str, of: Sequence[str]) -> Table:
    """A table of one kind of watch. There is `one` of each value of the columns `of`."""
    table = Table(
        name,
        METADATA,
        _id(),
        Column("name", PlainText, nullable=False),
        _names("sources"),
        Column("profile", PlainText, nullable=False, server_default=_EMPTY),
        _names("targets"),
        Column("origin", PlainText, nullable=False),
        _flag("is_paused"),
        Column("next_attempt_at", Micros, nullable=False),
        Column("last_checked", Micros),
        Column("last_error", PlainText),
        _count("failures"),
        Column("added_at", Micros, nullable=False),
        *_claim_columns(),
        *columns,
        sqlite_autoincrement=True,
    )
    Index(f"{name}_{one}", *(table.c[each] for each in of), unique=True)
    # What is due, and what a worker has claimed.
    _partial(f"{name}_due", table.c.next_attempt_at, table.c.id, where="NOT is_paused")
    _partial(f"{name}_claimed", table.c.claimed_by, table.c.id, where="claimed_by IS NOT NULL")
    return table


def _partial(name: str, *columns: Column[Any], where: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


# Jobs and workers

FLAGS: Final = Table(
    "flags",
    METADATA,
    Column("name", PlainText, primary_key=True),
    Column("value", Text),
    Column("changed_at", Micros, nullable=False),
)
JOBS: Final = Table(
    "jobs",
    METADATA,
    _id(),
    Column("uid", PlainText, nullable=False),
    Column("kind", PlainText, nullable=False),
    Column("state", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("run_at", Micros, nullable=False),
    _flag("held"),
    _count("attempts"),
    Column("max_attempts", Integer, nullable=False),
    _count("reclaims"),
    *_claim_columns(),
    Column("enqueued_at", Micros, nullable=False),
    Column("claimed_at", Micros),
    Column("finished_at", Micros),
    Column("dedupe_key", PlainText),
    Column("payload", PlainText, nullable=False),
    Column("rerun_payload", PlainText),
    Column("correlation_id", PlainText),
    Column("last_errors", PlainText),
    sqlite_autoincrement=True,
)
_WAITING: Final = "state IN ('pending', 'retryable')"
_LIVE: Final = "state IN ('pending', 'retryable', 'running')"
_partial("jobs_claim", JOBS.c.priority, JOBS.c.run_at, JOBS.c.id, where=f"{_WAITING} AND NOT held")
_partial("jobs_claimed", JOBS.c.claimed_by, JOBS.c.id, where="state = 'running'")
_partial("jobs_live", JOBS.c.kind, JOBS.c.dedupe_key, where=f"dedupe_key IS NOT NULL AND {_LIVE}", unique=True)
_partial("jobs_finished", JOBS.c.finished_at, JOBS.c.id, where="state IN ('succeeded', 'failed', 'cancelled')")
# On PostgreSQL the index of finished jobs would cost more than all else about a job. SQLite writes to an index only where
# its columns change.
Index("jobs_uid", JOBS.c.uid, unique=True, postgresql_where=text(_WAITING))
# A job table is rewritten all day: vacuum by count, not by share, and without pauses.
_AUTOVACUUM: Final = DDL(  # type: ignore[no-untyped-call]  # SQLAlchemy has not annotated it
    "ALTER TABLE jobs SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, "
    "autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000)"
)
event.listen(JOBS, "after_create", _AUTOVACUUM.execute_if(dialect="postgresql"))

WORKERS: Final = Table(
    "workers",
    METADATA,
    Column("id", PlainText, primary_key=True),
    Column("beat", BigInteger, nullable=False, server_default=_ZERO),
    Column("beat_at", Micros, nullable=False),
    Column("dead_at", Micros),
    Column("kinds", JsonText, nullable=False),
    Column("version", PlainText, nullable=False),
    # What the observing sweeper has seen: the beat, and for how many seconds it has been unchanged.
    Column("seen_beat", BigInteger, nullable=False, server_default=text("-1")),
    Column("unchanged_s", Float, nullable=False, server_default=_ZERO),
)
LEASES: Final = Table(
    "leases",
    METADATA,
    Column("name", PlainText, primary_key=True),
    Column("claimed_by", Text, nullable=False),
    # Rises while the holder lives.
    Column("renewals", BigInteger, nullable=False, server_default=_ZERO),
)
PAUSED_KINDS: Final = Table(
    "paused_kinds",
    METADATA,
    Column("kind", PlainText, primary_key=True),
    Column("paused_at", Micros, nullable=False),
)

# Sources

SOURCES: Final = Table(
    "sources",
    METADATA,
    _id(),
    # One account at one site, whatever it is called: re-adding it must find what was spent.
    Column("identity", PlainText, nullable=False, unique=True),
    Column("name", PlainText, nullable=False),
    Column("kind", PlainText, nullable=False),
    Column("url", PlainText, nullable=False),
    Column("key", PlainText, nullable=False, server_default=_EMPTY),
    Column("proxy", PlainText, nullable=False, server_default=_EMPTY),
    Column("limits", PlainText, nullable=False, server_default=_EMPTY_OBJECT),
    Column("origin", PlainText, nullable=False),
    _flag("is_removed"),
    Column("caps", PlainText),
    Column("caps_at", Micros),
    Column("changed_at", Micros, nullable=False),
    sqlite_autoincrement=True,
)
_partial("sources_name", SOURCES.c.name, where="NOT is_removed", unique=True)


def _lane_columns(lane: str) -> list[Column[Any]]:
    return [
        Column(f"{lane}_last_seq", BigInteger, nullable=False, server_default=_ZERO),
        Column(f"{lane}_last_at", Micros),
        Column(f"{lane}_last_end_at", Micros),
        Column(f"{lane}_tokens", Float),
        Column(f"{lane}_tokens_at", Micros),
        Column(f"{lane}_in_flight", JsonText, nullable=False, server_default=_EMPTY_LIST),
    ]


SOURCE_STATE: Final = Table(
    "source_state",
    METADATA,
    Column("source_id", BigInteger, primary_key=True, autoincrement=False),
    Column("is_enabled", Boolean, nullable=False, server_default=true()),
    _flag("is_paused"),
    Column("paused_until", Micros),
    Column("stopped_because", PlainText),
    Column("cooldown_until", Micros),
    _count("cooldown_level"),
    Column("breaker_state", Text, nullable=False, server_default=text("'closed'")),
    _count("breaker_failures"),
    Column("breaker_open_until", Micros),
    _names("breaker_probes"),
    Column("generation", BigInteger, nullable=False, server_default=_ZERO),
    _count("failure_streak"),
    Column("last_success_at", Micros),
    Column("last_failure_at", Micros),
    *_lane_columns("query"),
    *_lane_columns("grab"),
    Column("learned", JsonText, nullable=False, server_default=_EMPTY_OBJECT),
    # Rises with every change, so that one statement both checks that a copy is up to date and writes.
    Column("version", BigInteger, nullable=False, server_default=text("1")),
)
SOURCE_REQUESTS: Final = Table(
    "source_requests",
    METADATA,
    Column("source_id", BigInteger, primary_key=True),
    Column("lane", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("at", Micros, nullable=False),
    Column("expires_at", Micros, nullable=False),
    Column("consumer", PlainText, nullable=False),
)
Index("source_requests_at", SOURCE_REQUESTS.c.at)

# Searches

SEARCH_HISTORY: Final = Table(
    "search_history",
    METADATA,
    _id(),
    Column("search_id", BigInteger, nullable=False),
    Column("task", BigInteger, nullable=False),
    Column("source", PlainText, nullable=False),
    Column("query", PlainText, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("consumer", PlainText, nullable=False),
    Column("status", Text, nullable=False),
    Column("results", Integer, nullable=False),
    Column("started_at", Micros, nullable=False),
    Column("took_s", Float, nullable=False),
    Column("waited_s", Float, nullable=False),
    Column("error", PlainText),
    sqlite_autoincrement=True,
)
Index("search_history_started", SEARCH_HISTORY.c.started_at)
SEARCH_CACHE: Final = Table(
    "search_cache",
    METADATA,
    Column("source_id", BigInteger, primary_key=True),
    Column("key", PlainText, primary_key=True),
    Column("stored_at", Micros, nullable=False),
    Column("expires_at", Micros, nullable=False),
    Column("results", PlainText, nullable=False),
)
Index("search_cache_expires", SEARCH_CACHE.c.expires_at)
SEARCH_LEDGER: Final = Table(
    "search_ledger",
    METADATA,
    Column("job_id", BigInteger, primary_key=True),
    Column("source", PlainText, primary_key=True),
    Column("status", Text, nullable=False),
    Column("answered_at", Micros, nullable=False),
    Column("results", PlainText, nullable=False, server_default=_EMPTY_LIST),
    Column("error", PlainText),
)

# The gate

GATE_LINKS: Final = Table(
    "gate_links",
    METADATA,
    Column("ref", PlainText, primary_key=True),
    Column("source_id", BigInteger, nullable=False),
    Column("link", PlainText, nullable=False),
    Column("first_seen_at", Micros, nullable=False),
    Column("seen_at", Micros, nullable=False),
)
Index("gate_links_seen", GATE_LINKS.c.seen_at)
FEED_POLLS: Final = Table(
    "feed_polls",
    METADATA,
    Column("source_id", BigInteger, primary_key=True, autoincrement=False),
    # When each category was last asked for, and when an app last wanted it.
    Column("fetched", JsonText, nullable=False, server_default=_EMPTY_OBJECT),
    Column("wanted", JsonText, nullable=False, server_default=_EMPTY_OBJECT),
)
FEED_ITEMS: Final = Table(
    "feed_items",
    METADATA,
    Column("source_id", BigInteger, primary_key=True),
    Column("key", PlainText, primary_key=True),
    Column("sort_at", Micros, nullable=False),
    Column("rank", BigInteger, nullable=False),
    Column("seen_at", Micros, nullable=False),
    Column("categories", PlainText, nullable=False),
    Column("result", PlainText, nullable=False),
)
Index("feed_items_newest", FEED_ITEMS.c.source_id, FEED_ITEMS.c.sort_at)
Index("feed_items_seen", FEED_ITEMS.c.seen_at)
GATE_CLIENTS: Final = Table(
    "gate_clients",
    METADATA,
    Column("name", PlainText, primary_key=True),
    Column("priority", Text, nullable=False),
    Column("hold_s", Float, nullable=False),
    Column("share", Float, nullable=False),
    # Only a digest: whoever reads the database cannot use the key.
    Column("key_digest", Text, nullable=False),
    Column("added_at", Micros, nullable=False),
)

# Watches

ARTISTS: Final = _watch_table(
    "watchlist_artists",
    Column("source", PlainText, nullable=False),
    Column("artist_id", PlainText, nullable=False),
    Column("start", Text, nullable=False),
    Column("start_on", Text),
    Column("every_s", Float),
    Column("watermark", Micros),
    Column("retry_block_until", Micros),
    one="artist",
    of=("source", "artist_id"),
)
CATALOGUE_WALKS: Final = Table(
    "catalogue_walks",
    METADATA,
    Column("source", PlainText, primary_key=True),
    Column("artist_id", PlainText, primary_key=True),
    Column("began_at", Micros, nullable=False),
    Column("walk", PlainText, nullable=False),
)
SAVED_SEARCHES: Final = _watch_table(
    "saved_searches",
    Column("request", PlainText, nullable=False),
    Column("every_s", Float, nullable=False),
    Column("first_check", Text, nullable=False),
    _names("answered"),
    one="name",
    of=("name",),
)
FEEDS: Final = _watch_table(
    "subscriptions",
    Column("url", PlainText, nullable=False),
    _flag("has_moved"),
    Column("every_s", Float),
    Column("cron", PlainText),
    Column("zone", PlainText, nullable=False),
    Column("effective_s", Float),
    _flag("is_adaptive"),
    Column("auto_import", Boolean, nullable=False, server_default=true()),
    _flag("takes_first"),
    _names("accept"),
    _names("reject"),
    _names("folder"),
    Column("paused_because", PlainText),
    Column("etag", PlainText),
    Column("last_modified", PlainText),
    Column("last_success", Micros),
    Column("written_url", PlainText),
    one="name",
    of=("name",),
)
SUBSCRIPTION_ITEMS: Final = Table(
    "subscription_items",
    METADATA,
    Column("subscription_id", BigInteger, primary_key=True),
    Column("key", PlainText, primary_key=True),
    Column("title", PlainText, nullable=False),
    Column("published_at", Micros),
    Column("seen_at", Micros, nullable=False),
    Column("gone_at", Micros),
)
# What is still in its feed, and what is gone by time.
Index("subscription_items_gone", SUBSCRIPTION_ITEMS.c.gone_at, SUBSCRIPTION_ITEMS.c.subscription_id)
SUBSCRIPTION_CHECKS: Final = Table(
    "subscription_checks",
    METADATA,
    # No number is named outside, so SQLite may use one again: not to would cost a second write for each check.
    Column("id", _ID_TYPE, Identity(), primary_key=True),
    Column("subscription_id", BigInteger, nullable=False),
    Column("started_at", Micros, nullable=False),
    Column("status", Text, nullable=False),
    Column("items_found", Integer, nullable=False),
    Column("new_items", Integer, nullable=False),
    Column("duration_ms", BigInteger, nullable=False),
    Column("error", PlainText),
)
Index("subscription_checks_of", SUBSCRIPTION_CHECKS.c.subscription_id, SUBSCRIPTION_CHECKS.c.id)

# Prices

PRICES: Final = _watch_table(
    "intakes",
    Column("title", PlainText, nullable=False),
    Column("year", PlainText, nullable=False),
    Column("mintmark", PlainText, nullable=False),
    Column("denomination", PlainText, nullable=False),
    Column("series", PlainText, nullable=False),
    Column("every_s", Float, nullable=False),
    Column("currency", PlainText, nullable=False),
    Column("below_cents", BigInteger),
    Column("above_cents", BigInteger),
    one="name",
    of=("name",),
)
PRICE_POINTS: Final = Table(
    "price_points",
    METADATA,
    # Together: the same point is there once, however often it is stated.
    Column("intake_id", BigInteger, primary_key=True),
    Column("source", PlainText, primary_key=True),
    Column("dedupe_key", PlainText, primary_key=True),
    Column("title", PlainText, nullable=False),
    Column("url", PlainText, nullable=False),
    Column("cents", BigInteger, nullable=False),
    Column("currency", PlainText, nullable=False),
    Column("type", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("external_id", PlainText),
    Column("match_strength", Integer, nullable=False),
    Column("seen_at", Micros, nullable=False),
)
Index("price_points_newest", PRICE_POINTS.c.intake_id, PRICE_POINTS.c.day, PRICE_POINTS.c.seen_at)


def _value_columns() -> list[Column[Any]]:
    return [
        Column("cents", BigInteger, nullable=False),
        Column("currency", PlainText, nullable=False),
        Column("points", Integer, nullable=False),
        Column("match_strength", Integer, nullable=False),
        Column("others", Integer, nullable=False),
        Column("valued_at", Micros, nullable=False),
        Column("side", Text, nullable=False),
    ]


VALUATIONS: Final = Table(
    "valuations",
    METADATA,
    Column("intake_id", BigInteger, primary_key=True, autoincrement=False),
    *_value_columns(),
)
VALUATION_HISTORY: Final = Table(
    "valuation_history",
    METADATA,
    _id(),
    Column("intake_id", BigInteger, nullable=False),
    *_value_columns(),
    sqlite_autoincrement=True,
)
Index("valuation_history_of", VALUATION_HISTORY.c.intake_id, VALUATION_HISTORY.c.id)
PRICE_ALERTS: Final = Table(
    "price_alerts",
    METADATA,
    _id(),
    Column("intake_id", BigInteger, nullable=False),
    Column("side", Text, nullable=False),
    Column("limit_cents", BigInteger, nullable=False),
    Column("cents", BigInteger, nullable=False),
    Column("currency", PlainText, nullable=False),
    Column("raised_at", Micros, nullable=False),
    sqlite_autoincrement=True,
)
Index("price_alerts_of", PRICE_ALERTS.c.intake_id, PRICE_ALERTS.c.id)

# Wants and handovers

WANTS: Final = Table(
    "wants",
    METADATA,
    _id(),
    # Wanted once, whichever watch finds it.
    Column("key", PlainText, nullable=False, unique=True),
    Column("kind", PlainText, nullable=False),
    Column("title", PlainText, nullable=False),
    Column("artist", PlainText, nullable=False),
    Column("watch", PlainText, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", PlainText, nullable=False),
    _names("sources"),
    Column("profile", PlainText, nullable=False, server_default=_EMPTY),
    _names("targets"),
    Column("facts", JsonText, nullable=False, server_default=_EMPTY_OBJECT),
    _count("looks"),
    Column("chosen_ref", PlainText),
    Column("found_at", Micros, nullable=False),
    Column("changed_at", Micros, nullable=False),
    Column("next_at", Micros),
    sqlite_autoincrement=True,
)
Index("wants_state", WANTS.c.state, WANTS.c.id)
CANDIDATES: Final = Table(
    "candidates",
    METADATA,
    Column("want_id", BigInteger, primary_key=True),
    Column("ref", PlainText, primary_key=True),
    Column("source", PlainText, nullable=False),
    Column("result", PlainText, nullable=False),
    Column("position", Integer),
    Column("reasons", JsonText, nullable=False),
    Column("merits", JsonText, nullable=False),
    Column("failed_because", PlainText),
    Column("found_at", Micros, nullable=False),
)
HANDOVERS: Final = Table(
    "downloads",
    METADATA,
    _id(),
    Column("want_id", BigInteger, nullable=False),
    Column("ref", PlainText, nullable=False),
    Column("target", PlainText, nullable=False),
    Column("key", PlainText, nullable=False, unique=True),
    Column("title", PlainText, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", PlainText, nullable=False),
    _count("asked"),
    _count("sent"),
    Column("facts", JsonText, nullable=False, server_default=_EMPTY_OBJECT),
    Column("target_id", PlainText),
    Column("created_at", Micros, nullable=False),
    Column("changed_at", Micros, nullable=False),
    Column("next_at", Micros),
    *_claim_columns(),
    sqlite_autoincrement=True,
)
# A want has one handover that counts: whatever goes wrong, nothing is fetched twice.
_partial("downloads_want", HANDOVERS.c.want_id, where="state <> 'failed'", unique=True)
_partial("downloads_tracked", HANDOVERS.c.next_at, HANDOVERS.c.id, where="state = 'handed over'")
_partial("downloads_claimed", HANDOVERS.c.claimed_by, HANDOVERS.c.id, where="claimed_by IS NOT NULL")

CLAIMED: Final = (ARTISTS, FEEDS, SAVED_SEARCHES, PRICES, HANDOVERS)
"""The tables whose rows a process claims, besides jobs."""


# The codec


@define(eq=False)
class RowCodec(Generic[T]):
    """Translates between the rows of a table and an attrs class, whose fields have the names of columns.

    Values are those of the driver, so that statements can be plain texts: times are microseconds, lists and mappings are
    JSON, enumerations are their values.
    """

    table: Table
    cls: type[T]
    columns_of: Mapping[str, str] = {}
    """Fields whose column has another name."""
    also: tuple[str, ...] = ()
    """Columns that the caller translates. They come last in a row."""
    columns: str = field(init=False)
    """For a SELECT whose rows `from_row` understands."""
    _fields: tuple[tuple[str, str, Coder, Coder], ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        attrs.resolve_types(self.cls)  # type: ignore[type-var]  # an attrs class
        found = []
        for each in attrs.fields(self.cls):  # type: ignore[arg-type]  # an attrs class
            column = self.columns_of.get(each.name, each.name)
            if column in self.table.c and column not in self.also:
                found.append((each.name, column, *_coders(self.table.c[column].type, each.type)))
        self._fields = tuple(found)
        self.columns = ", ".join([*(column for _, column, _, _ in found), *self.also])

    def to_row(self, thing: T, **more: Any) -> dict[str, Any]:
        """The values of the columns, by name; `more` are those that the caller has translated."""
        row = {}
        for name, column, encode, _ in self._fields:
            value = getattr(thing, name)
            row[column] = value if encode is None or value is None else encode(value)
        return row | more

    def from_row(self, row: Sequence[Any], **more: Any) -> T:
        """The object of a row that was read by `columns`; `more` are fields that the caller has translated."""
        values = {
            name: value if decode is None or value is None else decode(value)
            for (name, _, _, decode), value in zip(self._fields, row, strict=False)
        }
        return self.cls(**values, **more)

    def insert(self, *more: str) -> str:
        """An INSERT of what `to_row` returns, and of `more` columns, to be continued. The database chooses the id."""
        names = [column for _, column, _, _ in self._fields if column != "id"] + [*self.also, *more]
        return f"INSERT INTO {self.table.name} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"  # noqa: S608 - names of ours


def _coders(column: TypeEngine[Any], field_type: Any) -> tuple[Coder, Coder]:
    """How a value is written and read, by the type of its column and of its field."""
    of = next((each for each in (field_type, *get_args(field_type)) if isinstance(each, type)), object)
    if isinstance(column, Micros):
        return to_micros, from_micros
    if isinstance(column, JsonText):
        return _dump, _load
    if isinstance(column, Boolean):
        return None, bool
    if issubclass(of, Enum):
        return _value_of, of
    if issubclass(of, date):
        return date.isoformat, date.fromisoformat
    return (check_text if isinstance(column, PlainText) else None), None


def _dump(value: Any) -> str:
    return json.dumps(dict(value) if isinstance(value, Mapping) else list(value))


def _load(value: str) -> Any:
    if value == "[]":
        return ()
    loaded = json.loads(value)
    return tuple(loaded) if isinstance(loaded, list) else loaded


def _value_of(value: Enum) -> Any:
    return value.value


def excluded(columns: Iterable[str]) -> str:
    """The assignments of an upsert that takes over these columns."""
    return ", ".join(f"{name} = excluded.{name}" for name in columns)
