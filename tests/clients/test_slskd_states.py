"""What is told of files that belong together."""

from __future__ import annotations

from typing import Any

import pytest

from cormorant.clients.slskd_states import Transfer, receipt_of_transfers
from cormorant.rules.watch.handing import Standing

DONE = "Completed, Succeeded"
FAILED = "Completed, TimedOut"


def transfer(filename: str, state: str, **more: Any) -> Transfer:
    return Transfer(id=filename, filename=filename, state=state, **more)


@pytest.mark.parametrize(
    ("states", "standing", "reason"),
    [
        ([DONE, DONE], Standing.DONE, None),
        ([DONE, "InProgress"], Standing.RUNNING, "1 of 2 files are done"),
        ([FAILED, "Initializing"], Standing.RUNNING, "0 of 2 files are done"),
        ([FAILED, "Queued, Locally"], Standing.PRESENT, "0 of 2 files are done"),
        (["Requested", DONE], Standing.PRESENT, "1 of 2 files are done"),
        ([DONE, FAILED], Standing.FAILED, "1 of 2 files are done, 1 failed: TimedOut"),
        ([FAILED, FAILED], Standing.FAILED, "0 of 2 files are done, 2 failed: TimedOut"),
        (["Completed", DONE], Standing.FAILED, "1 of 2 files are done, 1 failed: it ended without a result"),
        ([], Standing.ABSENT, None),
    ],
)
def test_the_whole_stands_where_its_slowest_part_stands(states: list[str], standing: Standing, reason: str) -> None:
    transfers = [transfer(name, state) for name, state in zip("ab", states, strict=False)]

    receipt = receipt_of_transfers("ab", [*transfers, transfer("else", FAILED)], target_id="x")

    assert (receipt.standing, receipt.reason, receipt.target_id) == (standing, reason, "x")


def test_only_the_last_try_of_a_file_counts() -> None:
    tries = [
        transfer("a", DONE, requested_at="2026-02"),
        transfer("a", FAILED, requested_at="2026-01"),
    ]

    assert receipt_of_transfers("a", tries, target_id="x").standing is Standing.DONE
    assert receipt_of_transfers("a", reversed(tries), target_id="x").standing is Standing.DONE


def test_what_slskd_tries_again_by_itself_has_not_failed() -> None:
    again = transfer("a", "Completed, Errored", will_retry=True)

    assert receipt_of_transfers("a", [again], target_id="x").standing is Standing.PRESENT


def test_files_that_are_not_listed_yet_are_neither_done_nor_failed() -> None:
    receipt = receipt_of_transfers("ab", [transfer("a", DONE)], target_id="x")

    assert (receipt.standing, receipt.is_stalled) == (Standing.RUNNING, True)
    assert receipt.reason == "1 of 2 files are done, the others are not listed"
