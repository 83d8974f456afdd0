"""Switches, in both databases."""

from __future__ import annotations

from sqlalchemy import Connection

from storage import pauses
from tests.storage.job_store import NOW


def test_a_switch_is_off_until_it_is_set_and_then_as_it_was_set_last(connection: Connection) -> None:
    seen = [pauses.is_set(connection, "jobs.paused")]

    for is_on in (True, True, False):
        pauses.set_flag(connection, "jobs.paused", is_on=is_on, now=NOW)
        seen.append(pauses.is_set(connection, "jobs.paused"))

    assert seen == [False, True, True, False]
    assert not pauses.is_set(connection, "another")
