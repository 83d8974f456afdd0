"""What is remembered of the errors of a job: the last few, in words that every database can keep."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from cormorant.rules.jobs.error_log import KEPT, TEXT_MAX, clean_text, describe_error, remember_error

NOW = datetime(2026, 7, 1, tzinfo=UTC)


class Unprintable(Exception):
    @override
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def remember(before: str | None, error: BaseException, *, attempt: int = 1) -> str:
    return remember_error(before, error, job_id=7, attempt=attempt, at=NOW)


def test_an_error_is_kept_with_its_job_its_type_and_when_it_was() -> None:
    (entry,) = json.loads(remember(None, ValueError("no such artist"), attempt=3))

    assert entry == {
        "id": 7,
        "attempt": 3,
        "type": "ValueError",
        "error": "ValueError: no such artist",
        "at": "2026-07-01T00:00:00+00:00",
    }


def test_only_the_last_errors_are_kept_the_newest_last() -> None:
    kept: str | None = None
    for attempt in range(1, KEPT + 2):
        kept = remember(kept, ValueError("no"), attempt=attempt)

    assert kept is not None
    assert [entry["attempt"] for entry in json.loads(kept)] == list(range(2, KEPT + 2))


def test_of_a_group_all_that_went_wrong_is_told() -> None:
    nested = ExceptionGroup("outer", [ExceptionGroup("inner", [KeyError("b")]), ValueError("a")])

    assert describe_error(nested) == "KeyError: 'b'; ValueError: a"


def test_a_password_in_an_address_is_not_kept() -> None:
    kept = remember(None, OSError("cannot reach postgresql://me:hunter2@db/cormorant"))

    assert "hunter2" not in kept


def test_an_error_that_cannot_be_printed_is_told_by_its_type() -> None:
    assert describe_error(Unprintable()).startswith("Unprintable: ")


@pytest.mark.parametrize("length", [TEXT_MAX, TEXT_MAX + 1, 10 * TEXT_MAX])
def test_a_long_text_is_cut(length: int) -> None:
    assert clean_text("x" * length) == "x" * TEXT_MAX


@given(st.text(st.characters(codec=None)))
def test_every_database_can_keep_a_cleaned_text(text: str) -> None:
    cleaned = clean_text(text)

    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert len(cleaned) <= TEXT_MAX
