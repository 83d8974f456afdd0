"""What a service tells of itself: EventBus (emit, listeners, bounded event streams) and ServiceMonitor (its state)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import trio
from attrs import frozen

from cormorant.rules.events import Event, EventsLost, ListenerFailed, Stamped
from cormorant.rules.ports import Clock, Listener
from cormorant.rules.supervision import ChildView

STREAM_SIZE = 1_000


class EventBus:
    """Stamps events and passes them on, synchronously and in order."""

    def __init__(self, clock: Clock, listeners: Iterable[Listener] = ()) -> None:
        self._clock = clock
        # Replaced, never changed: it may be gone through just now.
        self._listeners = tuple(listeners)
        self._streams: list[EventStream] = []
        self._untold: deque[Stamped] = deque()
        self._is_telling = False
        self._sequence = 0
        self._closed = False

    def emit(self, event: Event) -> None:
        """Tell everyone. Never waits, never raises. What a listener emits comes after what it listens to."""
        self._sequence += 1
        if not self._listeners:
            return
        stamped = Stamped(self._sequence, self._clock.now(), event)
        if self._is_telling:
            self._untold.append(stamped)
            return
        self._is_telling = True
        try:
            self._tell(stamped)
            while self._untold:
                self._tell(self._untold.popleft())
        finally:
            self._is_telling = False

    def _tell(self, stamped: Stamped) -> None:
        for listener in self._listeners:
            try:
                listener(stamped)
            except Exception as error:  # foreign code: it must not bring down whoever emits
                self._leave_out(listener)
                self.emit(ListenerFailed(listener=repr(listener), error=error))

    def _leave_out(self, listener: Listener) -> None:
        self._listeners = tuple(each for each in self._listeners if each != listener)

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every event from now on, in line. One that raises is not called again."""
        self._listeners = (*self._listeners, listener)

    def stream(self, size: int = STREAM_SIZE) -> EventStream:
        """A reader with a ring of its own."""
        stream = EventStream(size, self)
        if self._closed:
            stream.end()
        else:
            self._streams.append(stream)
            self._listeners = (*self._listeners, stream.put)
        return stream

    def close(self) -> None:
        """No more events: readers see what they have not read yet, and then the end."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.end()

    def leave(self, stream: EventStream) -> None:
        """A stream is read no more."""
        if stream in self._streams:
            self._streams.remove(stream)
            self._leave_out(stream.put)


class EventStream:
    """An object to iterate over. A slow reader loses the oldest events and is told how many by `EventsLost`."""

    def __init__(self, size: int, bus: EventBus) -> None:
        self._send, self._receive = trio.open_memory_channel[Stamped](size)
        self._bus = bus
        self._lost = 0
        self._held: Stamped | None = None

    def put(self, stamped: Stamped) -> None:
        """Take in one event, dropping the oldest when the ring is full."""
        try:
            self._send.send_nowait(stamped)
        except trio.WouldBlock:
            self._receive.receive_nowait()
            self._lost += 1
            self._send.send_nowait(stamped)

    def end(self) -> None:
        """There will be no more."""
        self._bus.leave(self)
        self._send.close()

    async def aclose(self) -> None:
        """Stop reading."""
        self._bus.leave(self)
        self._receive.close()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Stamped:
        if self._held is not None:
            stamped, self._held = self._held, None
            return stamped
        try:
            stamped = await self._receive.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise StopAsyncIteration from None
        if self._lost:
            self._held = stamped
            stamped = Stamped(stamped.sequence - 1, stamped.at, EventsLost(count=self._lost))
            self._lost = 0
        return stamped


@frozen(kw_only=True)
class ServiceMonitor:
    """The state of a service for those that show it. The service itself is in a higher layer."""

    is_ready: Callable[[], bool]
    children: Callable[[], Sequence[ChildView]]
    """The children of the root, with their own children."""
