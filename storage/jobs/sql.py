"""The statements over the table of jobs, in both dialects."""

from __future__ import annotations

from functools import cache
from typing import Final

from sqlalchemy import TextClause, bindparam, text

from storage.tables import JOBS

CHANNEL: Final = JOBS.name
"""The channel on which new work is announced, and what becomes of work under way."""


# The statements. State names are literals: with bound parameters SQLite does not use the partial indexes.

IS_PAUSED = "EXISTS (SELECT 1 FROM paused_kinds WHERE paused_kinds.kind = :kind)"
INSERT = f"""
    INSERT INTO jobs (uid, kind, state, priority, run_at, held, max_attempts, enqueued_at, dedupe_key, payload, correlation_id)
    VALUES (:uid, :kind, 'pending', :priority, :run_at, {IS_PAUSED}, :max_attempts, :now, :dedupe_key, :payload, :correlation_id)
"""
ENQUEUE = text(f"{INSERT} RETURNING id, uid, state")
ENQUEUE_KEYED = text(f"""
    {INSERT}
    ON CONFLICT (kind, dedupe_key) WHERE dedupe_key IS NOT NULL AND state IN ('pending', 'retryable', 'running')
    DO UPDATE SET rerun_payload = CASE WHEN jobs.state = 'running' THEN excluded.payload ELSE jobs.rerun_payload END,
                  payload = CASE WHEN jobs.state = 'running' THEN jobs.payload ELSE excluded.payload END
    RETURNING id, uid, state
""")
HURRY = text("""
    UPDATE jobs SET run_at = :now
    WHERE kind = :kind AND dedupe_key = :key AND state IN ('pending', 'retryable') AND run_at > :now
""")
# Seldom asked for, and only of what was enqueued a moment ago: an index would cost every claim and every ending.
FIND = text("""
    SELECT id, state FROM jobs WHERE id > (SELECT COALESCE(max(id), 0) FROM jobs) - 1000000 AND uid = :uid AND id <> :but
""")

CLAIMED = "id, token, kind, payload, priority, attempts, max_attempts, correlation_id, last_errors, run_at"
TAKE = "state = 'running', token = token + 1, claimed_by = :owner, claimed_at = :now"
# A dead worker claims nothing, and a worker that claims is not declared dead meanwhile: the row of a dead worker is forgotten once nothing
# runs for it, and nobody would reclaim what it took after that.
CLAIM_POSTGRES = text(f"""
    WITH living AS MATERIALIZED (SELECT 1 FROM workers WHERE id = :owner AND dead_at IS NULL FOR SHARE),
    pick AS MATERIALIZED (
        SELECT due.id AS picked
        FROM unnest(CAST(:priorities AS smallint[])) AS wanted(wanted_priority)
        CROSS JOIN LATERAL (
            SELECT id FROM jobs
            WHERE state IN ('pending', 'retryable') AND NOT held AND priority = wanted_priority AND run_at <= :now
                  AND kind = ANY(:kinds)
            ORDER BY run_at, id LIMIT :n FOR UPDATE SKIP LOCKED
        ) AS due WHERE EXISTS (SELECT 1 FROM living) LIMIT :n
    )
    UPDATE jobs SET {TAKE} WHERE id = ANY(ARRAY(SELECT picked FROM pick)) RETURNING {CLAIMED}
""")
CLAIM_SQLITE = text(f"""
    UPDATE jobs SET {TAKE} WHERE id IN (SELECT value FROM json_each(:ids))
        AND EXISTS (SELECT 1 FROM workers WHERE workers.id = :owner AND dead_at IS NULL) RETURNING {CLAIMED}
""")


@cache
def claim_candidates_sqlite(priorities: int, kinds: int) -> TextClause:
    """One seek for each priority, until enough are found: a plain scan would walk over all that is due later."""
    names = ", ".join(f":kind{n}" for n in range(kinds))
    seek = """SELECT id FROM jobs WHERE state IN ('pending', 'retryable') AND NOT held
              AND priority = :priority{n} AND run_at <= :now AND kind IN ({names}) ORDER BY run_at, id LIMIT :n"""
    seeks = [f"SELECT id FROM ({seek.format(n=n, names=names)})" for n in range(priorities)]
    return text(f"{' UNION ALL '.join(seeks)} LIMIT :n")


@cache
def next_due(priorities: int) -> TextClause:
    """When the next job is due that is not due yet."""
    # Not min(run_at): before the table was analysed PostgreSQL expects one row there, and reads them all.
    seek = """SELECT due FROM (
                SELECT run_at AS due FROM jobs
                WHERE state IN ('pending', 'retryable') AND NOT held AND priority = :priority{n} AND run_at > :now
                ORDER BY run_at LIMIT 1) AS seek{n}"""
    seeks = " UNION ALL ".join(seek.format(n=n) for n in range(priorities))
    return text(f"SELECT min(due) FROM ({seeks}) AS seeks")


def settling(
    to: str, *, uses_attempt: str, run_at: str, errors: str = "last_errors", reclaims: str = "reclaims"
) -> str:
    """The change of a job that leaves its owner.

    With the last attempt it fails. If it was enqueued again while it ran, it starts afresh instead of ending, and the
    newer payload counts in any case. Only a cancel drops the newer one and ends.
    """
    is_last = f"{uses_attempt} AND attempts + 1 >= max_attempts"
    target = f"CASE WHEN {is_last} THEN 'failed' ELSE {to} END"
    ends = f"{target} IN ('succeeded', 'failed', 'cancelled')"
    again = f"{target} IN ('succeeded', 'failed') AND rerun_payload IS NOT NULL"
    return f"""
        state = CASE WHEN {again} THEN 'pending' ELSE {target} END,
        attempts = CASE WHEN {again} THEN 0 WHEN {uses_attempt} THEN attempts + 1 ELSE attempts END,
        run_at = CASE WHEN {again} THEN :now WHEN {ends} THEN run_at ELSE {run_at} END,
        finished_at = CASE WHEN {again} THEN NULL WHEN {ends} THEN :now END,
        payload = CASE WHEN {to} = 'cancelled' THEN payload ELSE COALESCE(rerun_payload, payload) END, rerun_payload = NULL,
        last_errors = {errors}, reclaims = {reclaims}, claimed_by = NULL
    """


SETTLE = settling(
    "ended_to", uses_attempt="ended_used", run_at="ended_run_at", errors="COALESCE(ended_errors, last_errors)"
)
# PostgreSQL knows nothing of who owns how many jobs, and would go through all of them for each ending. So each job is
# looked up by its id, and locked with the check, because what waits for others looks at its own conditions alone again.
SETTLE_POSTGRES = text(f"""
    UPDATE jobs SET {SETTLE}
    FROM (SELECT ended.*
          FROM unnest(CAST(:ids AS bigint[]), CAST(:tokens AS int[]), CAST(:tos AS text[]), CAST(:used AS boolean[]),
                      CAST(:run_ats AS bigint[]), CAST(:errors AS text[]))
               AS ended(ended_id, ended_token, ended_to, ended_used, ended_run_at, ended_errors)
          CROSS JOIN LATERAL (
              SELECT 1 FROM jobs AS held
              WHERE held.id = ended_id AND held.token = ended_token AND held.claimed_by = :owner AND held.state || '' = 'running'
              FOR UPDATE) AS mine) AS ended
    WHERE jobs.id = ended_id RETURNING id, token, state, attempts
""")
# With a plus before it, the index of the owner is not considered: for each of its jobs all endings would be gone through.
IS_MINE_SQLITE = "jobs.id = ended_id AND state = 'running' AND +claimed_by = :owner AND token = ended_token"
SETTLE_SQLITE = text(f"""
    UPDATE jobs SET {SETTLE}
    FROM (SELECT json_extract(value, '$[0]') AS ended_id, json_extract(value, '$[1]') AS ended_token,
                 json_extract(value, '$[2]') AS ended_to, json_extract(value, '$[3]') AS ended_used,
                 json_extract(value, '$[4]') AS ended_run_at, json_extract(value, '$[5]') AS ended_errors
          FROM json_each(:rows)) AS ended
    WHERE {IS_MINE_SQLITE} RETURNING id, token, state, attempts
""")
# What most jobs come to, without all that may happen otherwise.
COMPLETE = "state = 'succeeded', finished_at = :now, claimed_by = NULL"
# The lists stand in a query of their own: as parameters they would be converted once more for each row. They are sorted, so
# that the place of an id is found by halving.
COMPLETE_POSTGRES = text(f"""
    WITH ended AS MATERIALIZED (SELECT CAST(:ids AS bigint[]) AS ids, CAST(:tokens AS int[]) AS tokens)
    UPDATE jobs SET {COMPLETE}
    WHERE id = ANY((SELECT ids FROM ended)::bigint[]) AND claimed_by = :owner AND state || '' = 'running' AND rerun_payload IS NULL
          AND token = ((SELECT tokens FROM ended)::int[])[width_bucket(id, (SELECT ids FROM ended)::bigint[])]
    RETURNING id, token
""")
COMPLETE_SQLITE = text(f"""
    UPDATE jobs SET {COMPLETE}
    FROM (SELECT json_extract(value, '$[0]') AS ended_id, json_extract(value, '$[1]') AS ended_token
          FROM json_each(:rows)) AS ended
    WHERE {IS_MINE_SQLITE} AND rerun_payload IS NULL RETURNING id, token
""")
RELEASE_ALL = text(f"""
    UPDATE jobs SET {settling("'pending'", uses_attempt="false", run_at="run_at")}
    WHERE claimed_by = :owner AND state = 'running'
""")
# The conditions of a choice stand outside it once more: PostgreSQL waits for whoever changes the row just now, and then
# looks at those alone again.
RECLAIM = text(f"""
    UPDATE jobs SET {settling("'pending'", uses_attempt="true", run_at=":now", reclaims="reclaims + 1")}
    WHERE id IN (SELECT id FROM jobs WHERE claimed_by = :owner AND state = 'running' ORDER BY id LIMIT :limit)
          AND claimed_by = :owner AND state = 'running'
    RETURNING id, kind, state, attempts, correlation_id
""")
CANCEL = text("""
    UPDATE jobs SET state = 'cancelled', finished_at = :now, rerun_payload = NULL, claimed_by = NULL
    WHERE id = :id AND state IN ('pending', 'retryable', 'running') RETURNING token
""")
REVIVE = text("""
    UPDATE jobs SET state = 'pending', attempts = 0, run_at = :now, finished_at = NULL,
                    held = EXISTS (SELECT 1 FROM paused_kinds WHERE paused_kinds.kind = jobs.kind)
    WHERE id = :id AND state IN ('failed', 'cancelled')
""")
DISCARD = text("DELETE FROM jobs WHERE id = :id AND state IN ('succeeded', 'failed', 'cancelled')")
OWNED = text("SELECT id, token FROM jobs WHERE claimed_by = :owner AND state = 'running'")
CANCELLED = text("SELECT id, token FROM jobs WHERE id IN :ids AND state = 'cancelled'").bindparams(
    bindparam("ids", expanding=True)
)
IS_OURS = "SELECT 1 FROM jobs WHERE id = :id AND state = 'running' AND claimed_by = :owner AND token = :token"
NEXT_PRIORITY = text("""
    SELECT priority FROM jobs WHERE state IN ('pending', 'retryable') AND NOT held AND priority > :after
    ORDER BY priority LIMIT 1
""")
LET_GO = text("SELECT id, token, state, attempts FROM jobs WHERE id IN :ids AND state <> 'running'").bindparams(
    bindparam("ids", expanding=True)
)
PRUNE = text("""
    DELETE FROM jobs WHERE id IN (
        SELECT id FROM jobs WHERE state IN ('succeeded', 'failed', 'cancelled') AND state = :state AND finished_at < :before
        ORDER BY finished_at, id LIMIT :limit)
    AND state = :state AND finished_at < :before
""")
