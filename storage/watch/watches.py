"""The verbs of all kinds of watches: add, find, page, pause, remove, configure; and of due rows: claim, release, take for a job.

A claim names a worker. It has no end of its own: the reclaim sweeper frees what a dead worker has claimed. A token that rises
with each claim keeps a process from writing to a row that it has lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, Generic, TypeVar

from attrs import evolve, frozen
from sqlalchemy import Connection, Table, TextClause, text

from cormorant.rules.errors import AlreadyExists, ConflictError, NotFound, SetInFile
from cormorant.rules.watch.watches import CONFIGURED, TAKEN_OUT, Watch
from storage.engine.columns import check_text, kept_text, maybe_from_micros, maybe_to_micros, to_micros
from storage.engine.statements import SKIP_LOCKED, announce
from storage.jobs import jobs, workers
from storage.jobs.jobs import Claim, NewJob
from storage.search import answers, sources
from storage.search.sources import SourceRecord
from storage.tables import RowCodec, excluded

T = TypeVar("T")
W = TypeVar("W", bound=Watch)

NAME_LENGTH_MAX: Final = 500
NAME_SHOWN_MAX: Final = 120
_DIGITS_MAX: Final = 18

CheckSources = Callable[[Sequence[SourceRecord]], None]
"""Raises if a watch does not fit the sources that there are."""


class WatchTakenOut(ConflictError):
    """The settings file no longer has the watch. It is shown and can be removed; nothing else."""

    def __init__(self, kind: WatchKind[Any], name: str) -> None:
        super().__init__(
            f"{name!r} was taken out of the settings file; write [{kind.section}.{name}] into it again and start anew, "
            f"or forget what was collected: cormorant {kind.command} remove {name}"
        )


@frozen(kw_only=True)
class WatchKind(Generic[W]):
    """A kind of watch: its rows, how commands find one, and what changes with each verb besides the common columns."""

    codec: RowCodec[W]
    what: str
    """What messages call it."""
    command: str
    """Its command, whose `list` shows all of them."""
    section: str = ""
    """Its table in the settings file."""
    order: str = "name"
    """The columns by which all of them are listed."""
    unique: str = "name"
    """The columns that no two of them share."""
    matches: str = "name = :wanted"
    """Which rows a text of a command means, as SQL. `:number` is the number that the text is, or -1."""
    first: str = "id"
    """Which of several matches is meant, as the order of SQL."""
    set_by_file: tuple[str, ...] = ()
    """The columns that the settings file sets."""
    set_with_file: str = ""
    """What else changes with them, as SQL."""
    set_with_pause: str = ""
    """What else changes with a pause, as SQL."""
    set_with_resume: str = ""
    """What else changes at the end of a pause, as SQL."""
    set_with_check: str = ""
    """What else changes when one is made due now, as SQL."""
    belongings: tuple[tuple[str, str], ...] = ()
    """The tables whose rows are removed with a watch, and their column with its number."""
    keeps_taken_out: bool = False
    """Whether one that the settings file no longer has stays, with all that was collected."""

    @property
    def table(self) -> str:
        """The name of its table, and of the channel on which one is announced that may be due."""
        return self.codec.table.name

    @property
    def select(self) -> str:
        """A SELECT of whole rows, to be continued."""
        return f"SELECT {self.codec.columns} FROM {self.table}"

    def not_found(self, wanted: object) -> NotFound:
        """There is no watch of this name or number."""
        shown = wanted[:NAME_SHOWN_MAX] if isinstance(wanted, str) else wanted
        return NotFound(self.what, shown, f"`cormorant {self.command} list` shows them")

    def already_exists(self, name: str) -> AlreadyExists:
        """There is a watch of this name already."""
        return AlreadyExists(self.what, name)


def add_new(connection: Connection, kind: WatchKind[W], wanted: Sequence[W]) -> list[W | None]:
    """Add watches. None for each that is there already."""
    statement = text(f"{kind.codec.insert()} ON CONFLICT ({kind.unique}) DO NOTHING RETURNING id")
    made: list[W | None] = []
    for watch in wanted:
        row = kind.codec.to_row(watch, name=kept_text(watch.name, NAME_LENGTH_MAX))
        number: int | None = connection.execute(statement, row).scalar_one_or_none()
        made.append(None if number is None else evolve(watch, id=number))
    announce(connection, kind.table)
    return made


def add_all(connection: Connection, kind: WatchKind[W], wanted: Sequence[W]) -> list[W]:
    """Add watches, all or none; `AlreadyExists` for the first that is there already."""
    made = add_new(connection, kind, wanted)
    for watch, added in zip(wanted, made, strict=True):
        if added is None:
            raise kind.already_exists(watch.name)
    return [each for each in made if each is not None]


def add_checked(
    connection: Connection, kind: WatchKind[W], wanted: Sequence[W], *, check: CheckSources
) -> list[W | None]:
    """As `add_new`, in one transaction with the check of the sources."""
    check(sources.all_sources(connection))
    return add_new(connection, kind, wanted)


def page(connection: Connection, kind: WatchKind[W], *, after_id: int = 0, limit: int = 1_000_000) -> list[W]:
    """Watches in the order they came."""
    statement = text(f"{kind.select} WHERE id > :after_id ORDER BY id LIMIT :limit")
    rows = connection.execute(statement, {"after_id": after_id, "limit": limit})
    return [kind.codec.from_row(row) for row in rows]


def all_of(connection: Connection, kind: WatchKind[W]) -> list[W]:
    """All watches of a kind, in its order."""
    return [kind.codec.from_row(row) for row in connection.execute(text(f"{kind.select} ORDER BY {kind.order}"))]


def find(connection: Connection, kind: WatchKind[W], wanted: str) -> W:
    """The watch that a text of a command means, or `NotFound`."""
    statement = text(f"{kind.select} WHERE {kind.matches} ORDER BY {kind.first} LIMIT 1")
    is_number = wanted.isascii() and wanted.isdecimal() and len(wanted) <= _DIGITS_MAX
    words = {"wanted": check_text(wanted), "number": int(wanted) if is_number else -1}
    row = connection.execute(statement, words).one_or_none()
    if row is None:
        raise kind.not_found(wanted)
    return kind.codec.from_row(row)


def by_id(connection: Connection, kind: WatchKind[W], number: int, *, lock: bool = False) -> W | None:
    """The watch of a number; None when it is gone. With `lock` no other process changes it before this transaction ends."""
    locked = "FOR UPDATE" if lock and connection.dialect.name == "postgresql" else ""
    row = connection.execute(text(f"{kind.select} WHERE id = :id {locked}"), {"id": number}).one_or_none()
    return None if row is None else kind.codec.from_row(row)


def remove(connection: Connection, kind: WatchKind[W], wanted: str, *, configured: Collection[str] = ()) -> W:
    """Remove a watch and what belongs to it. Raises `NotFound`, or `SetInFile` for a watch of the settings file."""
    if wanted in configured:  # the service may not have made its row yet
        raise SetInFile(kind.what, wanted, kind.section)
    found = find(connection, kind, wanted)
    if found.name in configured:
        raise SetInFile(kind.what, found.name, kind.section)
    if not _remove(connection, kind, found):
        raise kind.not_found(wanted)
    return found


def _remove(connection: Connection, kind: WatchKind[Any], watch: Watch) -> bool:
    tables = (kind.table, "id"), *kind.belongings
    counts = [
        connection.execute(text(f"DELETE FROM {table} WHERE {column} = :id"), {"id": watch.id}).rowcount
        for table, column in tables
    ]
    return counts[0] == 1


def set_paused(connection: Connection, kind: WatchKind[W], wanted: str, *, is_paused: bool, now: datetime) -> W:
    """Pause or resume a watch. Raises `NotFound`, or `WatchTakenOut`."""
    more = kind.set_with_pause if is_paused else kind.set_with_resume
    return _change(connection, kind, wanted, f"is_paused = {'true' if is_paused else 'false'}", more, now=now)


def make_due(connection: Connection, kind: WatchKind[W], wanted: str, *, now: datetime) -> W:
    """Make a watch due now. Raises `NotFound`, or `WatchTakenOut`."""
    return _change(connection, kind, wanted, "next_attempt_at = :now", kind.set_with_check, now=now)


def _change(connection: Connection, kind: WatchKind[W], wanted: str, *changes: str, now: datetime) -> W:
    found = changeable(connection, kind, wanted)
    statement = text(f"UPDATE {kind.table} SET {', '.join(filter(None, changes))} WHERE id = :id")
    connection.execute(statement, {"id": found.id, "now": to_micros(now)})
    announce(connection, kind.table)
    changed = by_id(connection, kind, found.id)
    if changed is None:  # removed since it was found
        raise kind.not_found(wanted)
    return changed


def changeable(connection: Connection, kind: WatchKind[W], wanted: str) -> W:
    """As `find`. Raises `WatchTakenOut` for a watch that the settings file no longer has."""
    found = find(connection, kind, wanted)
    if found.origin == TAKEN_OUT:
        raise WatchTakenOut(kind, found.name)
    return found


def configured_names(connection: Connection, kind: WatchKind[Any]) -> list[str]:
    """The names of the watches of the settings file."""
    statement = text(f"SELECT name FROM {kind.table} WHERE origin = :origin ORDER BY name")
    return [*connection.execute(statement, {"origin": CONFIGURED}).scalars()]


def configure(connection: Connection, kind: WatchKind[W], watch: W, **words: Any) -> None:
    """Make a watch of the settings file what it says now."""
    changes = ", ".join(filter(None, [excluded(kind.set_by_file), kind.set_with_file]))
    statement = text(f"{kind.codec.insert()} ON CONFLICT (name) DO UPDATE SET {changes}")
    connection.execute(statement, kind.codec.to_row(watch) | {"origin": CONFIGURED} | words)
    announce(connection, kind.table, own=False)


def remove_unconfigured(connection: Connection, kind: WatchKind[Any], wanted: Collection[str]) -> None:
    """Remove the watches that the settings file has no more. Those of a kind that keeps them are idle from now on."""
    for name in configured_names(connection, kind):
        if name in wanted:
            continue
        if kind.keeps_taken_out:
            idle = text(f"UPDATE {kind.table} SET origin = :origin WHERE name = :name")
            connection.execute(idle, {"name": name, "origin": TAKEN_OUT})
        else:
            _remove(connection, kind, find(connection, kind, name))


def set_configured(connection: Connection, kind: WatchKind[W], wanted: Sequence[W]) -> None:
    """Make the watches of the settings file what it says now. Others are left alone, and what was checked stays checked."""
    remove_unconfigured(connection, kind, {each.name for each in wanted})
    for watch in sorted(wanted, key=lambda each: each.name):
        configure(connection, kind, watch)


def due(connection: Connection, kind: WatchKind[W], *, now: datetime, limit: int) -> list[W]:
    """Watches that are due for a job, the longest due first.

    What is due after more than twice its time was put off by a clock that ran ahead.
    """
    statement = text(f"{kind.select} WHERE {_DUE_FOR_JOBS} ORDER BY next_attempt_at, id LIMIT :limit")
    words = {"now": to_micros(now), "limit": limit, "taken_out": TAKEN_OUT}
    return [kind.codec.from_row(row) for row in connection.execute(statement, words)]


def next_due(connection: Connection, kind: WatchKind[Any]) -> datetime | None:
    """When the next watch is due for a job; None: none is, before somebody changes one."""
    statement = text(f"SELECT min(next_attempt_at) FROM {kind.table} WHERE NOT is_paused AND origin <> :taken_out")
    due: int | None = connection.execute(statement, {"taken_out": TAKEN_OUT}).scalar()
    return maybe_from_micros(due)


def claim(
    connection: Connection, codec: RowCodec[T], *, worker: str, due: str, order: str, limit: int, **words: Any
) -> list[T]:
    """Claim up to `limit` rows for a worker where the condition `due` holds, the first by the column `order`.

    A worker that was declared dead claims nothing. The rows are returned in no order.
    """
    if not workers.may_claim(connection, worker):
        return []
    lock = SKIP_LOCKED if connection.dialect.name == "postgresql" else ""
    statement = _claim_text(codec.table.name, codec.columns, due, f"{order}, id LIMIT :limit {lock}")
    rows = connection.execute(statement, words | {"worker": worker, "limit": limit})
    return [codec.from_row(row) for row in rows]


@cache
def _claim_text(table: str, columns: str, due: str, order: str) -> TextClause:
    return text(f"""
        UPDATE {table} SET claimed_by = :worker, token = token + 1 WHERE id IN (
            SELECT id FROM {table} WHERE claimed_by IS NULL AND {due}
            ORDER BY {order})
        RETURNING {columns}
    """)


def release(
    connection: Connection, table: Table, claims: Iterable[Claim], *, next_attempt_at: datetime | None = None
) -> None:
    """Release claims. The rows are due as before, or at the time given."""
    at = maybe_to_micros(next_attempt_at)
    values = [{"id": number, "token": token, "at": at} for number, token in sorted(claims)]
    if values:
        moves = "" if at is None else ", next_attempt_at = :at"
        connection.execute(_release_text(table.name, moves), values)
        announce(connection, table.name, own=False)


@cache
def _release_text(table: str, moves: str) -> TextClause:
    return text(f"UPDATE {table} SET claimed_by = NULL{moves} WHERE id = :id AND token = :token")


def release_unknown(connection: Connection, table: Table, *, worker: str, known: Collection[int]) -> int:
    """Release what a worker has claimed and does not know of: a release failed, or the COMMIT of a claim was in doubt.

    Invariant: one task of a process claims rows of a table, so that no claim is made between the question and the release.
    """
    workers.wait_for_claims(connection, worker)
    held = connection.execute(text(f"SELECT id FROM {table.name} WHERE claimed_by = :worker"), {"worker": worker})
    values = [{"id": number, "worker": worker} for number in sorted(set(held.scalars()) - set(known))]
    if values:
        free = f"UPDATE {table.name} SET claimed_by = NULL WHERE id = :id AND claimed_by = :worker"
        connection.execute(text(free), values)
        announce(connection, table.name, own=False)
    return len(values)


def take(connection: Connection, table: Table, known: Claim, *, next_attempt_at: datetime) -> bool:
    """Take a due row for a job and set its next time. False: another process took it, or it was paused or removed."""
    statement = text(f"""
        UPDATE {table.name} SET next_attempt_at = :next, token = token + 1
        WHERE id = :id AND token = :token AND NOT is_paused AND origin <> :taken_out
    """)
    number, token = known
    words = {"id": number, "token": token, "next": to_micros(next_attempt_at), "taken_out": TAKEN_OUT}
    return connection.execute(statement, words).rowcount == 1


def enqueue_due(
    connection: Connection,
    table: Table,
    known: Claim,
    made: Sequence[NewJob],
    *,
    next_attempt_at: datetime,
    now: datetime,
) -> int:
    """Take a due row and enqueue its jobs. Returns their number; 0 when another process was faster."""
    if not take(connection, table, known, next_attempt_at=next_attempt_at):
        return 0
    return enqueue_all(connection, made, now=now)


def enqueue_all(connection: Connection, made: Sequence[NewJob], *, now: datetime) -> int:
    """Enqueue jobs. Returns their number."""
    for job in made:
        jobs.enqueue(connection, job, now=now)
    return len(made)


def check_now(
    connection: Connection,
    kind: WatchKind[W],
    wanted: str,
    *,
    make_jobs: Callable[[W], Sequence[NewJob]],
    now: datetime,
) -> W:
    """Enqueue the jobs of a watch, due at once, also while it is paused. Raises `NotFound`, or `WatchTakenOut`."""
    found = changeable(connection, kind, wanted)
    for job in make_jobs(found):
        assert job.dedupe_key is not None
        answers.drop_answers(connection, jobs.enqueue(connection, job, now=now).id)  # every source is asked again
        jobs.make_due_now(connection, job.kind, job.dedupe_key, now=now)
    return found


def postpone(connection: Connection, table: Table, number: int, *, next_attempt_at: datetime) -> None:
    """Set the next time of a row."""
    statement = text(f"UPDATE {table.name} SET next_attempt_at = :next WHERE id = :id")
    connection.execute(statement, {"id": number, "next": to_micros(next_attempt_at)})


_DUE_FOR_JOBS = """
    NOT is_paused AND origin <> :taken_out AND (next_attempt_at <= :now OR next_attempt_at > :now + 2000000 * every_s)
"""
