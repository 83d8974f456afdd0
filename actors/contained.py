"""Containment: an unexpected exception fails one external item and not the loop over all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from attrs import frozen

from cormorant.rules.errors import CommitUnknown, StorageUnavailable, split_where, trace_of
from cormorant.rules.events import ItemFailed
from cormorant.rules.jobs.error_log import describe_error
from cormorant.rules.ports import Emit
from cormorant.rules.secrets import Secret, shortened

__all__ = ["Failed", "contained"]

T = TypeVar("T")

OUTAGES: Final = (StorageUnavailable, CommitUnknown)
"""No item causes these, and none is charged for them."""
REASON_LENGTH_MAX: Final = 300


@frozen
class Failed:
    """An item failed with an exception that its code does not handle. `reason` is one line without secrets."""

    reason: str


async def contained(
    step: Callable[[], Awaitable[T]],
    *,
    kind: str,
    item: str,
    emit: Emit,
    expected: tuple[type[Exception], ...] = (),
    secrets: Sequence[Secret] = (),
) -> T | Failed:
    """Run one step of one item. An unexpected exception becomes the event `item.failed` and the result `Failed`.

    Cancellation, an outage of the database and `expected` exceptions pass. The caller lets a failed item back off.
    """

    def is_passed_on(error: BaseException) -> bool:
        return not isinstance(error, Exception) or isinstance(error, OUTAGES + expected)

    try:
        return await step()
    except BaseException as raised:
        passed_on, fault = split_where(raised, is_passed_on)
        if fault is None:
            raise
        said = shortened(describe_error(fault), secrets, length_max=REASON_LENGTH_MAX)
        emit(ItemFailed(kind=kind, item=item, error=said, traceback=trace_of(fault, secrets)))
        if passed_on is not None:
            raise passed_on from None
        return Failed(f"an unexpected error, please report it: {said}")
