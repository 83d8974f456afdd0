"""Artists beyond the common verbs: claims, watermarks, charges, blocks and catalogue progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from cormorant.rules.watch.artists import (
    Artist,
    CatalogueProgress,
    Charge,
    RetryCharge,
    dump_progress,
    load_progress,
)
from cormorant.rules.watch.wants import Want
from storage.engine.columns import from_micros, kept_text, maybe_to_micros, to_micros
from storage.jobs import jobs
from storage.jobs.jobs import NewJob
from storage.tables import ARTISTS, RowCodec
from storage.watch import wants, watches
from storage.watch.watches import WatchKind

TEXT_LENGTH_MAX = 500
AHEAD = timedelta(days=1)
"""No cooldown lasts that long: one that ends later was written by a clock that ran ahead."""
ARTIST = WatchKind(
    codec=RowCodec(ARTISTS, Artist),
    what="artist",
    command="watchlist",
    order="id",
    unique="source, artist_id",
    matches="id = :number OR artist_id = :wanted OR lower(name) = lower(:wanted)",
    first="id <> :number, artist_id <> :wanted, id",
    set_with_check="retry_block_until = NULL, failures = 0",
)


def claim(connection: Connection, *, worker: str, now: datetime, limit: int) -> list[Artist]:
    """Claim due artists, the longest due first.

    An artist that was last checked in the future is due, too: the clock has been set back since.
    """
    ahead = to_micros(now + AHEAD)
    found = watches.claim(
        connection,
        ARTIST.codec,
        worker=worker,
        due=_IS_DUE,
        order="next_attempt_at",
        limit=limit,
        now=to_micros(now),
        ahead=ahead,
    )
    return sorted(found, key=lambda artist: (artist.next_attempt_at, artist.id))


def blocked(connection: Connection, *, now: datetime, limit: int) -> list[Artist]:
    """Artists that are due and are left alone because too much has failed."""
    words = {"now": to_micros(now), "ahead": to_micros(now + AHEAD), "limit": limit}
    return [ARTIST.codec.from_row(row) for row in connection.execute(_BLOCKED, words)]


def next_due(connection: Connection, *, worker: str) -> datetime | None:
    """When the next artist is due for a worker that works on none, blocked or not; None: none is watched.

    Those that the worker itself has claimed count: a tick that could not release them in time has left them.
    """
    due: int | None = connection.execute(_NEXT_DUE, {"worker": worker}).scalar()
    return None if due is None else from_micros(due)


def release(connection: Connection, artists: Sequence[Artist], *, next_attempt_at: datetime | None = None) -> None:
    """Release artists that were not checked. They are charged nothing, and due as before or at the time given."""
    claims = [(artist.id, artist.token) for artist in artists]
    watches.release(connection, ARTISTS, claims, next_attempt_at=next_attempt_at)


def succeed(connection: Connection, artist: Artist, *, looked_at: datetime, next_attempt_at: datetime) -> bool:
    """A look succeeded: what came out before it is known now. False: it is no longer ours."""
    words = {"looked_at": to_micros(looked_at), "next": to_micros(next_attempt_at)}
    done = connection.execute(_SUCCEED, words | {"id": artist.id, "token": artist.token})
    return done.rowcount > 0


def fail(
    connection: Connection, artist: Artist, charge: Charge, *, next_attempt_at: datetime, error: str, now: datetime
) -> RetryCharge | None:
    """A look failed. The watermark stays: what came out meanwhile is found by the next. None: it is no longer ours.

    It is charged as it is now: searches may have charged it since it was claimed.
    """
    there = watches.by_id(connection, ARTIST, artist.id, lock=True)
    if there is None or there.token != artist.token:
        return None
    cost = charge(there)
    words = {
        "failures": cost.failures,
        "block_until": maybe_to_micros(cost.block_until),
        "next": to_micros(next_attempt_at),
        "error": kept_text(error, TEXT_LENGTH_MAX),
        "now": to_micros(now),
    }
    connection.execute(_FAIL, words | {"id": artist.id, "token": artist.token})
    return cost


def charge(connection: Connection, artist_id: int, charge: Charge) -> None:
    """Count what failed outside a look: searches for what the artist released."""
    artist = watches.by_id(connection, ARTIST, artist_id, lock=True)
    if artist is None:
        return
    cost = charge(artist)
    until = maybe_to_micros(cost.block_until)
    connection.execute(_CHARGE, {"id": artist_id, "failures": cost.failures, "until": until})


Key = tuple[str, str]
"""A source, and an id there."""


def find_progress(connection: Connection, artists: Sequence[Artist]) -> dict[Key, CatalogueProgress]:
    """What was kept of the lists of these artists."""
    if connection.execute(_ANY).first() is None:
        return {}
    found = {}
    for artist in artists:
        row = connection.execute(_FIND_PROGRESS, {"source": artist.source, "artist_id": artist.artist_id}).one_or_none()
        if row is not None:
            found[artist.source, artist.artist_id] = load_progress(row.walk, began_at=from_micros(row.began_at))
    return found


def put_progress(connection: Connection, key: Key, walk: CatalogueProgress) -> None:
    """Keep what was read of a list."""
    words = {"source": key[0], "artist_id": key[1], "began_at": to_micros(walk.began_at), "walk": dump_progress(walk)}
    connection.execute(_PUT_PROGRESS, words)


def drop_progress(connection: Connection, key: Key) -> None:
    """Forget it: all of it was read, or it cannot be gone on with."""
    connection.execute(_DROP_PROGRESS, {"source": key[0], "artist_id": key[1]})


def prune_progress(connection: Connection, *, before: datetime, limit: int) -> int:
    """Forget lists that nobody has read to their end, such as those of artists that are no longer watched."""
    pruned: int = connection.execute(_PRUNE_PROGRESS, {"before": to_micros(before), "limit": limit}).rowcount
    return pruned


def keep_progress(connection: Connection, walks: Mapping[Key, CatalogueProgress], ended: Sequence[Key]) -> None:
    """Store the progress of long catalogues, and remove that of those that were read to their end."""
    for key, walk in sorted(walks.items(), key=lambda each: each[0]):
        put_progress(connection, key, walk)
    for key in ended:
        drop_progress(connection, key)


def claim_due(connection: Connection, *, worker: str, now: datetime, limit: int) -> tuple[list[Artist], list[Artist]]:
    """Claim due artists. Also returns those that are due and blocked after too many failures.

    The caller works on no artist, so what the worker has claimed before is released.
    """
    watches.release_unknown(connection, ARTISTS, worker=worker, known=())
    claimed = claim(connection, worker=worker, now=now, limit=limit)
    return claimed, blocked(connection, now=now, limit=limit)


def record_success(
    connection: Connection,
    artist: Artist,
    wanted: Sequence[tuple[Want, NewJob | None]],
    *,
    looked_at: datetime,
    next_attempt_at: datetime,
) -> list[Want]:
    """Wants, their jobs and the watermark together: a crash in between would lose a release, or want it twice."""
    if not succeed(connection, artist, looked_at=looked_at, next_attempt_at=next_attempt_at):
        return []  # another process has claimed it, and finds the same
    return record_wants(connection, wanted, now=looked_at)


def record_wants(connection: Connection, wanted: Sequence[tuple[Want, NewJob | None]], *, now: datetime) -> list[Want]:
    """Take wants in, each with the job that searches for it. Returns those that are new and searched for."""
    new = []
    for want, job in wanted:
        there = wants.want(connection, want)
        if there is not None and job is not None:
            jobs.enqueue(connection, job, now=now)
            new.append(there)
    return new


_IS_DUE = """
    NOT is_paused AND (next_attempt_at <= :now OR watermark > :ahead)
    AND (retry_block_until IS NULL OR retry_block_until <= :now OR retry_block_until > :ahead)
"""
_BLOCKED = text(f"""
    SELECT {ARTIST.codec.columns} FROM watchlist_artists WHERE NOT is_paused AND next_attempt_at <= :now
        AND retry_block_until > :now AND retry_block_until <= :ahead
    ORDER BY next_attempt_at, id LIMIT :limit
""")
_NEXT_DUE = text("""
    SELECT min(next_attempt_at) FROM watchlist_artists
    WHERE NOT is_paused AND (claimed_by IS NULL OR claimed_by = :worker)
""")
_SUCCEED = text("""
    UPDATE watchlist_artists SET claimed_by = NULL, watermark = :looked_at, last_checked = :looked_at,
        next_attempt_at = :next, failures = 0, retry_block_until = NULL, last_error = NULL
    WHERE id = :id AND token = :token
""")
_FAIL = text("""
    UPDATE watchlist_artists SET claimed_by = NULL, last_checked = :now, next_attempt_at = :next, failures = :failures,
        retry_block_until = COALESCE(:block_until, retry_block_until), last_error = :error
    WHERE id = :id AND token = :token
""")
_CHARGE = text("""
    UPDATE watchlist_artists SET failures = :failures, retry_block_until = COALESCE(:until, retry_block_until)
    WHERE id = :id
""")
_ANY = text("SELECT 1 FROM catalogue_walks LIMIT 1")
_FIND_PROGRESS = text("SELECT began_at, walk FROM catalogue_walks WHERE source = :source AND artist_id = :artist_id")
_PUT_PROGRESS = text("""
    INSERT INTO catalogue_walks (source, artist_id, began_at, walk) VALUES (:source, :artist_id, :began_at, :walk)
    ON CONFLICT (source, artist_id) DO UPDATE SET began_at = excluded.began_at, walk = excluded.walk
""")
_DROP_PROGRESS = text("DELETE FROM catalogue_walks WHERE source = :source AND artist_id = :artist_id")
_PRUNE_PROGRESS = text("""
    DELETE FROM catalogue_walks WHERE (source, artist_id) IN (
        SELECT source, artist_id FROM catalogue_walks WHERE began_at < :before ORDER BY began_at LIMIT :limit)
""")
