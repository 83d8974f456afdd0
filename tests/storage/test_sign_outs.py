"""Those who were signed out are remembered until their cookies would have ended by themselves; in both databases."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection

from storage import flags, sign_outs
from tests.storage.job_store import NOW


def test_a_session_stays_signed_out_until_its_time_is_over_and_is_then_forgotten(connection: Connection) -> None:
    soon, late = NOW + timedelta(minutes=1), NOW + timedelta(days=14)
    flags.set_flag(connection, "paused", is_on=True, now=NOW)

    sign_outs.end(connection, {"a": soon, "b": late}, now=NOW)
    sign_outs.end(connection, {"b": late}, now=NOW)  # twice is once
    seen = [sign_outs.ended(connection, now=NOW), sign_outs.ended(connection, now=soon)]
    sign_outs.end(connection, {"c": late}, now=soon)
    seen.append(sign_outs.ended(connection, now=NOW))

    assert seen == [{"a", "b"}, {"b"}, {"b", "c"}]
    assert flags.is_set(connection, "paused")
