"""The log writer: one line per event from a bounded ring.

`python -m cormorant.log > docs/events.md` writes the reference of all events.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC
from types import TracebackType
from typing import Any, Self, TextIO

import attrs

from cormorant.rules.errors import trace_of
from cormorant.rules.events import Event, EventsLost, Stamped, fields_of
from cormorant.rules.secrets import Secret, redact_secrets
from cormorant.rules.settings.settings import LogSettings

__all__ = ["LogWriter", "line_of", "renderer_of"]

Renderer = Callable[[dict[str, Any]], str]

_RANK = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_BATCH_MAX = 500
_DECIMALS = 6


class LogWriter:
    """A listener of events that writes them as lines. Calling it never waits for the stream and never raises.

    Without a stream, as a process has none whose standard error is closed, the lines go nowhere.
    """

    def __init__(
        self, settings: LogSettings, *, stream: TextIO | None, secrets: Iterable[Secret] = (), drain_s: float = 2.0
    ) -> None:
        self._settings = settings
        self._stream = stream
        self._secrets = tuple(secrets)
        self._drain_s = drain_s
        self._least = _RANK[settings.level]
        self._ring: deque[Stamped] = deque()
        self._lock = threading.Lock()  # guards ring and count; held for microseconds, never while writing
        self._lost = 0
        self._waiting = threading.Event()
        self._closing = False
        # A daemon: a stream that takes nothing more must not keep the process alive.
        self._thread = threading.Thread(target=self._write_until_closed, name="log", daemon=True)

    def __call__(self, stamped: Stamped) -> None:
        """Take an event. When the ring is full the oldest makes room and is counted as lost."""
        if self._closing or _RANK.get(stamped.event.level, 0) < self._least:
            return
        with self._lock:
            if len(self._ring) >= self._settings.ring:
                self._ring.popleft()
                self._lost += 1
            self._ring.append(stamped)
        self._waiting.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self, within_s: float | None = None) -> None:
        """Take no more, and write what is left for a bounded time."""
        self._closing = True
        self._waiting.set()
        self._thread.join(self._drain_s if within_s is None else within_s)

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left to write after the end."""
        return not self._thread.is_alive()

    def _write_until_closed(self) -> None:
        render = renderer_of(self._settings.format)
        closing = False
        while not closing:
            self._waiting.wait()
            self._waiting.clear()
            closing = self._closing  # before the ring is emptied: nothing comes after it was set
            while batch := self._taken():
                self._write("".join(f"{self._line(stamped, render)}\n" for stamped in batch))

    def _taken(self) -> list[Stamped]:
        with self._lock:
            batch = [self._ring.popleft() for _ in range(min(len(self._ring), _BATCH_MAX))]
            # Told only together with an event: a stream that fails would lose the telling for ever.
            if batch and self._lost:
                batch.insert(0, Stamped(0, batch[0].at, EventsLost(count=self._lost)))
                self._lost = 0
        return batch

    def _line(self, stamped: Stamped, render: Renderer) -> str:
        try:
            return line_of(stamped, render, self._secrets)
        except Exception as error:  # noqa: BLE001  # the text of a foreign error may itself fail; the log goes on
            return render(_head(stamped) | {"unreadable": type(error).__name__})

    def _write(self, lines: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(lines)
            self._stream.flush()
        except (OSError, ValueError):
            # A full disk or a closed stream. It may come back, and there is nobody to tell.
            with self._lock:
                self._lost += lines.count("\n")


def line_of(stamped: Stamped, render: Renderer, secrets: Iterable[Secret] = ()) -> str:
    """One event as one line: time, level, name, then its facts; last, if it tells of an error, where that was raised."""
    facts = {name: _fact(value, secrets) for name, value in fields_of(stamped.event).items()}
    return render(_head(stamped) | facts | _trace(stamped.event, secrets))


def _trace(event: Event, secrets: Iterable[Secret]) -> dict[str, str]:
    values = [getattr(event, field.name) for field in attrs.fields(type(event))]
    raised = [trace_of(value, secrets) for value in values if isinstance(value, BaseException) and value.__traceback__]
    text = "\n".join([*raised, redact_secrets(getattr(event, "traceback", ""), secrets)]).rstrip()
    return {"trace": _printable(text)} if text else {}


def renderer_of(form: str) -> Renderer:
    """The renderer for a form of log, `logfmt` or `json`. Loading structlog takes 0.1 s, so the writing thread does it."""
    from structlog.processors import JSONRenderer, LogfmtRenderer  # noqa: PLC0415  # see above

    if form == "json":
        to_json = JSONRenderer(ensure_ascii=False)
        return lambda facts: str(to_json(None, "", facts))
    to_logfmt = LogfmtRenderer(bool_as_flag=False)
    return lambda facts: to_logfmt(None, "", {name: _flat(value) for name, value in facts.items()})


def _head(stamped: Stamped) -> dict[str, Any]:
    at = stamped.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"ts": at, "level": stamped.event.level, "event": stamped.event.name}


def _fact(value: object, secrets: Iterable[Secret]) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return round(value, _DECIMALS)
    if isinstance(value, tuple | list):
        return [_fact(each, secrets) for each in value]
    return _printable(redact_secrets(str(value), secrets))


def _flat(value: object) -> object:
    return ",".join(str(each) for each in value) if isinstance(value, list) else value


def _printable(text: str) -> str:
    """Text without what could move a terminal's cursor or end the line; the renderers escape the newline themselves."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


if __name__ == "__main__":
    from cormorant.reference import events_reference

    print(events_reference(), end="")  # noqa: T201  # printing is what this is for
