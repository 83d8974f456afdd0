"""Wants and candidates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from attrs import evolve, frozen
from sqlalchemy import Connection, text

from cormorant.rules.errors import NotFound
from cormorant.rules.search.requests import Result
from cormorant.rules.watch.handovers import Handover
from cormorant.rules.watch.profiles import Judgement
from cormorant.rules.watch.wants import Want, WantState, check_change
from storage.engine.columns import kept_text, to_micros
from storage.search.answers import dump_results, load_results
from storage.tables import CANDIDATES, WANTS, RowCodec, excluded

TEXT_LENGTH_MAX = 500
CANDIDATES_MAX = 200
"""So many are kept for a want, the best first."""


@frozen(kw_only=True)
class Candidate:
    """A find for a want and what its profile said of it."""

    want_id: int
    ref: str
    source: str
    result: Result
    position: int | None
    """Its place among those that are accepted, from 0; None: it is rejected."""
    reasons: tuple[str, ...] = ()
    merits: tuple[str, ...] = ()
    failed_because: str | None = None
    """Why it was tried in vain."""
    found_at: datetime


WANT = RowCodec(WANTS, Want)
CANDIDATE = RowCodec(CANDIDATES, Candidate, also=("result",))


@frozen(kw_only=True)
class WantView:
    """A want with everything that was found for it, and where it went."""

    want: Want
    candidates: tuple[Candidate, ...]
    handovers: tuple[Handover, ...]


def want(connection: Connection, wanted: Want) -> Want | None:
    """Take a want in; None when it is wanted already, or was."""
    found: int | None = connection.execute(_WANT, _row(wanted)).scalar_one_or_none()
    return None if found is None else evolve(wanted, id=found)


def find(connection: Connection, want_id: int, *, lock: bool = False) -> Want:
    """One want, or `NotFound`. With `lock` nobody else changes it before this transaction ends."""
    is_locked = lock and connection.dialect.name == "postgresql"
    row = connection.execute(_FIND_LOCKED if is_locked else _FIND, {"id": want_id}).one_or_none()
    if row is None:
        raise NotFound("want", want_id, "`cormorant wants list` shows them")
    return WANT.from_row(row)


def by_key(connection: Connection, key: str) -> Want | None:
    """The want of a key."""
    row = connection.execute(_BY_KEY, {"key": key}).one_or_none()
    return None if row is None else WANT.from_row(row)


def recent(
    connection: Connection,
    *,
    state: WantState | None = None,
    has_ignored: bool = True,
    before_id: int | None = None,
    limit: int = 100,
) -> list[Want]:
    """The latest, newest first; of all states, those that are ignored may be left out."""
    words = {"state": state and state.value, "before_id": before_id or 2**62, "limit": limit}
    statement = _RECENT_IN if state is not None else _RECENT if has_ignored else _RECENT_LIKED
    return [WANT.from_row(row) for row in connection.execute(statement, words)]


def change(  # noqa: PLR0913 - what may change with the state, all with a default
    connection: Connection,
    want_id: int,
    to: WantState,
    *,
    reason: str = "",
    chosen_ref: str | None = None,
    looks: int | None = None,
    next_at: datetime | None = None,
    now: datetime,
) -> Want:
    """Bring a want into another state. Raises `WantChangeRefused` where that is not possible."""
    there = find(connection, want_id, lock=True)
    check_change(there, to)
    changed = evolve(
        there,
        state=to,
        reason=kept_text(reason, TEXT_LENGTH_MAX),
        chosen_ref=chosen_ref if chosen_ref is not None else there.chosen_ref,
        looks=there.looks if looks is None else looks,
        next_at=next_at,
        changed_at=now,
    )
    connection.execute(_CHANGE, _row(changed) | {"id": want_id})
    return changed


def set_candidates(
    connection: Connection,
    want_id: int,
    judged: Iterable[tuple[str, Result, Judgement]],
    *,
    ranked: Sequence[str],
    now: datetime,
) -> None:
    """Keep what was found, the accepted in the order of `ranked`. What was tried in vain before stays so."""
    places = {ref: place for place, ref in enumerate(ranked)}
    rows = {}
    for source, result, judgement in judged:
        ref = ref_of(source, result)
        rows[ref] = {
            "want_id": want_id,
            "ref": ref,
            "source": source,
            "result": dump_results([result]),
            "position": places.get(ref),
            "reasons": json.dumps(judgement.reasons),
            "merits": json.dumps(judgement.merits),
            "now": to_micros(now),
        }
    kept = sorted(rows.values(), key=lambda row: (row["position"] is None, row["position"] or 0, row["ref"]))
    connection.execute(_FORGET_PLACES, {"want_id": want_id})
    if kept:
        connection.execute(_PUT_CANDIDATE, sorted(kept[:CANDIDATES_MAX], key=lambda row: str(row["ref"])))


def candidates(connection: Connection, want_id: int) -> list[Candidate]:
    """What was found for a want: the accepted in their order, then the others."""
    return [_candidate(row) for row in connection.execute(_CANDIDATES, {"want_id": want_id})]


def best_left(connection: Connection, want_id: int) -> Candidate | None:
    """The best candidate that was not tried in vain."""
    row = connection.execute(_BEST, {"want_id": want_id}).one_or_none()
    return None if row is None else _candidate(row)


def candidate(connection: Connection, want_id: int, ref: str) -> Candidate | None:
    """One candidate."""
    row = connection.execute(_CANDIDATE, {"want_id": want_id, "ref": ref}).one_or_none()
    return None if row is None else _candidate(row)


def reject_candidate(connection: Connection, want_id: int, ref: str, why: str) -> None:
    """A candidate was tried in vain: it is not tried again."""
    connection.execute(_REJECT, {"want_id": want_id, "ref": ref, "why": kept_text(why, TEXT_LENGTH_MAX)})


def unreject_candidates(connection: Connection, want_id: int) -> None:
    """A person wants it tried again: so are the candidates that were tried in vain."""
    connection.execute(_UNREJECT, {"want_id": want_id})


def set_targets(connection: Connection, want: Want, targets: Sequence[str]) -> Want:
    """Whom it is handed to from now on."""
    connection.execute(_SET_TARGETS, {"id": want.id, "targets": json.dumps(targets)})
    return evolve(want, targets=tuple(targets))


def orphans(connection: Connection, *, before: datetime, limit: int) -> list[Want]:
    """Wants that something is to be done for and that no live job cares for, unchanged since a time."""
    return [WANT.from_row(row) for row in connection.execute(_ORPHANS, {"before": to_micros(before), "limit": limit})]


def ref_of(source: str, result: Result) -> str:
    """What a candidate is known by."""
    return kept_text(f"{source}/{result.guid or result.title}", TEXT_LENGTH_MAX)


def _row(want: Want) -> dict[str, Any]:
    return WANT.to_row(
        want, title=kept_text(want.title, TEXT_LENGTH_MAX), artist=kept_text(want.artist, TEXT_LENGTH_MAX)
    )


def _candidate(row: Any) -> Candidate:
    return CANDIDATE.from_row(row, result=load_results(row.result)[0])


_WANT = text(f"{WANT.insert()} ON CONFLICT (key) DO NOTHING RETURNING id")
_FIND = text(f"SELECT {WANT.columns} FROM wants WHERE id = :id")
_FIND_LOCKED = text(f"SELECT {WANT.columns} FROM wants WHERE id = :id FOR UPDATE")
_BY_KEY = text(f"SELECT {WANT.columns} FROM wants WHERE key = :key")
_RECENT = text(f"SELECT {WANT.columns} FROM wants WHERE id < :before_id ORDER BY id DESC LIMIT :limit")
_RECENT_IN = text(
    f"SELECT {WANT.columns} FROM wants WHERE state = :state AND id < :before_id ORDER BY id DESC LIMIT :limit"
)
_RECENT_LIKED = text(
    f"SELECT {WANT.columns} FROM wants WHERE state <> 'ignored' AND id < :before_id ORDER BY id DESC LIMIT :limit"
)
_CHANGE = text("""
    UPDATE wants SET state = :state, reason = :reason, looks = :looks, chosen_ref = :chosen_ref, next_at = :next_at,
                     changed_at = :changed_at
    WHERE id = :id
""")
_FORGET_PLACES = text("UPDATE candidates SET position = NULL WHERE want_id = :want_id")
_PUT_CANDIDATE = text(f"""
    INSERT INTO candidates (want_id, ref, source, result, position, reasons, merits, found_at)
    VALUES (:want_id, :ref, :source, :result, :position, :reasons, :merits, :now)
    ON CONFLICT (want_id, ref) DO UPDATE SET {excluded(["result", "position", "reasons", "merits"])}
""")
_CANDIDATES = text(f"""
    SELECT {CANDIDATE.columns} FROM candidates WHERE want_id = :want_id ORDER BY position IS NULL, position, ref
""")
_BEST = text(f"""
    SELECT {CANDIDATE.columns} FROM candidates WHERE want_id = :want_id AND position IS NOT NULL AND failed_because IS NULL
    ORDER BY position LIMIT 1
""")
_CANDIDATE = text(f"SELECT {CANDIDATE.columns} FROM candidates WHERE want_id = :want_id AND ref = :ref")
_REJECT = text("UPDATE candidates SET failed_because = :why WHERE want_id = :want_id AND ref = :ref")
_ORPHANS = text(f"""
    SELECT {WANT.columns} FROM wants
    WHERE (state IN ('wanted', 'searching', 'sending', 'in doubt') OR (state = 'chosen' AND next_at IS NOT NULL))
        AND changed_at < :before
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.dedupe_key = wants.key AND jobs.kind IN ('want', 'handover')
                        AND jobs.state IN ('pending', 'retryable', 'running'))
        AND NOT EXISTS (SELECT 1 FROM downloads WHERE downloads.want_id = wants.id AND downloads.state = 'held')
    ORDER BY id LIMIT :limit
""")
_SET_TARGETS = text("UPDATE wants SET targets = :targets WHERE id = :id")
_UNREJECT = text("UPDATE candidates SET failed_because = NULL WHERE want_id = :want_id")
