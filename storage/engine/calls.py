"""Call, CallQueue, Admission and ConnectionWorker: a call from the task that waits to the connection that serves it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

import outcome
from attrs import define, field
from outcome import Outcome
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, StatementError
from trio import current_time
from trio.lowlevel import Abort, ParkingLot, Task, current_task, reschedule, wait_task_rescheduled

from cormorant.rules.errors import CommitUnknown, CormorantError, StorageUnavailable, TransactionMisused

T = TypeVar("T")


class DatabaseAway(Exception):
    """The database cannot be reached or is locked. What was asked and has no outcome yet surely did not happen."""

    def __init__(self, why: str, *, is_stale: bool = False) -> None:
        super().__init__(why)
        self.is_stale = is_stale
        """Perhaps only this connection is dead, and a new one would do."""


ENDED = "a storage function ended its transaction or connection itself: leave that to the gateway, use begin_nested()"
WRITES_IN_READ = "a function that writes was given to read(): give it to run()"


def cause_of(error: BaseException) -> BaseException:
    """The driver's own error, if there is one."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def told_of(error: BaseException, meaning: CormorantError | None) -> BaseException:
    """What the caller is told, when its function raised `error` and its changes are undone. None: the error itself."""
    if isinstance(error, StatementError) and isinstance(error.orig, CormorantError):
        return error.orig
    if meaning is None:
        return error
    meaning.__cause__ = error
    return meaning


ANNOUNCED: Final = "cormorant.announced"
"""Where a connection keeps the channels that its open transaction announces, and whether this process hears of it, too."""


@define(eq=False)
class Announced:
    """The channels that transactions of one worker have announced since they were last taken."""

    own: set[str] = field(init=False, factory=set)
    others: set[str] = field(init=False, factory=set)
    """Those that other processes have announced, as this worker has found."""

    def note(self, channels: Mapping[str, bool], *, is_in_doubt: bool = False) -> None:
        """A transaction that announced these channels has committed. After a COMMIT in doubt, all listeners are called."""
        self.own.update(channel for channel, is_heard in channels.items() if is_heard)
        if is_in_doubt:
            self.others.update(channels)

    def take(self) -> tuple[set[str], set[str]]:
        """Those of this process, and those of others."""
        taken = self.own, self.others
        self.own, self.others = set(), set()
        return taken


class ConnectionGuard:
    """Mixed into a driver's connection: a storage function cannot commit, roll back or close it."""

    is_guarded = False
    destroyer: BaseException | None = None
    """What ended the transaction as a whole, even if the function caught it."""

    def run_guarded(self, work: Callable[[Connection], T], connection: Connection) -> outcome.Value[T] | outcome.Error:
        """Run a storage function. The one place for it: whatever it raises is the caller's, not the gateway's."""
        self.destroyer = None
        self.is_guarded = True
        result = outcome.capture(work, connection)
        self.is_guarded = False
        return result

    def commit(self) -> None:
        """Commit, outside of storage functions."""
        self._refuse_if_guarded()
        super().commit()  # type: ignore[misc]  # the driver's own

    def rollback(self) -> None:
        """Roll back, outside of storage functions. After a refusal SQLAlchemy cleans up, which does nothing."""
        if not self._is_refused:
            self._refuse_if_guarded()
            super().rollback()  # type: ignore[misc]  # the driver's own

    def close(self) -> None:
        """Close, outside of storage functions or after a refusal: SQLAlchemy comes again, to clean up."""
        if not self._is_refused:
            self._refuse_if_guarded()
        super().close()  # type: ignore[misc]  # the driver's own

    @property
    def _is_refused(self) -> bool:
        return self.is_guarded and self.destroyer is not None

    def _refuse_if_guarded(self) -> None:
        if self.is_guarded:
            self.destroyer = TransactionMisused(ENDED)
            raise self.destroyer


@define(eq=False)
class Call(Generic[T]):
    """One function that somebody waits for."""

    work: Callable[[Connection], T]
    reads_only: bool = field(kw_only=True)
    task: Task = field(init=False, factory=current_task)
    arrived_at: float = field(init=False, factory=current_time)
    is_taken: bool = field(init=False, default=False)
    outcome: Outcome[T] | None = field(init=False, default=None)
    held_since: float | None = field(init=False, default=None)
    losses: int = field(init=False, default=0)
    raise_cancel: Callable[[], NoReturn] | None = field(init=False, default=None)
    """Set when the caller was cancelled while the call was taken: it goes as soon as the call is given back."""


class CallSession(Protocol):
    """An open connection that serves calls, in one thread at a time."""

    @property
    def is_usable(self) -> bool:
        """Whether more calls may be served; otherwise it is to be closed and another one opened."""
        ...

    def serve(self, calls: Sequence[Call[Any]]) -> None:
        """Give each call its outcome. `DatabaseAway`: those without one surely did not happen."""
        ...

    def cut(self) -> None:
        """End what runs, from another thread, because it takes too long."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


class CallQueue:
    """Calls in the order they came, until a worker takes them.

    Invariant: a call is in a line, or taken, or has been answered; `_lock` guards the passage between the first two,
    so that a call is either withdrawn by its caller or run by a worker, never both.
    """

    def __init__(self) -> None:
        self._calls: OrderedDict[Call[Any], None] = OrderedDict()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._sleepers = 0
        self._is_paused = False
        self._is_closed = False

    @property
    def is_paused(self) -> bool:
        """Whether workers take nothing because the database is away."""
        return self._is_paused

    def put(self, call: Call[Any]) -> None:
        """Join at the end."""
        with self._lock:
            self._calls[call] = None
            if self._sleepers:
                self._changed.notify()

    def take(self, most: int) -> list[Call[Any]]:
        """Wait for calls and take up to `most`. None: the line is closed and done with."""
        with self._lock:
            while (self._is_paused or not self._calls) and not self._is_closed:
                self._sleepers += 1
                self._changed.wait()
                self._sleepers -= 1
            return [] if self._is_paused else self._take(most)

    def take_now(self, most: int | None = None) -> list[Call[Any]]:
        """Take all that wait, or up to `most` of them."""
        with self._lock:
            return self._take(len(self._calls) if most is None else most)

    def _take(self, most: int) -> list[Call[Any]]:
        taken = [self._calls.popitem(last=False)[0] for _ in range(min(most, len(self._calls)))]
        for call in taken:
            call.is_taken = True
        return taken

    def put_back(self, calls: Iterable[Call[Any]]) -> None:
        """Return calls that did not run to their old places, and pause: they would only fail again."""
        with self._lock:
            for call in (returned := list(calls)):
                call.is_taken = False
            # Two workers may give back in the wrong order; of calls that came at the same time the returned were first.
            places = sorted([*returned, *self._calls], key=lambda call: call.arrived_at)
            self._calls = OrderedDict.fromkeys(places)
            self._is_paused = True

    def withdraw(self, call: Call[Any]) -> bool:
        """Leave the line. False: too late, a worker has the call."""
        with self._lock:
            if call.is_taken or call not in self._calls:
                return False
            del self._calls[call]
            return True

    def waiting(self) -> list[Call[Any]]:
        """Those in line, first come first."""
        with self._lock:
            return list(self._calls)

    def pause(self) -> None:
        """Let workers take nothing."""
        with self._lock:
            self._is_paused = True

    def resume(self) -> None:
        """Let workers take again."""
        with self._lock:
            self._is_paused = False
            self._changed.notify_all()

    def close(self) -> None:
        """Let workers finish what is in line and end; when paused, end at once."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()


class Admission:
    """Seats for the calls under way. Whoever finds none waits outside, in order."""

    def __init__(self, seats: int) -> None:
        # Invariant: while somebody waits outside, no seat is free. A seat that is given back goes to the first of them.
        self._free = seats
        self._outside = ParkingLot()

    def acquire(self) -> bool:
        """Take a seat if one is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def enter(self) -> None:
        """Take a seat, or wait for one."""
        if not self.acquire():
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

    def release(self, call: Call[Any], line: CallQueue) -> None:
        """Wake a cancelled caller whose call was taken and given back without having run."""
        if call.raise_cancel is not None and line.withdraw(call):
            call.outcome = outcome.capture(call.raise_cancel)
            self.answer([call])


class ConnectionWorker:
    """Serves calls over one session that is opened when needed. A thread's own, or the loop's when in line."""

    def __init__(self, open_session: Callable[[Announced], CallSession]) -> None:
        self.announced = Announced()
        self._open = open_session
        self._session: CallSession | None = None
        self._busy_since: float | None = None

    def serve(self, calls: Sequence[Call[Any]]) -> DatabaseAway | None:
        """Give each call its outcome. Those left without one surely did not run, because the database is away."""
        was_open = self._session is not None
        away = self._attempt(calls)
        # A connection that idled may be long dead while the database is well: one new try, at once.
        if away is not None and away.is_stale and was_open:
            away = self._attempt([call for call in calls if call.outcome is None])
        return away

    def cancel_if_hung(self, limit_s: float) -> None:
        """End what the session does when that takes longer than any time-out of the database explains."""
        busy_since, session = self._busy_since, self._session
        if session is not None and busy_since is not None and time.monotonic() - busy_since > limit_s:
            session.cut()

    def close(self) -> None:
        """Let go of the connection; the next call opens another."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _attempt(self, calls: Sequence[Call[Any]]) -> DatabaseAway | None:
        self._busy_since = time.monotonic()
        is_settled = False
        try:
            self._session = self._session or self._open(self.announced)
            self._session.serve(calls)
            is_settled = True
        except DatabaseAway as away:
            self.close()
            is_settled = True
            return away
        finally:
            self._busy_since = None
            if not is_settled:
                _give_up(calls)
        if not self._session.is_usable:
            self.close()
        return None


def _give_up(calls: Sequence[Call[Any]]) -> None:
    """Nobody waits for ever when the gateway itself crashes, and nobody is told more than is known."""
    for call in calls:
        if call.outcome is None:
            call.outcome = outcome.Error(CommitUnknown("the storage gateway crashed with this call in hand"))
