"""JobWorker: runs one handler after another within its time-out and detects leaked cancel scopes."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Coroutine, Generator, Mapping
from types import coroutine
from typing import Any

import trio
from attrs import define, field

from actors.environment import Environment
from actors.jobs.handler import Handler, JobContext, JobServices
from actors.jobs.producer import Producer
from actors.jobs.working_set import (
    CANCELLED,
    LOST,
    EphemeralJob,
    FinishedJob,
    RunningJob,
    Work,
    about,
)
from cormorant.rules.errors import CormorantError, HandlerMisbehaved, JobTimedOut, split_off, trace_of
from cormorant.rules.events import ItemFailed
from cormorant.rules.jobs.error_log import describe_error
from cormorant.rules.jobs.events import JobBlockedLoop, JobCancelled, JobFailed, JobReturnedValue, JobStarted
from cormorant.rules.jobs.states import RetryPolicy, Verb
from cormorant.rules.jobs.verdicts import DONE, HandlerOutcome, Verdict, verdict_on
from storage.jobs.jobs import ClaimedJob

BLOCK_S = 0.2
"""The longest time that a step of a handler may hold up the loop; longer ones are reported."""
SLICE_S = 0.002
"""So long a worker runs handlers that never wait before it lets others go on."""
NOT_THEIRS = (trio.Cancelled, KeyboardInterrupt, GeneratorExit)
"""What goes on up through a handler. All else that comes out of it is its own failure, `sys.exit()` too."""

EXPECTED = (CormorantError, HandlerOutcome)
"""A handler that raises these says what happened; the place where it did adds nothing."""


class Interrupted(Exception):
    """Why a handler was stopped before its end."""


@define(eq=False, kw_only=True)
class JobWorker:
    """Takes from the queue what is most urgent."""

    environment: Environment = field(kw_only=False)
    producer: Producer
    handlers: Mapping[str, Handler]
    reach: JobServices
    block_s: float = BLOCK_S
    _retry: RetryPolicy = field(init=False)
    _task: trio.lowlevel.Task = field(init=False)
    _running: RunningJob | None = field(init=False, default=None)
    _is_left_open: bool = field(init=False, default=False)
    """Whether the last handler left a scope open, which would cancel those that come after it."""
    _yield_at: float = field(init=False, default=-math.inf)

    def __attrs_post_init__(self) -> None:
        options = self.environment.settings.jobs
        self._retry = RetryPolicy(base_s=options.retry_base_s, cap_s=options.retry_cap_s)

    async def run(self) -> None:
        """Work until a handler leaves something open in this task: no other handler may run in it then."""
        self._task = trio.lowlevel.current_task()
        while not self._is_left_open:
            # A scope costs more than all else around a handler, and only one that waits can be cancelled. So the
            # handlers of a scope are any number that never wait, and at most one that does, which is the last.
            scope = trio.CancelScope()
            error: BaseException | None = None
            try:
                with scope:
                    error = await self._run_until_one_waits(scope)
            except RuntimeError as corrupted:
                error = self._blame(corrupted)
            finally:
                running = self._forget()
            if running is not None:
                self._end(running, error)

    async def _run_until_one_waits(self, scope: trio.CancelScope) -> BaseException | None:
        """Run handlers. Returns what the one raised that has waited, which is still the running one then."""
        while True:
            running = self._running = await self._begin_next(scope)
            try:
                error = await self._attempt(running)
            finally:
                self._is_left_open = is_left_open(self._task, scope)
            if running.deadline < math.inf or running.why is not None or self._is_left_open:
                return error
            self._forget()
            self._end(running, error)

    def _blame(self, corrupted: RuntimeError) -> HandlerMisbehaved:
        """What trio raises at the end of a scope in which another was left open is that handler's failure."""
        if not self._is_left_open or isinstance(corrupted.__context__, KeyboardInterrupt):
            raise corrupted
        abandon_scope(self._task)
        assert self._running is not None
        return HandlerMisbehaved(
            f"the handler of {self._running.work.kind} left a cancel scope or a nursery open, as a generator does that is "
            "not read to its end: close it with `contextlib.aclosing`"
        )

    async def _begin_next(self, scope: trio.CancelScope) -> RunningJob:
        queue = self.producer.working_set.queue
        while True:
            if self.environment.clock.stopwatch() >= self._yield_at:
                await trio.lowlevel.checkpoint()
                self._yield_at = self.environment.clock.stopwatch() + SLICE_S
            now = trio.current_time()
            item = queue.take(now=now)
            if item is None:
                await self.producer.workers_lot.park()
            # A process that stood still may wake up with jobs that others have taken: the producer finds out, and releases them.
            # Invariant: no await between queue and running, so that a job is always somewhere.
            elif now < self.producer.lease.doubtful_at or isinstance(item.job, EphemeralJob):
                return self.producer.working_set.begin(item.job, scope, now)

    def waits(self) -> None:
        """The handler is about to wait: from now on it can be stopped, and others have something to do."""
        running = self._running
        assert running is not None
        running.deadline = running.started_at + self._timeout_of(running.work.kind)
        running.scope.deadline = running.deadline
        self.producer.call_worker()

    def blocked(self, for_s: float) -> None:
        """A step of the handler held up the loop."""
        assert self._running is not None
        self.environment.emit(JobBlockedLoop(**about(self._running.work), for_s=for_s))

    def _forget(self) -> RunningJob | None:
        running, self._running = self._running, None
        if running is not None:
            self.producer.working_set.forget(running)
        return running

    async def _attempt(self, running: RunningJob) -> BaseException | None:
        """Run a handler. Returns what it raised."""
        work = running.work
        try:
            context = self._context(work)
            waited_s = (
                self.environment.now().timestamp() - work.run_at_us / 1e6 if isinstance(work, ClaimedJob) else 0.0
            )
            self.environment.emit(
                JobStarted(
                    job_id=context.job_id,
                    kind=context.kind,
                    correlation_id=context.correlation_id,
                    attempt=context.attempt,
                    waited_s=waited_s,
                )
            )
            returned = await run_handler(self.handlers[work.kind], context, self)
        except BaseException as raised:  # noqa: BLE001 - foreign code; what is not its crash goes on up
            rest, crash = split_off(raised, NOT_THEIRS)
            if rest is not None:
                raise rest from None
            return crash
        if returned is not None:
            self.environment.emit(JobReturnedValue(**about(work), returned=type(returned).__name__))
        return None

    def _context(self, work: Work) -> JobContext:
        return JobContext(
            job_id=work.id,
            kind=work.kind,
            payload=json.loads(work.payload) if isinstance(work, ClaimedJob) else work.payload,
            attempt=work.attempts + 1,
            max_attempts=work.max_attempts,
            correlation_id=work.correlation_id,
            reach=self.reach,
            owner=self.producer.lease.owner,
            token=work.token,
        )

    def _end(self, running: RunningJob, error: BaseException | None) -> None:
        """Hand over what came of it."""
        work = running.work
        if running.scope.cancelled_caught and running.why is None:
            error = JobTimedOut(work.kind, self._timeout_of(work.kind))
        elif error is not None:
            self._emit_unexpected(work, error)
        if isinstance(work, EphemeralJob):
            self._emit_ephemeral(work, running, error)
            self.producer.wake_up.notify_without_fetch()  # there is room for another one
            return
        verdict = self._verdict(work, running, error)
        if verdict is None:
            self.producer.wake_up.notify_without_fetch()  # nothing is to be settled, and there is room for another one
            return
        took_s = trio.current_time() - running.started_at
        self.producer.working_set.finished.append(FinishedJob(job=work, verdict=verdict, took_s=took_s))
        self.producer.note_ended()

    def _emit_unexpected(self, work: Work, error: BaseException) -> None:
        """The job itself says only what was raised; the log also shows where."""
        _, fault = split_off(error, EXPECTED)
        if fault is not None:
            number = "" if work.id is None else f" {work.id}"
            traceback = trace_of(fault)
            self.environment.emit(
                ItemFailed(kind="job", item=f"{work.kind}{number}", error=describe_error(fault), traceback=traceback)
            )

    def _emit_ephemeral(self, work: EphemeralJob, running: RunningJob, error: BaseException | None) -> None:
        if running.why is not None and _was_stopped(running, error):
            self.environment.emit(JobCancelled(**about(work), why=running.why))
        elif error is not None:
            self.environment.emit(JobFailed(**about(work), attempts=1, error=describe_error(error)))

    def _verdict(self, job: ClaimedJob, running: RunningJob, error: BaseException | None) -> Verdict | None:
        """What follows for the job. None: it is not ours any more."""
        if error is None and running.why is None:
            return DONE
        if running.why is not None and _was_stopped(running, error):
            is_ours = running.why not in {CANCELLED, LOST}
            return Verdict(verb=Verb.RELEASE, error=Interrupted(running.why)) if is_ours else None
        if isinstance(error, HandlerMisbehaved):
            return Verdict(verb=Verb.FAIL, error=error)
        try:
            return verdict_on(error, attempts=job.attempts, policy=self._retry, jitter=self.environment.chance.random())
        except Exception as worse:  # noqa: BLE001 - foreign code: the class of the error may be anything
            words = f"what the handler of {job.kind} raised cannot be made sense of: {describe_error(worse)}"
            return Verdict(verb=Verb.FAIL, error=HandlerMisbehaved(words))

    def _timeout_of(self, kind: str) -> float:
        handler = self.handlers.get(kind)
        own = None if handler is None else handler.timeout_s
        return self.environment.settings.jobs.timeout_s if own is None else own


async def run_handler(handler: Handler, context: JobContext, worker: JobWorker) -> object:
    """Run a handler to its end and return what it returned."""
    began = worker.environment.clock.stopwatch()
    awaitable = handler.run(context)
    if not isinstance(awaitable, Coroutine):
        if not inspect.isawaitable(awaitable):
            raise HandlerMisbehaved(f"the handler of {context.kind} is not async: make it `async def`")
        worker.waits()
        return await awaitable
    returned = await _timed(awaitable, worker, began)
    if returned is not None and inspect.isawaitable(returned):
        if isinstance(returned, Coroutine):
            returned.close()
        raise HandlerMisbehaved(
            f"the handler of {context.kind} returned a call that it did not await: the work was not done"
        )
    return returned


@coroutine
def _timed(work: Coroutine[Any, Any, Any], worker: JobWorker, began: float) -> Generator[Any, Any, Any]:
    """Drive a coroutine and time each step between two awaits: in one step nothing else in this process runs."""
    stopwatch = worker.environment.clock.stopwatch
    send: Any = None
    error: BaseException | None = None
    has_waited = False
    while True:
        try:
            trap = work.send(send) if error is None else work.throw(error)
        except StopIteration as stop:
            return stop.value
        finally:
            took_s = stopwatch() - began
            if took_s > worker.block_s:
                worker.blocked(took_s)
        if not has_waited:
            has_waited = True
            worker.waits()
        error = send = None
        try:
            send = yield trap
        except BaseException as thrown:  # noqa: BLE001 - whatever trio throws in, above all cancellation, is the handler's
            error = thrown
        began = stopwatch()


def _was_stopped(running: RunningJob, error: BaseException | None) -> bool:
    """Whether a handler that was cancelled obeyed; it may have come to its end all the same."""
    return running.scope.cancelled_caught or error is not None


def is_left_open(task: trio.lowlevel.Task, scope: trio.CancelScope) -> bool:
    """Whether `scope`, entered by `task`, is not the innermost one: a generator that was dropped half-way holds another."""
    return task._cancel_status is not scope._cancel_status  # noqa: SLF001 - there is no public word for it


def abandon_scope(task: trio.lowlevel.Task) -> None:
    """Let a task end quietly in which nurseries were left open. What runs in them is cancelled with the scope around."""
    task._child_nurseries.clear()  # noqa: SLF001 - otherwise its end would be a crash
