"""Actor, Address (a mailbox that outlives its actor), Reply and ServedActor: how actors exchange messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_args, get_origin

import trio
from attrs import define, field, frozen
from typing_extensions import get_original_bases

from cormorant.rules.errors import (
    ActorCrashed,
    ActorError,
    ActorGone,
    AskTimedOut,
    MailboxFull,
    NotAnswered,
    UnknownMessage,
    WaitForbidden,
)
from cormorant.rules.events import MessageLost
from cormorant.rules.ports import Emit, ignore
from cormorant.rules.supervision import Place, may_wait_for

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
T = TypeVar("T")

serving: ContextVar[Address[Any] | None] = ContextVar("serving", default=None)
"""The actor that the current task belongs to. Tasks in an actor's nursery inherit it."""


class Ask(Protocol[T, M_co]):
    """Makes a message that carries the given reply: a message class, or a `partial` of one."""

    def __call__(self, *, reply: Reply[T]) -> M_co:
        """The message to send."""
        ...


class Actor(Generic[M]):
    """One role: handles its messages one at a time, in the order they came. `M` is the union of their classes.

    Set `wake_at` (trio's time) and `wake` is called then: one timer for the earliest deadline, however many items wait.
    Tasks that belong to the actor go into `nursery`; when one of them crashes, the actor does.
    """

    messages: ClassVar[tuple[type, ...]] = ()
    """The classes of the messages that it takes."""
    address: Address[M]
    """Where its messages come from."""
    nursery: trio.Nursery
    _wake_at: float = math.inf
    _idle: trio.CancelScope | None = None
    """The scope in which it waits for a message, until `wake_at`."""
    _is_parked: bool = False
    """Whether it waits for a message without an end."""

    def __init_subclass__(cls) -> None:
        """Take down the classes of messages that the bases of the class name. A base that has them names something else."""
        for base in get_original_bases(cls):
            named = [each for each in get_args(base) if not isinstance(each, TypeVar)]
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Actor) and named and not origin.messages:
                cls.messages = tuple(each for union in named for each in get_args(union) or (union,))

    @property
    def wake_at(self) -> float:
        """When `wake` is called next. It may be set by the actor's tasks, too."""
        return self._wake_at

    @wake_at.setter
    def wake_at(self, time: float) -> None:
        self._wake_at = time
        if self._is_parked:
            self.address._nudge()
        elif self._idle is not None:
            self._idle.deadline = time

    @property
    def due_at(self) -> float:
        """When it does something by itself next, for people to see."""
        return self._wake_at

    async def begin(self) -> None:
        """Prepare. The start is acknowledged when this returns."""

    async def handle(self, message: M) -> None:
        """Do what one message says."""
        raise UnknownMessage(self.address.name, type(message).__name__)

    async def wake(self) -> None:
        """Do what is due at `wake_at`, and set the next time."""
        self.wake_at = math.inf

    async def end(self) -> None:
        """Tidy up after the last message of an orderly stop, within the grace."""


@frozen
class Recheck:
    """Command: look again at what is due, because the database or the clock may have changed. Coalesced."""

    def lost(self, error: ActorError) -> None:
        """The actor that is started next looks anyway."""


@frozen
class StopServing:
    """Command: take no more connections, because the service begins to stop."""

    def lost(self, error: ActorError) -> None:
        """A server that is gone takes none."""


@frozen
class _Envelope(Generic[M]):
    message: M
    reply: Reply[Any] | None


@define(eq=False)
class Address(Generic[M]):
    """Where messages for one role go. It outlives crashes and restarts of the actor behind it.

    A message is handled at most once. A message that was being handled when its actor crashed is not handled again: an ask
    gets `ActorCrashed`. A tell becomes the event `actor.message_lost`, or its method `lost` is called with the error. While
    the actor restarts, messages wait.
    """

    name: str
    capacity: int = 64
    emit: Emit = ignore
    place: Place | None = field(init=False, default=None)
    """Where in its tree its actor is started; None: in no tree."""
    _send: trio.MemorySendChannel[_Envelope[M] | None] = field(init=False)
    _receive: trio.MemoryReceiveChannel[_Envelope[M] | None] = field(init=False)
    """Invariant: a None is never buffered. It wakes an actor that waits, and says nothing."""
    _gone: bool = field(init=False, default=False)
    _messages: tuple[type, ...] = field(init=False, default=())
    _server: trio.lowlevel.Task | None = field(init=False, default=None)
    _unanswered: dict[int, Reply[Any]] = field(init=False, factory=dict)
    _unread: int = field(init=False, default=0)
    """At least as many messages as are unread: one whose sender waits for room counts, too."""
    _current: _Envelope[M] | None = field(init=False, default=None)
    """The message that is being handled."""
    _unread_once: set[type] = field(init=False, factory=set)
    """The classes of messages that were sent by `tell_once` and are not read yet."""

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
        self._unread += 1

    def tell_once(self, message: M) -> None:
        """Send unless a message of this class is unread: any number of them count as one. Never raises.

        For messages that say "look again". An actor that is gone has nothing to look at, and one whose mailbox is full decides
        anew after each of those messages.
        """
        if type(message) in self._unread_once:
            return
        with suppress(ActorGone, MailboxFull):
            self.tell_nowait(message)
            self._unread_once.add(type(message))

    def take_nowait(self) -> M | None:
        """The next message that is still wanted; None: there is none. For the actor of this address alone.

        The message that was taken before counts as handled.
        """
        self._note_handled()
        while self._unread:  # usually there is none, and asking the channel costs more
            try:
                envelope = self._receive.receive_nowait()
            except trio.WouldBlock:
                break
            if envelope is not None and self._take(envelope):
                return envelope.message
        return None

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

    def served_by(self, make: Callable[[], Actor[M]], *, on_gone: Callable[[], None] | None = None) -> ServedActor[M]:
        """A child for a supervisor. Each start makes a fresh actor, so that no state survives a crash.

        `on_gone` ends what belongs to the address once no other actor will be started.
        """
        return ServedActor(self, make, on_gone)

    @property
    def is_served(self) -> bool:
        """Whether an actor handles its messages now; otherwise it is being started or restarted, or is gone."""
        return self._server is not None

    def waiting(self) -> int:
        """How many messages wait to be handled."""
        return self._receive.statistics().current_buffer_used

    async def _post(self, envelope: _Envelope[M]) -> None:
        self._check_wait()
        self._unread += 1  # before it may be read
        is_sent = False
        try:
            await self._send.send(envelope)
            is_sent = True
        except trio.BrokenResourceError:
            raise ActorGone(self.name) from None
        finally:
            self._unread -= not is_sent

    async def _post_question(self, envelope: _Envelope[M]) -> None:
        """As `_post`, without giving way when there is room: the asker waits for the answer next."""
        self._check_wait()
        try:
            self._send.send_nowait(envelope)
        except trio.WouldBlock:
            await self._post(envelope)
        except trio.BrokenResourceError:
            raise ActorGone(self.name) from None
        else:
            self._unread += 1

    def _nudge(self) -> None:
        """Let an actor that waits for a message look at what else it has to do. One that does not wait looks anyway."""
        if self._send.statistics().tasks_waiting_receive:
            self._send.send_nowait(None)

    def _check_wait(self) -> None:
        waiter = serving.get()
        if waiter is self or (waiter is not None and not may_wait_for(waiter.place, self.place)):
            raise WaitForbidden(waiter.name, self.name)

    def _open(self) -> None:
        self._send, self._receive = trio.open_memory_channel[_Envelope[M] | None](self.capacity)
        self._gone, self._unread = False, 0

    def _reopen(self) -> None:
        """A new incarnation begins: it knows nothing of the promises of the one before."""
        self._break_promises(ActorCrashed, None)
        if self._gone:  # given up before, and started anew with its supervisor
            self._open()

    def _take(self, envelope: _Envelope[M]) -> bool:
        """Whether the message is still wanted; from now on a crash is its asker's business."""
        self._unread -= 1
        self._unread_once.discard(type(envelope.message))
        reply = envelope.reply
        if reply is not None and reply.abandoned:
            return False
        if not isinstance(envelope.message, self._messages):
            self._refuse(
                envelope, UnknownMessage(self.name, type(envelope.message).__name__), "it takes no such message"
            )
            return False
        self._current = envelope
        if reply is not None:
            self._unanswered[id(reply)] = reply
        return True

    def _note_handled(self) -> None:
        """The current message was handled. A question has its answer by now, unless the actor has deferred it."""
        envelope, self._current = self._current, None
        reply = None if envelope is None else envelope.reply
        if envelope is not None and reply is not None and not reply.settled and not reply.is_deferred:
            reply.refuse(NotAnswered(self.name, type(envelope.message).__name__))

    def _settled(self, reply: Reply[Any]) -> None:
        self._unanswered.pop(id(reply), None)

    def _ended(self, error: BaseException | None) -> None:
        """Tell everyone who waits for the incarnation that has just ended.

        After an orderly end it shows later whether another follows, or the actor is gone.
        """
        in_hand, self._current = self._current, None
        if in_hand is not None and in_hand.reply is None:
            why = "its actor crashed" if isinstance(error, Exception) else "its actor was cancelled"
            self._lose(in_hand.message, ActorCrashed(self.name), why)
        if error is not None:
            self._break_promises(ActorCrashed, error)

    def _break_promises(self, refusal: type[ActorCrashed | ActorGone], cause: BaseException | None) -> None:
        for reply in list(self._unanswered.values()):
            error = refusal(self.name)
            error.__cause__ = cause
            reply.refuse(error)

    def _close(self) -> None:
        """The actor is gone for good: refuse what waits for it."""
        self._break_promises(ActorGone, None)
        while not self._gone:
            try:
                envelope = self._receive.receive_nowait()
            except trio.WouldBlock:
                break
            if envelope is not None:
                self._refuse(envelope, ActorGone(self.name), "its actor is gone")
        self._gone = True
        self._unread = 0
        self._unread_once.clear()
        self._receive.close()

    def _refuse(self, envelope: _Envelope[M], error: ActorError, why: str) -> None:
        if envelope.reply is not None:
            envelope.reply.refuse(error)
        else:
            self._lose(envelope.message, error, why)

    def _lose(self, message: M, error: ActorError, why: str) -> None:
        """A message will not be handled. One that has a method `lost` deals with it; the others become an event."""
        lost: Callable[[ActorError], None] | None = getattr(message, "lost", None)
        if lost is not None:
            lost(error)
        else:
            self.emit(MessageLost(actor=self.name, message=type(message).__name__, why=why))


class ServedActor(Generic[M]):
    """An address with someone to serve it: a child that a supervisor can start, ask to stop, and start again."""

    def __init__(
        self, address: Address[M], make: Callable[[], Actor[M]], on_gone: Callable[[], None] | None = None
    ) -> None:
        self._address = address
        self._make = make
        self._on_gone = on_gone
        self._stopping = False

    async def __call__(self, *, task_status: trio.TaskStatus[Address[M]] = trio.TASK_STATUS_IGNORED) -> None:
        """Run one incarnation until it is stopped or crashes."""
        self._stopping = False
        self._address._reopen()
        serving.set(self._address)
        error: BaseException | None = None
        try:
            await self._live(self._make(), task_status)
        except BaseException as ending:
            error = ending
            raise
        finally:
            self._address._server = None
            self._address._ended(error)

    def stop(self) -> None:
        """Finish the current message, then end. What is unread stays in the mailbox."""
        self._stopping = True
        self._address._nudge()

    def placed(self, place: Place) -> None:
        """Take down where in its tree the actor is started."""
        self._address.place = place

    def gone(self) -> None:
        """There will be no other incarnation: refuse what waits."""
        self._address._close()
        if self._on_gone is not None:
            self._on_gone()

    async def _live(self, actor: Actor[M], task_status: trio.TaskStatus[Address[M]]) -> None:
        async with trio.open_nursery() as nursery:
            actor.nursery, actor.address = nursery, self._address
            self._address._messages = actor.messages
            await actor.begin()
            self._address._server = trio.lowlevel.current_task()
            task_status.started(self._address)
            await self._serve(actor)
            await actor.end()
            nursery.cancel_scope.cancel()

    async def _serve(self, actor: Actor[M]) -> None:
        while not self._stopping:
            if actor.wake_at != math.inf and actor.wake_at <= trio.current_time():
                await actor.wake()
                await trio.lowlevel.checkpoint()
                continue
            envelope = await self._next(actor)
            if envelope is not None and self._address._take(envelope):
                await actor.handle(envelope.message)
                self._address._note_handled()

    async def _next(self, actor: Actor[M]) -> _Envelope[M] | None:
        if actor.wake_at == math.inf:
            actor._idle, actor._is_parked = None, True
            try:
                return await self._address._receive.receive()
            finally:
                actor._is_parked = False
        # As `receive` does it. Only an actor that waits until some time needs a scope: it costs as much as a message.
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            envelope = self._address._receive.receive_nowait()
        except trio.WouldBlock:
            pass
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return envelope
        with trio.CancelScope(deadline=actor.wake_at) as actor._idle:
            return await self._address._receive.receive()
        return None


class Reply(Generic[T]):
    """A one-shot answer: synchronous, never waits, the first one wins."""

    __slots__ = ("_answer", "_error", "_on_settled", "_settled", "abandoned", "is_deferred")

    def __init__(self, on_settled: Callable[[Reply[Any]], None] | None = None) -> None:
        self._settled = trio.Event()
        self._answer: T | None = None
        self._error: BaseException | None = None
        self._on_settled = on_settled
        self.abandoned = False
        """The asker has left."""
        self.is_deferred = False
        """Whether the answer may come after the message was handled."""

    def defer(self) -> None:
        """Answer later. A crash of the actor refuses it, and so does its end."""
        self.is_deferred = True

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
