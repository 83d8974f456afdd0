"""The verbs of all kinds of watches: add, find, page, pause, remove, configure; and of due rows: claim, release, take for a job.

A claim names a worker. It has no end of its own: the reclaim sweeper frees what a dead worker has claimed. A token that rises
with each claim keeps a process from writing to a row that it has lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, Generic, TypeVar

from attrs import Factory, evolve, field, frozen
from sqlalchemy import Connection, Table, TextClause, text

from cormorant.rules.errors import AlreadyExists, NotFound, SetInFile
from cormorant.rules.watch.prices import TAKEN_OUT
from storage.engine.columns import check_text, to_micros
from storage.engine.statements import SKIP_LOCKED
from storage.jobs import jobs, workers
from storage.jobs.jobs import Claim, NewJob
from storage.tables import RowCodec, excluded

T = TypeVar("T")
W = TypeVar("W")

CONFIGURED: Final = "configured"
"""The origin of a watch of the settings file."""


@frozen(kw_only=True)
class WatchKind(Generic[W]):
    """A kind of watch: its rows, and what people call it."""

    codec: RowCodec[W]
    what: str
    command: str
    """Its command, whose `list` shows all of them."""
    section: str = ""
    """Its table in the settings file."""
    set_by_file: tuple[str, ...] = ()
    """The columns that the settings file sets."""
    set_with_file: str = ""
    """What else changes with them, as SQL."""
    belongings: tuple[tuple[str, str], ...] = ()
    """The tables whose rows are removed with a watch, and their column with its number."""
    to_row: Callable[[W], dict[str, Any]] = field(default=Factory(lambda kind: kind.codec.to_row, takes_self=True))
    from_row: Callable[[Any], W] = field(default=Factory(lambda kind: kind.codec.from_row, takes_self=True))

    @property
    def table(self) -> str:
        """The name of its table."""
        return self.codec.table.name

    @property
    def select(self) -> str:
        """A SELECT of whole rows, to be continued."""
        return f"SELECT {self.codec.columns} FROM {self.table}"

    def not_found(self, wanted: object) -> NotFound:
        """There is no watch of this name or number."""
        return NotFound(self.what, wanted, f"`cormorant {self.command} list` shows them")

    def already_exists(self, name: str) -> AlreadyExists:
        """There is a watch of this name already."""
        return AlreadyExists(self.what, name)

    def set_in_file(self, name: str) -> SetInFile:
        """A watch of the settings file is changed there."""
        return SetInFile(self.what, name, self.section)


def add(connection: Connection, kind: WatchKind[W], watch: W) -> W:
    """Add a watch, or `AlreadyExists`."""
    statement = text(f"{kind.codec.insert()} ON CONFLICT (name) DO NOTHING RETURNING id")
    row = kind.to_row(watch)
    found: int | None = connection.execute(statement, row).scalar_one_or_none()
    if found is None:
        raise kind.already_exists(row["name"])
    return evolve(watch, id=found)  # type: ignore[misc]  # an attrs class


def page(connection: Connection, kind: WatchKind[W], *, after_id: int = 0, limit: int = 1_000_000) -> list[W]:
    """Watches in the order they came."""
    statement = text(f"{kind.select} WHERE id > :after_id ORDER BY id LIMIT :limit")
    rows = connection.execute(statement, {"after_id": after_id, "limit": limit})
    return [kind.from_row(row) for row in rows]


def all_of(connection: Connection, kind: WatchKind[W]) -> list[W]:
    """All watches of a kind, by name."""
    return [kind.from_row(row) for row in connection.execute(text(f"{kind.select} ORDER BY name"))]


def find(connection: Connection, kind: WatchKind[W], name: str) -> W:
    """The watch of a name, or `NotFound`."""
    row = connection.execute(text(f"{kind.select} WHERE name = :name"), {"name": check_text(name)}).one_or_none()
    if row is None:
        raise kind.not_found(name)
    return kind.from_row(row)


def by_id(connection: Connection, kind: WatchKind[W], number: int, *, lock: bool = False) -> W | None:
    """The watch of a number; None when it is gone. With `lock` no other process changes it before this transaction ends."""
    locked = "FOR UPDATE" if lock and connection.dialect.name == "postgresql" else ""
    row = connection.execute(text(f"{kind.select} WHERE id = :id {locked}"), {"id": number}).one_or_none()
    return None if row is None else kind.from_row(row)


def remove(connection: Connection, kind: WatchKind[Any], name: str) -> None:
    """Remove a watch and what belongs to it, or `NotFound`. What was found stays."""
    statement = text(f"DELETE FROM {kind.table} WHERE name = :name RETURNING id")
    number: int | None = connection.execute(statement, {"name": check_text(name)}).scalar_one_or_none()
    if number is None:
        raise kind.not_found(name)
    for table, column in kind.belongings:
        connection.execute(text(f"DELETE FROM {table} WHERE {column} = :id"), {"id": number})


def remove_added(connection: Connection, kind: WatchKind[Any], name: str) -> None:
    """As `remove`. Raises `SetInFile` for a watch of the settings file."""
    if find(connection, kind, name).origin == CONFIGURED:
        raise kind.set_in_file(name)
    remove(connection, kind, name)


def set_paused(connection: Connection, kind: WatchKind[Any], name: str, *, is_paused: bool) -> None:
    """Pause or resume a watch, or `NotFound`."""
    statement = text(f"UPDATE {kind.table} SET is_paused = :is_paused WHERE name = :name")
    if not connection.execute(statement, {"name": check_text(name), "is_paused": is_paused}).rowcount:
        raise kind.not_found(name)


def configured_names(connection: Connection, kind: WatchKind[Any]) -> list[str]:
    """The names of the watches of the settings file."""
    statement = text(f"SELECT name FROM {kind.table} WHERE origin = :origin ORDER BY name")
    return [*connection.execute(statement, {"origin": CONFIGURED}).scalars()]


def configure(connection: Connection, kind: WatchKind[W], watch: W, **words: Any) -> None:
    """Make a watch of the settings file what it says now."""
    changes = ", ".join(filter(None, [excluded(kind.set_by_file), kind.set_with_file]))
    statement = text(f"{kind.codec.insert()} ON CONFLICT (name) DO UPDATE SET {changes}")
    connection.execute(statement, kind.to_row(watch) | {"origin": CONFIGURED} | words)


def set_configured(connection: Connection, kind: WatchKind[Any], wanted: Sequence[Any]) -> None:
    """Make the watches of the settings file what it says now. Others are left alone, and what was checked stays checked."""
    names = {each.name for each in wanted}
    for name in configured_names(connection, kind):
        if name not in names:
            remove(connection, kind, name)
    for watch in sorted(wanted, key=lambda each: each.name):
        configure(connection, kind, watch)


def due(connection: Connection, kind: WatchKind[W], *, now: datetime, limit: int) -> list[W]:
    """Watches that are due for a job, the longest due first.

    What is due after more than twice its time was put off by a clock that ran ahead.
    """
    statement = text(f"{kind.select} WHERE {_DUE_FOR_JOBS} ORDER BY next_attempt_at, id LIMIT :limit")
    words = {"now": to_micros(now), "limit": limit, "taken_out": TAKEN_OUT}
    return [kind.from_row(row) for row in connection.execute(statement, words)]


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
    at = None if next_attempt_at is None else to_micros(next_attempt_at)
    values = [{"id": number, "token": token, "at": at} for number, token in sorted(claims)]
    if values:
        moves = "" if at is None else ", next_attempt_at = :at"
        connection.execute(_release_text(table.name, moves), values)


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


def enqueue_now(connection: Connection, made: Sequence[NewJob], *, now: datetime) -> int:
    """As `enqueue_all`. A job that waits already is due now."""
    enqueue_all(connection, made, now=now)
    make_due_now(connection, made, now=now)
    return len(made)


def make_due_now(connection: Connection, made: Sequence[NewJob], *, now: datetime) -> None:
    """Let the jobs that wait under the keys of these be due now."""
    for job in made:
        assert job.dedupe_key is not None
        jobs.make_due_now(connection, job.kind, job.dedupe_key, now=now)


def postpone(connection: Connection, table: Table, number: int, *, next_attempt_at: datetime) -> None:
    """Set the next time of a row."""
    statement = text(f"UPDATE {table.name} SET next_attempt_at = :next WHERE id = :id")
    connection.execute(statement, {"id": number, "next": to_micros(next_attempt_at)})


_DUE_FOR_JOBS = """
    NOT is_paused AND origin <> :taken_out AND (next_attempt_at <= :now OR next_attempt_at > :now + 2000000 * every_s)
"""
