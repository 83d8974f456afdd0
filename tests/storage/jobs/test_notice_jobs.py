"""Notices that wait, in both databases: what comes later joins them, and nothing is lost between processes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import Connection, text

from cormorant.rules.jobs.states import JobState
from cormorant.rules.notices import (
    Notice,
    NoticeBatch,
    NoticeKind,
    join_payloads,
    message_of,
    read_batch,
    written_batch,
)
from storage.jobs import batch
from storage.jobs.jobs import NewJob
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, hire, new_job, settle, take

KEY = "handed-over@phone"


def telling(*lines: str, key: str = KEY, **words: Any) -> NewJob:
    batch = NoticeBatch()
    for line in lines:
        batch = batch.with_notice(Notice(kind=NoticeKind.HANDED_OVER, key=line, line=line))
    return new_job(
        "notify", payload=json.dumps({"to": "phone", "batch": written_batch(batch)}), dedupe_key=key, **words
    )


def waiting(connection: Connection) -> list[str]:
    rows = connection.execute(text("SELECT payload FROM jobs WHERE kind = 'notify' AND state = 'pending' ORDER BY id"))
    return [message_of(read_batch(json.loads(row.payload)["batch"])).body for row in rows]


def test_what_comes_later_joins_what_waits_under_its_key(connection: Connection) -> None:
    jobs = [telling("a"), telling("b"), telling("c", key="other@phone")]

    assert [batch.enqueue_or_join(connection, job, join=join_payloads, now=NOW) for job in jobs] == [True] * 3
    assert waiting(connection) == ["a\nb", "c"]


def test_while_one_is_being_told_the_next_must_wait_and_then_is_one_of_its_own(connection: Connection) -> None:
    batch.enqueue_or_join(connection, telling("a"), join=join_payloads, now=NOW)
    [told] = take(connection, kinds=["notify"])

    is_up = batch.enqueue_or_join(connection, telling("b"), join=join_payloads, now=NOW)
    settle(connection, told, JobState.SUCCEEDED)

    assert (is_up, waiting(connection)) == (False, [])
    assert batch.enqueue_or_join(connection, telling("b"), join=join_payloads, now=NOW)
    assert waiting(connection) == ["b"]


def test_after_a_restart_it_is_known_when_each_was_told_last(connection: Connection) -> None:
    batch.enqueue_or_join(connection, telling("a", run_at=at(5)), join=join_payloads, now=NOW)
    batch.enqueue_or_join(connection, telling("b", key="other@phone", run_at=at(7)), join=join_payloads, now=NOW)

    assert batch.last_due(connection, "notify") == {KEY: at(5), "other@phone": at(7)}


@pytest.mark.slow("two transactions of which one waits for the other")
@pytest.mark.parametrize("before", [(), ("first",)])
def test_two_processes_that_tell_of_something_at_once_lose_nothing(
    job_store: JobStore, before: tuple[str, ...]
) -> None:
    with job_store.begin() as connection:
        hire(connection)
        for line in before:
            batch.enqueue_or_join(connection, telling(line), join=join_payloads, now=NOW)

    done = at_once(
        job_store,
        lambda connection: batch.enqueue_or_join(connection, telling("one"), join=join_payloads, now=NOW),
        lambda connection: batch.enqueue_or_join(connection, telling("two"), join=join_payloads, now=NOW),
    )

    with job_store.begin() as connection:
        assert done == (True, True)
        assert waiting(connection) == ["\n".join([*before, "one", "two"])]
