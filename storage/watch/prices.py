"""Price points, valuations, alerts, and enqueueing their collection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from attrs import evolve, frozen
from sqlalchemy import Connection, text

from cormorant.rules.watch.prices import (
    TAKEN_OUT,
    AlertSide,
    MatchStrength,
    PointType,
    PricePoint,
    PriceWatch,
    Valuation,
    has_crossed,
    value_of,
)
from storage.engine.columns import from_micros, kept_text, to_micros
from storage.jobs import jobs
from storage.jobs.jobs import NewJob
from storage.watch import price_watches
from storage.watch.price_watches import IntakeTakenOut

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


def collect(connection: Connection, intake_id: int, points: Iterable[PricePoint], *, now: datetime) -> Collected | None:
    """Write points down and value the intake anew. None when it is no longer watched. Doing it twice changes nothing."""
    intake = price_watches.by_id(connection, intake_id, lock=True)
    if intake is None:
        return None
    written = put_points(connection, intake_id, points)
    before = valuation(connection, intake_id)
    found = value_of(_sold(connection, intake_id), intake, now=now)
    if found is None:
        return Collected(intake=intake, written=written, valuation=before)
    has_changed = before is None or (before.cents, before.currency) != (found.cents, found.currency)
    connection.execute(_VALUE, _value_row(intake_id, found))
    if has_changed:
        connection.execute(_REMEMBER, _value_row(intake_id, found))
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
        written += connection.execute(_PUT, _row(intake_id, point)).rowcount
    if written:
        connection.execute(_FORGET_POINTS, {"id": intake_id, "most": POINTS_MAX})
    return written


def points_of(connection: Connection, intake_id: int, *, limit: int = 100) -> list[PricePoint]:
    """The newest points of an intake."""
    return [_point(row) for row in connection.execute(_POINTS, {"id": intake_id, "limit": limit})]


def valuation(connection: Connection, intake_id: int) -> Valuation | None:
    """What an intake is worth now, if that is known."""
    row = connection.execute(_VALUATION, {"id": intake_id}).one_or_none()
    return None if row is None else _valuation(row)


def valuations(connection: Connection) -> dict[int, Valuation]:
    """What is known of all, by the number of the intake."""
    return {row.intake_id: _valuation(row) for row in connection.execute(_VALUATIONS)}


def history(connection: Connection, intake_id: int, *, limit: int = 100) -> list[Valuation]:
    """The values that it had, newest first; one for each change."""
    return [_valuation(row) for row in connection.execute(_HISTORY, {"id": intake_id, "limit": limit})]


def alerts(connection: Connection, intake_id: int, *, limit: int = 100) -> list[Alert]:
    """The alerts of an intake, newest first."""
    return [
        Alert(
            side=AlertSide(row.side),
            limit_cents=row.limit_cents,
            cents=row.cents,
            currency=row.currency,
            raised_at=from_micros(row.raised_at),
        )
        for row in connection.execute(_ALERTS, {"id": intake_id, "limit": limit})
    ]


def all_views(connection: Connection) -> list[PriceView]:
    """All that is watched, by name, without points and alerts."""
    known = valuations(connection)
    return [PriceView(intake=each, valuation=known.get(each.id)) for each in price_watches.all_intakes(connection)]


def view(connection: Connection, name: str, *, limit: int) -> PriceView:
    """One of them with its newest points and alerts, or `UnknownPriceWatch`."""
    intake = price_watches.find(connection, name)
    return PriceView(
        intake=intake,
        valuation=valuation(connection, intake.id),
        points=tuple(points_of(connection, intake.id, limit=limit)),
        alerts=tuple(alerts(connection, intake.id, limit=limit)),
    )


def history_of(connection: Connection, name: str, *, limit: int) -> list[Valuation]:
    """The valuations of a price, newest first, or `UnknownPriceWatch`."""
    return history(connection, price_watches.find(connection, name).id, limit=limit)


def record_known(
    connection: Connection, points: Mapping[str, Sequence[PricePoint]], *, now: datetime
) -> list[Collected]:
    """Record price points that a person knows, by the names of the prices; all or none."""
    # In one order, so that two writers do not wait for each other.
    found = sorted((price_watches.find(connection, name).id, own) for name, own in points.items())
    done = [collect(connection, intake_id, own, now=now) for intake_id, own in found]
    return [each for each in done if each is not None]


MakeJobs = Callable[[PriceWatch, int], Sequence[NewJob]]
"""The jobs that collect a price; the first waits for the turns of as many others as the number says."""


def enqueue_due(connection: Connection, intake: PriceWatch, place: int, *, make_jobs: MakeJobs, now: datetime) -> int:
    """Claim a due price and enqueue its jobs. Returns their number; 0 when another process was faster."""
    if not price_watches.take(connection, intake, now=now):
        return 0
    return _enqueue(connection, make_jobs(intake, place), now=now)


def add_watches(
    connection: Connection, wanted: Sequence[PriceWatch], *, make_jobs: MakeJobs, now: datetime
) -> list[PriceWatch]:
    """Watch prices, all or none, and collect each at once."""
    added, place = [], 0
    for each in wanted:
        intake = price_watches.add(connection, each)
        place += _enqueue(connection, make_jobs(intake, place), now=now)
        price_watches.postpone(connection, intake, now=now)
        added.append(intake)
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
    there = {each.name for each in price_watches.all_intakes(connection)} | set(configured)
    fresh = [each for each in wanted if each.name not in there]
    added = add_watches(connection, fresh, make_jobs=make_jobs, now=now)
    return added, [each.name for each in wanted if each.name in there]


def collect_now(connection: Connection, name: str, *, make_jobs: MakeJobs, now: datetime) -> int:
    """Collect a price at once. Returns the number of sources that are asked."""
    intake = price_watches.find(connection, name)
    if intake.origin == TAKEN_OUT:
        raise IntakeTakenOut(name)
    made = make_jobs(intake, 0)
    _enqueue(connection, made, now=now)
    for job in made:
        assert job.dedupe_key is not None
        jobs.make_due_now(connection, job.kind, job.dedupe_key, now=now)
    return len(made)


def _enqueue(connection: Connection, made: Sequence[NewJob], *, now: datetime) -> int:
    for job in made:
        jobs.enqueue(connection, job, now=now)
    return len(made)


def _alert(connection: Connection, intake: PriceWatch, before: AlertSide, found: Valuation) -> Alert | None:
    limit = intake.below_cents if found.side is AlertSide.BELOW else intake.above_cents
    if limit is None or not has_crossed(before, found.side):
        return None
    words = {
        "id": intake.id,
        "side": found.side.value,
        "limit_cents": limit,
        "cents": found.cents,
        "currency": found.currency,
        "now": to_micros(found.valued_at),
    }
    connection.execute(_RAISE, words)
    connection.execute(_FORGET_ALERTS, {"id": intake.id, "most": HISTORY_MAX})
    return Alert(
        side=found.side, limit_cents=limit, cents=found.cents, currency=found.currency, raised_at=found.valued_at
    )


def _sold(connection: Connection, intake_id: int) -> list[tuple[int, str, MatchStrength]]:
    return [
        (row.cents, row.currency, MatchStrength(row.match_strength))
        for row in connection.execute(_SOLD, {"id": intake_id})
    ]


def _row(intake_id: int, point: PricePoint) -> dict[str, Any]:
    return {
        "id": intake_id,
        "source": point.source,
        "key": kept_text(point.key, TEXT_LENGTH_MAX),
        "title": kept_text(point.title, TEXT_LENGTH_MAX),
        "url": kept_text(point.url, TEXT_LENGTH_MAX),
        "cents": point.cents,
        "currency": point.currency,
        "type": point.type.value,
        "day": point.day.isoformat(),
        "external_id": None if point.external_id is None else kept_text(point.external_id, TEXT_LENGTH_MAX),
        "match": int(point.match),
        "now": to_micros(point.seen_at),
    }


def _point(row: Any) -> PricePoint:
    return PricePoint(
        source=row.source,
        title=row.title,
        url=row.url,
        cents=row.cents,
        currency=row.currency,
        type=PointType(row.type),
        day=date.fromisoformat(row.day),
        external_id=row.external_id,
        match=MatchStrength(row.match_strength),
        key=row.dedupe_key,
        seen_at=from_micros(row.seen_at),
    )


def _value_row(intake_id: int, found: Valuation) -> dict[str, Any]:
    return {
        "id": intake_id,
        "cents": found.cents,
        "currency": found.currency,
        "points": found.points,
        "match": int(found.match),
        "others": found.others,
        "now": to_micros(found.valued_at),
        "side": found.side.value,
    }


def _valuation(row: Any) -> Valuation:
    return Valuation(
        cents=row.cents,
        currency=row.currency,
        points=row.points,
        match=MatchStrength(row.match_strength),
        others=row.others,
        valued_at=from_micros(row.valued_at),
        side=AlertSide(row.side),
    )


_PUT = text("""
    INSERT INTO price_points (intake_id, source, dedupe_key, title, url, cents, currency, type, day, external_id,
                              match_strength, seen_at)
    VALUES (:id, :source, :key, :title, :url, :cents, :currency, :type, :day, :external_id, :match, :now)
    ON CONFLICT (intake_id, source, dedupe_key) DO UPDATE SET title = excluded.title, url = excluded.url,
        cents = excluded.cents, currency = excluded.currency, type = excluded.type, day = excluded.day,
        external_id = excluded.external_id, match_strength = excluded.match_strength, seen_at = excluded.seen_at
    WHERE excluded.match_strength > price_points.match_strength
""")
_NEWEST = (
    "SELECT source, dedupe_key FROM price_points WHERE intake_id = :id ORDER BY day DESC, seen_at DESC, dedupe_key"
)
_FORGET_POINTS = text(f"""
    DELETE FROM price_points WHERE intake_id = :id AND (source, dedupe_key) IN ({_NEWEST} LIMIT 1000000 OFFSET :most)
""")  # noqa: S608 - of our own
_POINTS = text("""
    SELECT * FROM price_points WHERE intake_id = :id ORDER BY day DESC, seen_at DESC, source, dedupe_key LIMIT :limit
""")
_SOLD = text("SELECT cents, currency, match_strength FROM price_points WHERE intake_id = :id AND type = 'sold'")
_VALUE = text("""
    INSERT INTO valuations (intake_id, cents, currency, points, match_strength, others, valued_at, side)
    VALUES (:id, :cents, :currency, :points, :match, :others, :now, :side)
    ON CONFLICT (intake_id) DO UPDATE SET cents = excluded.cents, currency = excluded.currency, points = excluded.points,
        match_strength = excluded.match_strength, others = excluded.others, valued_at = excluded.valued_at,
        side = excluded.side
""")
_VALUATION = text("SELECT * FROM valuations WHERE intake_id = :id")
_VALUATIONS = text("SELECT * FROM valuations")
_REMEMBER = text("""
    INSERT INTO valuation_history (intake_id, cents, currency, points, match_strength, others, valued_at, side)
    VALUES (:id, :cents, :currency, :points, :match, :others, :now, :side)
""")
_FORGET_HISTORY = text("""
    DELETE FROM valuation_history WHERE id IN (
        SELECT id FROM valuation_history WHERE intake_id = :id ORDER BY id DESC LIMIT 1000000 OFFSET :most)
""")
_HISTORY = text("SELECT * FROM valuation_history WHERE intake_id = :id ORDER BY id DESC LIMIT :limit")
_RAISE = text("""
    INSERT INTO price_alerts (intake_id, side, limit_cents, cents, currency, raised_at)
    VALUES (:id, :side, :limit_cents, :cents, :currency, :now)
""")
_FORGET_ALERTS = text("""
    DELETE FROM price_alerts WHERE id IN (
        SELECT id FROM price_alerts WHERE intake_id = :id ORDER BY id DESC LIMIT 1000000 OFFSET :most)
""")
_ALERTS = text("SELECT * FROM price_alerts WHERE intake_id = :id ORDER BY id DESC LIMIT :limit")
