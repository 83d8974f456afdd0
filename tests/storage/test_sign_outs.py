"""Those who were signed out are remembered until their cookies would have ended by themselves; in both databases."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection

from storage import access, pauses
from tests.storage.job_store import NOW


def test_a_session_stays_signed_out_until_its_time_is_over_and_is_then_forgotten(connection: Connection) -> None:
    soon, late = NOW + timedelta(minutes=1), NOW + timedelta(days=14)
    pauses.set_all(connection, is_paused=True, now=NOW)

    access.end_session(connection, {"a": soon, "b": late}, now=NOW)
    access.end_session(connection, {"b": late}, now=NOW)  # twice is once
    seen = [access.ended_sessions(connection, now=NOW), access.ended_sessions(connection, now=soon)]
    access.end_session(connection, {"c": late}, now=soon)
    seen.append(access.ended_sessions(connection, now=NOW))

    assert seen == [{"a", "b"}, {"b"}, {"b", "c"}]
    assert pauses.is_all_paused(connection)
