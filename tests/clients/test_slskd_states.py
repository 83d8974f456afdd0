"""What is told of files that belong together."""

from __future__ import annotations

from typing import Any

import pytest

from cormorant.clients.slskd_replies import Transfer, receipt_of_transfers
from cormorant.rules.watch.handovers import ParcelState

DONE = "Completed, Succeeded"
FAILED = "Completed, TimedOut"


def transfer(filename: str, state: str, **more: Any) -> Transfer:
    return Transfer(id=filename, filename=filename, state=state, **more)


@pytest.mark.parametrize(
    ("states", "standing", "reason"),
    [
        ([DONE, DONE], ParcelState.DONE, None),
        ([DONE, "InProgress"], ParcelState.RUNNING, "1 of 2 files are done"),
        ([FAILED, "Initializing"], ParcelState.RUNNING, "0 of 2 files are done"),
        ([FAILED, "Queued, Locally"], ParcelState.PRESENT, "0 of 2 files are done"),
        (["Requested", DONE], ParcelState.PRESENT, "1 of 2 files are done"),
        ([DONE, FAILED], ParcelState.FAILED, "1 of 2 files are done, 1 failed: TimedOut"),
        ([FAILED, FAILED], ParcelState.FAILED, "0 of 2 files are done, 2 failed: TimedOut"),
        (["Completed", DONE], ParcelState.FAILED, "1 of 2 files are done, 1 failed: it ended without a result"),
        ([], ParcelState.ABSENT, None),
    ],
)
def test_the_whole_stands_where_its_slowest_part_stands(states: list[str], standing: ParcelState, reason: str) -> None:
    transfers = [transfer(name, state) for name, state in zip("ab", states, strict=False)]

    receipt = receipt_of_transfers("ab", [*transfers, transfer("else", FAILED)], target_id="x")

    assert (receipt.standing, receipt.reason, receipt.target_id) == (standing, reason, "x")


def test_only_the_last_try_of_a_file_counts() -> None:
    tries = [
        transfer("a", DONE, requested_at="2026-02"),
        transfer("a", FAILED, requested_at="2026-01"),
    ]

    assert receipt_of_transfers("a", tries, target_id="x").standing is ParcelState.DONE
    assert receipt_of_transfers("a", reversed(tries), target_id="x").standing is ParcelState.DONE


def test_what_slskd_tries_again_by_itself_has_not_failed() -> None:
    again = transfer("a", "Completed, Errored", will_retry=True)

    assert receipt_of_transfers("a", [again], target_id="x").standing is ParcelState.PRESENT


def test_files_that_are_not_listed_yet_are_neither_done_nor_failed() -> None:
    receipt = receipt_of_transfers("ab", [transfer("a", DONE)], target_id="x")

    assert (receipt.standing, receipt.is_stalled) == (ParcelState.RUNNING, True)
    assert receipt.reason == "1 of 2 files are done, the others are not listed"
