"""Price points, valuations, alerts, and enqueueing their collection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import evolve, frozen
from sqlalchemy import Connection, text

from cormorant.rules.settings.watch import PriceSettings
from cormorant.rules.watch.prices import (
    AlertSide,
    MatchStrength,
    PricePoint,
    PriceWatch,
    Valuation,
    has_crossed,
    value_of,
)
from cormorant.rules.watch.watches import fields_set_by, next_check
from storage.engine.columns import kept_text
from storage.jobs.jobs import NewJob
from storage.tables import PRICE_ALERTS, PRICE_POINTS, PRICES, VALUATION_HISTORY, VALUATIONS, RowCodec, excluded
from storage.watch import watches
from storage.watch.watches import WatchKind

TEXT_LENGTH_MAX = 500
POINTS_MAX = 5_000
"""So many points are kept of an intake, the newest."""
HISTORY_MAX = 500
"""So many earlier values are kept of an intake, and as many alerts."""


@frozen(kw_only=True)
class Alert:
    """A value went below or above a limit."""

    side: AlertSide
    limit_cents: int
    cents: int
    currency: str
    raised_at: datetime


@frozen(kw_only=True)
class Collected:
    """What came of writing down what a source states: how many points are new or match better, and what that means."""

    intake: PriceWatch
    written: int
    valuation: Valuation | None
    has_changed: bool = False
    alert: Alert | None = None


@frozen(kw_only=True)
class PriceView:
    """A price that is watched, and what it is worth; None: nothing that was sold is known."""

    intake: PriceWatch
    valuation: Valuation | None
    points: tuple[PricePoint, ...] = ()
    alerts: tuple[Alert, ...] = ()


PRICE = WatchKind(
    codec=RowCodec(PRICES, PriceWatch),
    what="price",
    command="prices",
    section="prices",
    set_by_file=("below_cents", "above_cents", "origin", *fields_set_by(PriceSettings, PriceWatch)),
    belongings=tuple(
        (table, "intake_id") for table in ("price_points", "valuations", "valuation_history", "price_alerts")
    ),
    keeps_taken_out=True,
)
_MATCH = {"match": "match_strength"}
POINT = RowCodec(PRICE_POINTS, PricePoint, columns_of=_MATCH | {"key": "dedupe_key"})
VALUATION = RowCodec(VALUATIONS, Valuation, columns_of=_MATCH)
PAST_VALUATION = RowCodec(VALUATION_HISTORY, Valuation, columns_of=_MATCH)
ALERT = RowCodec(PRICE_ALERTS, Alert)


def collect(connection: Connection, intake_id: int, points: Iterable[PricePoint], *, now: datetime) -> Collected | None:
    """Write points down and value the intake anew. None when it is no longer watched. Doing it twice changes nothing."""
    intake = watches.by_id(connection, PRICE, intake_id, lock=True)
    if intake is None:
        return None
    written = put_points(connection, intake_id, points)
    before = valuation(connection, intake_id)
    found = value_of(_sold(connection, intake_id), intake, now=now)
    if found is None:
        return Collected(intake=intake, written=written, valuation=before)
    has_changed = before is None or (before.cents, before.currency) != (found.cents, found.currency)
    connection.execute(_VALUE, VALUATION.to_row(found, intake_id=intake_id))
    if has_changed:
        connection.execute(_REMEMBER, VALUATION.to_row(found, intake_id=intake_id))
        connection.execute(_FORGET_HISTORY, {"id": intake_id, "most": HISTORY_MAX})
    alert = _alert(connection, intake, AlertSide.WITHIN if before is None else before.side, found)
    return Collected(intake=intake, written=written, valuation=found, has_changed=has_changed, alert=alert)


def collect_again(
    connection: Connection, intake_id: int, points: Iterable[PricePoint], *, now: datetime
) -> Collected | None:
    """As `collect`, after one with the same `now` that may have been written: the alert that it raised is this one's."""
    done = collect(connection, intake_id, points, now=now)
    if done is None or done.alert is not None:
        return done
    raised = [alert for alert in alerts(connection, intake_id, limit=1) if alert.raised_at == now]
    return evolve(done, alert=raised[0]) if raised else done


def put_points(connection: Connection, intake_id: int, points: Iterable[PricePoint]) -> int:
    """Keep points. One that is there stays as it is, unless the new one matches better. Returns how many were written."""
    # Of one answer the strongest; in one order, so that two processes do not wait for each other.
    strongest: dict[tuple[str, str], PricePoint] = {}
    for point in points:
        there = strongest.setdefault((point.source, point.key), point)
        if point.match > there.match:
            strongest[point.source, point.key] = point
    written = 0
    for _, point in sorted(strongest.items()):
        written += connection.execute(_PUT, _point_row(intake_id, point)).rowcount
    if written:
        connection.execute(_FORGET_POINTS, {"id": intake_id, "most": POINTS_MAX})
    return written


def points_of(connection: Connection, intake_id: int, *, limit: int = 100) -> list[PricePoint]:
    """The newest points of an intake."""
    return [POINT.from_row(row) for row in connection.execute(_POINTS, {"id": intake_id, "limit": limit})]


def valuation(connection: Connection, intake_id: int) -> Valuation | None:
    """What an intake is worth now, if that is known."""
    row = connection.execute(_VALUATION, {"id": intake_id}).one_or_none()
    return None if row is None else VALUATION.from_row(row)


def valuations(connection: Connection) -> dict[int, Valuation]:
    """What is known of all, by the number of the intake."""
    return {row.intake_id: VALUATION.from_row(row) for row in connection.execute(_VALUATIONS)}


def history(connection: Connection, intake_id: int, *, limit: int = 100) -> list[Valuation]:
    """The values that it had, newest first; one for each change."""
    return [VALUATION.from_row(row) for row in connection.execute(_HISTORY, {"id": intake_id, "limit": limit})]


def alerts(connection: Connection, intake_id: int, *, limit: int = 100) -> list[Alert]:
    """The alerts of an intake, newest first."""
    return [ALERT.from_row(row) for row in connection.execute(_ALERTS, {"id": intake_id, "limit": limit})]


def all_views(connection: Connection) -> list[PriceView]:
    """All that is watched, by name, without points and alerts."""
    known = valuations(connection)
    return [PriceView(intake=each, valuation=known.get(each.id)) for each in watches.all_of(connection, PRICE)]


def view(connection: Connection, name: str, *, limit: int) -> PriceView:
    """One of them with its newest points and alerts, or `NotFound`."""
    intake = watches.find(connection, PRICE, name)
    return PriceView(
        intake=intake,
        valuation=valuation(connection, intake.id),
        points=tuple(points_of(connection, intake.id, limit=limit)),
        alerts=tuple(alerts(connection, intake.id, limit=limit)),
    )


def history_of(connection: Connection, name: str, *, limit: int) -> list[Valuation]:
    """The valuations of a price, newest first, or `NotFound`."""
    return history(connection, watches.find(connection, PRICE, name).id, limit=limit)


def record_known(
    connection: Connection, points: Mapping[str, Sequence[PricePoint]], *, now: datetime
) -> list[Collected]:
    """Record price points that a person knows, by the names of the prices; all or none."""
    # In one order, so that two writers do not wait for each other.
    found = sorted((watches.find(connection, PRICE, name).id, own) for name, own in points.items())
    done = [collect(connection, intake_id, own, now=now) for intake_id, own in found]
    return [each for each in done if each is not None]


MakeJobs = Callable[[PriceWatch, int], Sequence[NewJob]]
"""The jobs that collect a price; the first waits for the turns of as many others as the number says."""


def postpone(connection: Connection, intake: PriceWatch, *, now: datetime) -> None:
    """Make a price due again after its time."""
    watches.postpone(connection, PRICES, intake.id, next_attempt_at=_next_time(intake, now))


def _next_time(intake: PriceWatch, now: datetime) -> datetime:
    return next_check(due=intake.next_attempt_at, every_s=intake.every_s, now=now)


def add_watches(
    connection: Connection, wanted: Sequence[PriceWatch], *, make_jobs: MakeJobs, now: datetime
) -> list[PriceWatch]:
    """Watch prices, all or none, and collect each at once."""
    added, place = watches.add_all(connection, PRICE, wanted), 0
    for intake in added:
        place += watches.enqueue_all(connection, make_jobs(intake, place), now=now)
        postpone(connection, intake, now=now)
    return added


def add_new_watches(
    connection: Connection,
    wanted: Sequence[PriceWatch],
    *,
    configured: Collection[str],
    make_jobs: MakeJobs,
    now: datetime,
) -> tuple[list[PriceWatch], list[str]]:
    """As `add_watches`, without those whose name is taken. Returns these names, too."""
    there = {each.name for each in watches.all_of(connection, PRICE)} | set(configured)
    fresh = [each for each in wanted if each.name not in there]
    added = add_watches(connection, fresh, make_jobs=make_jobs, now=now)
    return added, [each.name for each in wanted if each.name in there]


def _alert(connection: Connection, intake: PriceWatch, before: AlertSide, found: Valuation) -> Alert | None:
    limit = intake.below_cents if found.side is AlertSide.BELOW else intake.above_cents
    if limit is None or not has_crossed(before, found.side):
        return None
    alert = Alert(
        side=found.side, limit_cents=limit, cents=found.cents, currency=found.currency, raised_at=found.valued_at
    )
    connection.execute(_RAISE, ALERT.to_row(alert, intake_id=intake.id))
    connection.execute(_FORGET_ALERTS, {"id": intake.id, "most": HISTORY_MAX})
    return alert


def _sold(connection: Connection, intake_id: int) -> list[tuple[int, str, MatchStrength]]:
    return [
        (row.cents, row.currency, MatchStrength(row.match_strength))
        for row in connection.execute(_SOLD, {"id": intake_id})
    ]


def _point_row(intake_id: int, point: PricePoint) -> dict[str, Any]:
    external_id = None if point.external_id is None else kept_text(point.external_id, TEXT_LENGTH_MAX)
    return POINT.to_row(
        point,
        intake_id=intake_id,
        dedupe_key=kept_text(point.key, TEXT_LENGTH_MAX),
        title=kept_text(point.title, TEXT_LENGTH_MAX),
        url=kept_text(point.url, TEXT_LENGTH_MAX),
        external_id=external_id,
    )


_PUT = text(f"""
    {POINT.insert("intake_id")} ON CONFLICT (intake_id, source, dedupe_key) DO UPDATE SET
        {excluded(["title", "url", "cents", "currency", "type", "day", "external_id", "match_strength", "seen_at"])}
    WHERE excluded.match_strength > price_points.match_strength
""")
_NEWEST = (
    "SELECT source, dedupe_key FROM price_points WHERE intake_id = :id ORDER BY day DESC, seen_at DESC, dedupe_key"
)
_FORGET_POINTS = text(f"""
    DELETE FROM price_points WHERE intake_id = :id AND (source, dedupe_key) IN ({_NEWEST} LIMIT 1000000 OFFSET :most)
""")
_POINTS = text(f"""
    SELECT {POINT.columns} FROM price_points WHERE intake_id = :id ORDER BY day DESC, seen_at DESC, source, dedupe_key LIMIT :limit
""")
_SOLD = text("SELECT cents, currency, match_strength FROM price_points WHERE intake_id = :id AND type = 'sold'")
_VALUE = text(f"""
    {VALUATION.insert("intake_id")} ON CONFLICT (intake_id) DO UPDATE SET
        {excluded(["cents", "currency", "points", "match_strength", "others", "valued_at", "side"])}
""")
_VALUATION = text(f"SELECT {VALUATION.columns} FROM valuations WHERE intake_id = :id")
_VALUATIONS = text(f"SELECT {VALUATION.columns}, intake_id FROM valuations")
_REMEMBER = text(PAST_VALUATION.insert("intake_id"))
_FORGET_HISTORY = text("""
    DELETE FROM valuation_history WHERE id IN (
        SELECT id FROM valuation_history WHERE intake_id = :id ORDER BY id DESC LIMIT 1000000 OFFSET :most)
""")
_HISTORY = text(
    f"SELECT {PAST_VALUATION.columns} FROM valuation_history WHERE intake_id = :id ORDER BY id DESC LIMIT :limit"
)
_RAISE = text(ALERT.insert("intake_id"))
_FORGET_ALERTS = text("""
    DELETE FROM price_alerts WHERE id IN (
        SELECT id FROM price_alerts WHERE intake_id = :id ORDER BY id DESC LIMIT 1000000 OFFSET :most)
""")
_ALERTS = text(f"SELECT {ALERT.columns} FROM price_alerts WHERE intake_id = :id ORDER BY id DESC LIMIT :limit")
