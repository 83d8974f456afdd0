"""Actor, Address (a mailbox that outlives its actor), Reply and ServedActor: how actors exchange messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

import trio
from attrs import define, field, frozen

from cormorant.rules.errors import ActorCrashed, ActorGone, AskTimedOut, MailboxFull, WaitForbidden
from cormorant.rules.events import MessageLost
from cormorant.rules.ports import Emit, ignore
from cormorant.rules.supervision import may_wait_for

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
T = TypeVar("T")

serving: ContextVar[str | None] = ContextVar("serving", default=None)
"""The actor that the current task belongs to. Tasks in an actor's nursery inherit it."""


class Ask(Protocol[T, M_co]):
    """Makes a message that carries the given reply: a message class, or a `partial` of one."""

    def __call__(self, *, reply: Reply[T]) -> M_co:
        """The message to send."""
        ...


class Actor(Generic[M]):
    """One role: handles its messages one at a time, in the order they came.

    Set `wake_at` (trio's time) and `wake` is called then: one timer for the earliest deadline, however many items wait.
    Tasks that belong to the actor go into `nursery`; when one of them crashes, the actor does.
    """

    nursery: trio.Nursery
    _wake_at: float = math.inf
    _idle: trio.CancelScope | None = None

    @property
    def wake_at(self) -> float:
        """When `wake` is called next. It may be set by the actor's tasks, too."""
        return self._wake_at

    @wake_at.setter
    def wake_at(self, time: float) -> None:
        self._wake_at = time
        if self._idle is not None:
            self._idle.deadline = time

    @property
    def due_at(self) -> float:
        """When it does something by itself next, for people to see."""
        return self._wake_at

    async def begin(self) -> None:
        """Prepare. The start is acknowledged when this returns."""

    async def handle(self, message: M) -> None:
        """Do what one message says."""
        raise TypeError(f"{type(self).__name__} has no handle(), so it cannot take {type(message).__name__}")

    async def wake(self) -> None:
        """Do what is due at `wake_at`, and set the next time."""
        self.wake_at = math.inf

    async def end(self) -> None:
        """Tidy up after the last message of an orderly stop, within the grace."""


@frozen
class _Envelope(Generic[M]):
    message: M
    reply: Reply[Any] | None


@define(eq=False)
class Address(Generic[M]):
    """Where messages for one role go. It outlives crashes and restarts of the actor behind it.

    A message is handled at most once. One that was in hand when its actor crashed is not handled again: an ask gets
    `ActorCrashed`, a tell becomes the event `actor.message_lost`. While nobody serves the address, messages wait.
    """

    name: str
    capacity: int = 64
    emit: Emit = ignore
    _send: trio.MemorySendChannel[_Envelope[M]] = field(init=False)
    _receive: trio.MemoryReceiveChannel[_Envelope[M]] = field(init=False)
    _gone: bool = field(init=False, default=False)
    _server: trio.lowlevel.Task | None = field(init=False, default=None)
    _unanswered: dict[int, Reply[Any]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._open()

    async def tell(self, message: M) -> None:
        """Send, waiting while the mailbox is full. What an actor tells itself never waits."""
        if trio.lowlevel.current_task() is self._server:
            self.tell_nowait(message)
            await trio.lowlevel.checkpoint()
        else:
            await self._post(_Envelope(message, None))

    def tell_nowait(self, message: M) -> None:
        """Send, or raise `MailboxFull`."""
        try:
            self._send.send_nowait(_Envelope(message, None))
        except trio.WouldBlock:
            raise MailboxFull(self.name, self.capacity) from None
        except trio.BrokenResourceError:
            raise ActorGone(self.name) from None

    async def ask(self, question: Ask[T, M], *, timeout_s: float = math.inf) -> T:
        """Send a message that carries a reply, and wait for the answer.

        A question that was not read yet is withdrawn when the asker is cancelled or out of time.
        """
        reply: Reply[T] = Reply(self._settled)
        if timeout_s == math.inf:
            await trio.lowlevel.checkpoint_if_cancelled()
            await self._post_question(_Envelope(question(reply=reply), reply))
            return await reply.wait()
        with trio.move_on_after(timeout_s):
            await self._post(_Envelope(question(reply=reply), reply))
            return await reply.wait()
        raise AskTimedOut(self.name, timeout_s)

    def served_by(self, make: Callable[[], Actor[M]]) -> ServedActor[M]:
        """A child for a supervisor. Each start makes a fresh actor, so that no state survives a crash."""
        return ServedActor(self, make)

    def waiting(self) -> int:
        """How many messages wait to be handled."""
        return self._receive.statistics().current_buffer_used

    async def _post(self, envelope: _Envelope[M]) -> None:
        waiter = serving.get()
        if trio.lowlevel.current_task() is self._server or (waiter and not may_wait_for(waiter, self.name)):
            raise WaitForbidden(waiter or self.name, self.name)
        try:
            await self._send.send(envelope)
        except trio.BrokenResourceError:
            raise ActorGone(self.name) from None

    async def _post_question(self, envelope: _Envelope[M]) -> None:
        """As `_post`, without giving way when there is room: the asker waits for the answer next."""
        waiter = serving.get()
        if trio.lowlevel.current_task() is self._server or (waiter and not may_wait_for(waiter, self.name)):
            raise WaitForbidden(waiter or self.name, self.name)
        try:
            self._send.send_nowait(envelope)
        except trio.WouldBlock:
            await self._post(envelope)
        except trio.BrokenResourceError:
            raise ActorGone(self.name) from None

    def _open(self) -> None:
        self._send, self._receive = trio.open_memory_channel[_Envelope[M]](self.capacity)
        self._gone = False

    def _reopen(self) -> None:
        """A new incarnation begins: it knows nothing of the promises of the one before."""
        self._break_promises(ActorCrashed, None)
        if self._gone:  # given up before, and started anew with its supervisor
            self._open()

    def _take(self, envelope: _Envelope[M]) -> bool:
        """Whether the message is still wanted; from now on a crash is its asker's business."""
        reply = envelope.reply
        if reply is None:
            return True
        if reply.abandoned:
            return False
        self._unanswered[id(reply)] = reply
        return True

    def _settled(self, reply: Reply[Any]) -> None:
        self._unanswered.pop(id(reply), None)

    def _ended(self, in_hand: _Envelope[M] | None, error: BaseException | None) -> None:
        """Tell everyone who waits for the incarnation that has just ended.

        After an orderly end it shows later whether another follows, or the actor is gone.
        """
        if in_hand is not None and in_hand.reply is None:
            why = "its actor crashed" if isinstance(error, Exception) else "its actor was cancelled"
            self._report_lost(in_hand.message, why)
        if error is not None:
            self._break_promises(ActorCrashed, error)

    def _break_promises(self, refusal: type[ActorCrashed | ActorGone], cause: BaseException | None) -> None:
        for reply in list(self._unanswered.values()):
            error = refusal(self.name)
            error.__cause__ = cause
            reply.refuse(error)

    def _close(self) -> None:
        """The actor is gone for good: nobody may wait for it."""
        self._break_promises(ActorGone, None)
        while not self._gone:
            try:
                envelope = self._receive.receive_nowait()
            except trio.WouldBlock:
                break
            if envelope.reply is not None:
                envelope.reply.refuse(ActorGone(self.name))
            else:
                self._report_lost(envelope.message, "its actor is gone")
        self._gone = True
        self._receive.close()

    def _report_lost(self, message: M, why: str) -> None:
        self.emit(MessageLost(actor=self.name, message=type(message).__name__, why=why))


class ServedActor(Generic[M]):
    """An address with someone to serve it: a child that a supervisor can start, ask to stop, and start again."""

    def __init__(self, address: Address[M], make: Callable[[], Actor[M]]) -> None:
        self._address = address
        self._make = make
        self._stopping = False
        self._idle: trio.CancelScope | None = None
        self._in_hand: _Envelope[M] | None = None

    async def __call__(self, *, task_status: trio.TaskStatus[Address[M]] = trio.TASK_STATUS_IGNORED) -> None:
        """Run one incarnation until it is stopped or crashes."""
        self._stopping = False
        self._address._reopen()
        serving.set(self._address.name)
        error: BaseException | None = None
        try:
            await self._live(self._make(), task_status)
        except BaseException as ending:
            error = ending
            raise
        finally:
            self._address._server = None
            self._address._ended(self._in_hand, error)
            self._in_hand = None

    def stop(self) -> None:
        """Finish the message in hand, then end. What is unread stays in the mailbox."""
        self._stopping = True
        if self._idle is not None:
            self._idle.cancel()

    def gone(self) -> None:
        """There will be no other incarnation: refuse what waits."""
        self._address._close()

    async def _live(self, actor: Actor[M], task_status: trio.TaskStatus[Address[M]]) -> None:
        async with trio.open_nursery() as nursery:
            actor.nursery = nursery
            await actor.begin()
            self._address._server = trio.lowlevel.current_task()
            task_status.started(self._address)
            await self._serve(actor)
            await actor.end()
            nursery.cancel_scope.cancel()

    async def _serve(self, actor: Actor[M]) -> None:
        while not self._stopping:
            if actor.wake_at <= trio.current_time():
                await actor.wake()
                await trio.lowlevel.checkpoint()
                continue
            envelope = await self._next(actor)
            if envelope is not None and self._address._take(envelope):
                self._in_hand = envelope
                await actor.handle(envelope.message)
                self._in_hand = None

    async def _next(self, actor: Actor[M]) -> _Envelope[M] | None:
        # As `receive` does it. Only who has to wait for a message needs a scope, by which it can be called off.
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            envelope = self._address._receive.receive_nowait()
        except trio.WouldBlock:
            pass
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return envelope
        with trio.CancelScope(deadline=actor.wake_at) as self._idle:
            actor._idle = self._idle
            return await self._address._receive.receive()
        return None


class Reply(Generic[T]):
    """A one-shot answer: synchronous, never waits, the first one wins."""

    __slots__ = ("_answer", "_error", "_on_settled", "_settled", "abandoned")

    def __init__(self, on_settled: Callable[[Reply[Any]], None] | None = None) -> None:
        self._settled = trio.Event()
        self._answer: T | None = None
        self._error: BaseException | None = None
        self._on_settled = on_settled
        self.abandoned = False
        """Nobody waits for it any more."""

    @property
    def settled(self) -> bool:
        """Whether it has been answered or refused."""
        return self._settled.is_set()

    def answer(self, value: T) -> None:
        """Give the answer."""
        if not self.settled:
            self._answer = value
            self._settle()

    def refuse(self, error: BaseException) -> None:
        """Let the asker's call raise `error`."""
        if not self.settled:
            self._error = error
            self._settle()

    def _settle(self) -> None:
        self._settled.set()
        if self._on_settled is not None:
            self._on_settled(self)

    async def wait(self) -> T:
        """The answer, or the error it was refused with."""
        try:
            await self._settled.wait()
        except trio.Cancelled:
            # Settled in the same tick: who answered counts on its being heard. The cancellation comes at the next step.
            if not self.settled:
                self.abandoned = True
                raise
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]  # settled without an error: `answer` has set it
