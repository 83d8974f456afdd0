"""Handovers and their state changes: begin, arrived, failed, in doubt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.errors import CormorantError, NotFound
from cormorant.rules.watch.handovers import GONE_S, Handover, HandoverState, NextStep, ParcelStatus
from cormorant.rules.watch.wants import Want, WantState
from storage.engine.columns import kept_text, maybe_from_micros, to_micros
from storage.engine.statements import announce
from storage.tables import HANDOVERS, RowCodec
from storage.watch import wants, watches

TEXT_LENGTH_MAX = 500
AHEAD = timedelta(days=1)
"""Nobody waits that long before asking again: a later time was written by a clock that ran ahead."""


HANDOVER = RowCodec(HANDOVERS, Handover)


class HandoverChanged(CormorantError):
    """Somebody else has changed a handover meanwhile: nothing was written, and one has to look again."""

    def __init__(self, handover: Handover) -> None:
        super().__init__(f"download {handover.id} is no longer {handover.state.value}: it was changed meanwhile")


def begin(connection: Connection, handover: Handover) -> Handover | None:
    """Take down that something is about to be sent; None when one counts already for this want."""
    found: int | None = connection.execute(_BEGIN, _row(handover)).scalar_one_or_none()
    return None if found is None else evolve(handover, id=found)


def live_of(connection: Connection, want_id: int) -> Handover | None:
    """The handover of a want that counts."""
    row = connection.execute(_LIVE, {"want_id": want_id}).one_or_none()
    return None if row is None else HANDOVER.from_row(row)


def of_want(connection: Connection, want_id: int) -> list[Handover]:
    """All of a want, oldest first."""
    return [HANDOVER.from_row(row) for row in connection.execute(_OF_WANT, {"want_id": want_id})]


def find(connection: Connection, number: int) -> Handover:
    """One of them, or `NotFound`."""
    row = connection.execute(_FIND, {"id": number}).one_or_none()
    if row is None:
        raise NotFound("download", number, "`cormorant downloads list` shows them")
    return HANDOVER.from_row(row)


def recent(connection: Connection, *, before_id: int | None = None, limit: int = 100) -> list[Handover]:
    """The latest, newest first."""
    words = {"before_id": before_id or 2**62, "limit": limit}
    return [HANDOVER.from_row(row) for row in connection.execute(_RECENT, words)]


def held(connection: Connection, *, limit: int) -> list[Handover]:
    """Those that wait for a person, the oldest first."""
    return [HANDOVER.from_row(row) for row in connection.execute(_HELD, {"limit": limit})]


def change(  # noqa: PLR0913 - what may change, all with a default
    connection: Connection,
    handover: Handover,
    to: HandoverState,
    *,
    reason: str = "",
    asked: int | None = None,
    sent: int | None = None,
    target_id: str | None = None,
    next_at: datetime | None = None,
    now: datetime,
) -> Handover:
    """Take down how far it is, or `HandoverChanged` when it is not as the caller knows it."""
    changed = evolve(
        handover,
        state=to,
        reason=kept_text(reason, TEXT_LENGTH_MAX),
        asked=handover.asked if asked is None else asked,
        sent=handover.sent if sent is None else sent,
        target_id=handover.target_id if target_id is None else target_id,
        next_at=next_at,
        changed_at=now,
    )
    known = {"id": handover.id, "was": handover.state.value, "was_sent": handover.sent}
    if not connection.execute(_CHANGE, _row(changed) | known).rowcount:
        raise HandoverChanged(handover)
    if next_at is not None and next_at <= now:
        announce(connection, HANDOVERS.name)
    return changed


def next_due(connection: Connection, *, worker: str, known: Sequence[str], now: datetime) -> datetime | None:
    """When the next handover is due for a worker that works on none; None: none is followed.

    Those that the worker itself has claimed count: a tick that failed half-way has left them. One of a target that the worker
    does not know is due when no process has touched it for long. One that a clock that ran ahead has dated is due now.
    """
    statement = _NEXT_DUE_OF_POSTGRES if connection.dialect.name == "postgresql" else _NEXT_DUE
    words = {
        "worker": worker,
        "known": json.dumps([*known]),
        "gone": int(GONE_S * 1_000_000),
        "now": to_micros(now),
        "ahead": to_micros(now + AHEAD),
    }
    due: int | None = connection.execute(text(statement), words).scalar()
    return maybe_from_micros(due)


def claim_due(
    connection: Connection, *, worker: str, known: Sequence[str], now: datetime, limit: int
) -> list[Handover]:
    """Claim handovers whose target is to be asked what became of them, the longest due first.

    Those of targets that the caller does not know are left to a process that does, unless nobody has touched them for long.
    The caller works on no handover, so what the worker has claimed before is released.
    """
    watches.release_unknown(connection, HANDOVERS, worker=worker, known=())
    found = watches.claim(
        connection,
        HANDOVER,
        worker=worker,
        due=_IS_DUE_OF_POSTGRES if connection.dialect.name == "postgresql" else _IS_DUE,
        order="next_at",
        limit=limit,
        known=json.dumps([*known]),
        untouched=to_micros(now - timedelta(seconds=GONE_S)),
        now=to_micros(now),
        ahead=to_micros(now + AHEAD),
    )
    return sorted(found, key=lambda each: (each.next_at or now, each.id))


def _row(handover: Handover) -> dict[str, Any]:
    return HANDOVER.to_row(handover, title=kept_text(handover.title, TEXT_LENGTH_MAX))


def begin_sending(connection: Connection, handover: Handover, *, now: datetime) -> Handover | None:
    """Record that a chosen candidate is being sent; None when the choice has changed."""
    want = wants.find(connection, handover.want_id, lock=True)
    if want.state is not WantState.CHOSEN or want.chosen_ref != handover.ref:
        return None
    written = begin(connection, handover)
    if written is None:
        return None
    wants.change(connection, handover.want_id, WantState.SENDING, reason=f"to {handover.target}", now=now)
    return written


def choose_again(connection: Connection, handover: Handover, why: str, reason: str, *, now: datetime) -> Want:
    """A handover that did not arrive ends as failed, and its want is only chosen."""
    change(connection, handover, HandoverState.FAILED, reason=why, now=now)
    return wants.change(connection, handover.want_id, WantState.CHOSEN, reason=reason, chosen_ref=handover.ref, now=now)


def send_again(connection: Connection, handover: Handover, *, now: datetime) -> Handover:
    """Record that a handover is sent once more."""
    wants.change(connection, handover.want_id, WantState.SENDING, reason=f"to {handover.target}, again", now=now)
    return change(connection, handover, HandoverState.SENDING, asked=0, sent=handover.sent + 1, reason="", now=now)


def set_arrived(
    connection: Connection, handover: Handover, receipt: ParcelStatus, *, next_at: datetime | None, now: datetime
) -> Want:
    """The target has taken it; without `next_at` that is the end."""
    is_done = next_at is None  # who is done is not asked again
    to = HandoverState.DONE if is_done else HandoverState.HANDED_OVER
    change(
        connection,
        handover,
        to,
        reason=receipt.reason or "",
        target_id=receipt.target_id,
        next_at=next_at,
        now=now,
    )
    if not is_done:
        announce(connection, HANDOVERS.name)
    state = WantState.DONE if is_done else WantState.HANDED_OVER
    reason = f"{'by' if is_done else 'to'} {handover.target}"
    return wants.change(connection, handover.want_id, state, reason=reason, now=now)


def postpone(connection: Connection, handover: Handover, why: str, *, is_sure: bool, now: datetime) -> None:
    """It is sent again later; without asking, where surely nothing has arrived."""
    to = HandoverState.WAITING if is_sure else HandoverState.IN_DOUBT
    change(connection, handover, to, reason=why, now=now)
    state = WantState.SENDING if is_sure else WantState.IN_DOUBT
    wants.change(connection, handover.want_id, state, reason=f"waits: {why}", now=now)


def set_in_doubt(connection: Connection, handover: Handover, why: str, *, step: NextStep, now: datetime) -> None:
    """The handover may have arrived: its target is asked, or a person decides."""
    is_held = step is NextStep.HOLD
    to = HandoverState.HELD if is_held else HandoverState.IN_DOUBT
    change(connection, handover, to, reason=why, asked=0, now=now)
    reason = f"may have arrived at {handover.target}; decide by hand" if is_held else why
    wants.change(connection, handover.want_id, WantState.IN_DOUBT, reason=reason, now=now)


def set_done(connection: Connection, handover: Handover, reason: str, *, now: datetime) -> Want:
    """The target has it: the handover and its want are done."""
    change(connection, handover, HandoverState.DONE, reason=reason, now=now)
    why = reason or f"by {handover.target}"
    return wants.change(connection, handover.want_id, WantState.DONE, reason=why, now=now)


_DUE = """
    state = 'handed over' AND (next_at <= :now OR next_at > :ahead)
    AND (changed_at <= :untouched OR changed_at > :ahead OR target IN ({known}))
"""
_IS_DUE = _DUE.format(known="SELECT value FROM json_each(:known)")
_IS_DUE_OF_POSTGRES = _DUE.format(known="SELECT json_array_elements_text(CAST(:known AS json))")
_NEXT = """
    SELECT min(CASE
        WHEN target NOT IN ({known}) AND (next_at > :ahead OR next_at <= changed_at + :gone) THEN changed_at + :gone
        WHEN next_at > :ahead THEN :now
        ELSE next_at
    END) FROM downloads
    WHERE state = 'handed over' AND (claimed_by IS NULL OR claimed_by = :worker)
"""
_NEXT_DUE = _NEXT.format(known="SELECT value FROM json_each(:known)")
_NEXT_DUE_OF_POSTGRES = _NEXT.format(known="SELECT json_array_elements_text(CAST(:known AS json))")
_BEGIN = text(f"{HANDOVER.insert()} ON CONFLICT DO NOTHING RETURNING id")
_LIVE = text(f"SELECT {HANDOVER.columns} FROM downloads WHERE want_id = :want_id AND state <> 'failed'")
_OF_WANT = text(f"SELECT {HANDOVER.columns} FROM downloads WHERE want_id = :want_id ORDER BY id")
_FIND = text(f"SELECT {HANDOVER.columns} FROM downloads WHERE id = :id")
_RECENT = text(f"SELECT {HANDOVER.columns} FROM downloads WHERE id < :before_id ORDER BY id DESC LIMIT :limit")
_CHANGE = text("""
    UPDATE downloads SET state = :state, reason = :reason, asked = :asked, sent = :sent, target_id = :target_id,
                         facts = :facts, next_at = :next_at, changed_at = :changed_at, claimed_by = NULL
    WHERE id = :id AND token = :token AND state = :was AND sent = :was_sent AND state NOT IN ('done', 'failed')
""")
_HELD = text(f"SELECT {HANDOVER.columns} FROM downloads WHERE state = 'held' ORDER BY id LIMIT :limit")
