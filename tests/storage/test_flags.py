"""The pause of all work, in both databases."""

from __future__ import annotations

from sqlalchemy import Connection

from storage import pauses
from tests.storage.job_store import NOW


def test_work_is_not_paused_until_it_is_and_then_as_it_was_set_last(connection: Connection) -> None:
    seen = [pauses.is_all_paused(connection)]

    for is_paused in (True, True, False):
        pauses.set_all(connection, is_paused=is_paused, now=NOW)
        seen.append(pauses.is_all_paused(connection))

    assert seen == [False, True, True, False]
