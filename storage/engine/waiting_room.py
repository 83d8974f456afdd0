"""How does a task wait for its call? Bounded admission, withdrawal when cancelled, and the answer. Loop side only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

import outcome
from trio.lowlevel import Abort, ParkingLot, reschedule, wait_task_rescheduled

from cormorant.rules.errors import StorageUnavailable
from storage.engine.calls import Call, CallQueue

T = TypeVar("T")


class Admission:
    """Seats for the calls under way. Whoever finds none waits outside, in order."""

    def __init__(self, seats: int) -> None:
        # Invariant: while somebody waits outside, no seat is free. A seat that is given back goes to the first of them.
        self._free = seats
        self._outside = ParkingLot()

    def take_seat(self) -> bool:
        """Take a seat if one is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def enter(self) -> None:
        """Take a seat, or wait for one."""
        if not self.take_seat():
            await self._outside.park()

    def leave(self) -> None:
        """Give a seat back."""
        if self._outside:
            self._outside.unpark()
        else:
            self._free += 1

    async def wait(self, call: Call[T], line: CallQueue) -> T:
        """Wait for the answer. A call still in line is withdrawn when its caller is cancelled; a taken one is waited for."""

        def abort(raise_cancel: Callable[[], NoReturn]) -> Abort:
            if line.withdraw(call):
                self.leave()
                return Abort.SUCCEEDED
            call.raise_cancel = raise_cancel
            return Abort.FAILED

        answer: T = await wait_task_rescheduled(abort)
        return answer

    def answer(self, calls: Iterable[Call[Any]]) -> None:
        """Wake those whose calls have an outcome."""
        for call in calls:
            assert call.outcome is not None
            self.leave()
            reschedule(call.task, call.outcome)

    def refuse(self, calls: Iterable[Call[Any]], why: str) -> None:
        """Wake those whose calls will not run."""
        for call in calls:
            call.outcome = outcome.Error(StorageUnavailable(why))
            self.answer([call])

    def let_go(self, call: Call[Any], line: CallQueue) -> None:
        """Wake a cancelled caller whose call was taken and given back without having run."""
        if call.raise_cancel is not None and line.withdraw(call):
            call.outcome = outcome.capture(call.raise_cancel)
            self.answer([call])
