"""The log: what a line looks like, that it never holds anybody up, and that it tells what it lost."""

from __future__ import annotations

import io
import json
import threading
from datetime import UTC, datetime
from typing import ClassVar

import attrs
import pytest
import structlog.processors  # noqa: F401  # loaded here, so that no single test waits for it
from attrs import frozen
from typing_extensions import override

from cormorant.log import LogWriter
from cormorant.reference import all_events
from cormorant.rules.events import ChildCrashed, ChildStarted, Event, Stamped, StorageLost, SupervisorStopped
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.settings import LogSettings
from tests.bounds import WAIT_S

AT = datetime(2026, 11, 16, 2, 13, 1, 123_456, tzinfo=UTC)


@frozen(kw_only=True)
class Whispered(Event):
    """An event below the usual level."""

    name: ClassVar[str] = "test.whispered"
    level: ClassVar[str] = "debug"


class UnspeakableError(Exception):
    """An error whose text fails."""

    @override
    def __str__(self) -> str:
        raise RuntimeError


class StuckStream(io.StringIO):
    """A stream that takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.released = threading.Event()

    @override
    def write(self, text: str, /) -> int:
        self.asked.set()
        assert self.released.wait(WAIT_S)
        return super().write(text)


class FailingStream(io.StringIO):
    """A disk that is full for the first write."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = threading.Event()

    @override
    def write(self, text: str, /) -> int:
        if self.failed.is_set():
            return super().write(text)
        self.failed.set()
        raise OSError(28, "No space left on device")


def stamped(event: Event) -> Stamped:
    return Stamped(1, AT, event)


def started(child: str) -> Stamped:
    return stamped(ChildStarted(supervisor="root", child=child, restarts=0))


def written(*events: Event, settings: LogSettings | None = None, secrets: tuple[Secret, ...] = ()) -> list[str]:
    stream = io.StringIO()
    with LogWriter(settings or LogSettings(), stream=stream, secrets=secrets) as log:
        for event in events:
            log(stamped(event))
    return stream.getvalue().splitlines()


def test_an_event_is_one_line_of_logfmt() -> None:
    lines = written(
        ChildStarted(supervisor="root", child="storage", restarts=0),
        SupervisorStopped(supervisor="root", took_s=0.1 + 0.2, forced=("web", "jobs")),
    )

    assert lines == [
        "ts=2026-11-16T02:13:01.123Z level=info event=child.started supervisor=root child=storage restarts=0",
        "ts=2026-11-16T02:13:01.123Z level=info event=supervisor.stopped supervisor=root took_s=0.3 forced=web,jobs",
    ]


def test_an_event_is_one_object_of_json() -> None:
    event = SupervisorStopped(supervisor="röot", took_s=0.1 + 0.2, forced=("web",))

    lines = written(event, settings=LogSettings(format="json"))

    head = {"ts": "2026-11-16T02:13:01.123Z", "level": "info", "event": "supervisor.stopped"}
    assert [json.loads(line) for line in lines] == [head | {"supervisor": "röot", "took_s": 0.3, "forced": ["web"]}]


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_newlines_and_terminal_codes_are_escaped(form: str) -> None:
    event = StorageLost(error="one\ntwo\r\x1b[31mred\u2028three\ud800")

    lines = written(event, settings=LogSettings(format=form))

    assert len(lines) == 1
    assert lines[0].isprintable()


def test_secrets_and_passwords_never_get_into_the_log() -> None:
    error = ValueError("postgresql://me:letmein@db/x refused, key hunter2 and password=swordfish")
    event = ChildCrashed(supervisor="root", child="web", error=error, ran_s=1.0, restart_in_s=None)

    line = written(event, secrets=(Secret("hunter2"),))[0]

    assert "postgresql://me:***@db/x refused, key *** and password=***" in line
    assert not any(secret in line for secret in ("letmein", "hunter2", "swordfish"))


def test_events_below_the_level_are_not_written() -> None:
    whisper, shout = Whispered(), StorageLost(error="gone")

    assert written(whisper, settings=LogSettings(level="info")) == []
    assert len(written(whisper, shout, settings=LogSettings(level="debug"))) == 2
    assert len(written(whisper, shout, settings=LogSettings(level="error"))) == 1


def test_a_slow_stream_costs_the_oldest_events_and_a_line_says_how_many() -> None:
    stream = StuckStream()
    with LogWriter(LogSettings(ring=3), stream=stream) as log:
        log(started("first"))
        assert stream.asked.wait(WAIT_S)

        for number in range(10):
            log(started(f"child-{number}"))
        stream.released.set()

    children = [line.partition("child=")[2].partition(" ")[0] for line in stream.getvalue().splitlines()]
    assert children == ["first", "", "child-7", "child-8", "child-9"]
    assert "event=events.lost count=7" in stream.getvalue()


def test_a_stream_that_fails_for_a_while_loses_lines_and_tells_it_later() -> None:
    stream = FailingStream()
    with LogWriter(LogSettings(), stream=stream) as log:
        log(started("unlucky"))
        assert stream.failed.wait(WAIT_S)

        log(started("lucky"))

    lines = stream.getvalue().splitlines()
    assert [line.partition(" event=")[2].partition(" ")[0] for line in lines] == ["events.lost", "child.started"]


def test_a_stream_that_takes_nothing_more_holds_nobody_up_at_the_end() -> None:
    stream = StuckStream()
    log = LogWriter(LogSettings(), stream=stream, drain_s=0.01)
    with log:
        log(started("stuck"))
        assert stream.asked.wait(WAIT_S)

    assert (stream.getvalue(), log.is_drained) == ("", False)
    stream.released.set()
    log.close(within_s=WAIT_S)
    assert log.is_drained


def test_an_event_whose_text_fails_is_written_without_it() -> None:
    unspeakable = ChildCrashed(supervisor="root", child="a", error=UnspeakableError(), ran_s=0, restart_in_s=None)

    lines = written(unspeakable, ChildStarted(supervisor="root", child="b", restarts=1))

    assert lines[0] == "ts=2026-11-16T02:13:01.123Z level=error event=child.crashed unreadable=RuntimeError"
    assert "child=b" in lines[1]


def test_what_comes_after_the_end_is_ignored() -> None:
    stream = io.StringIO()
    with LogWriter(LogSettings(), stream=stream) as log:
        pass

    log(started("late"))

    assert stream.getvalue() == ""


def crashed(error: BaseException) -> ChildCrashed:
    return ChildCrashed(supervisor="root", child="gauge", error=error, ran_s=1, restart_in_s=None)


def raised(error: Exception, *, from_: Exception | None = None) -> Exception:
    try:
        raise error from from_
    except type(error):
        return error


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_a_crash_is_told_with_the_place_it_came_from_in_the_same_line(form: str) -> None:
    error = raised(RuntimeError("the gauge is gone"), from_=raised(ConnectionError("it hung up")))

    lines = written(crashed(error), settings=LogSettings(format=form))

    trace = json.loads(lines[0])["trace"] if form == "json" else lines[0].partition(' trace="')[2].replace("\\n", "\n")
    assert len(lines) == 1
    assert trace.startswith("Traceback (most recent call last):\n")
    assert "in raised\n    raise error from from_\n" in trace
    assert "ConnectionError: it hung up\n" in trace
    assert "The above exception was the direct cause" in trace
    assert trace.rstrip('"').endswith("RuntimeError: the gauge is gone")


def test_only_events_that_hold_a_raised_error_have_a_trace() -> None:
    lines = written(crashed(ValueError("never raised")), StorageLost(error="OSError: away"))

    assert not [line for line in lines if "trace=" in line]


def test_every_error_of_a_group_is_in_the_trace() -> None:
    group = raised(ExceptionGroup("two things", [raised(ValueError("one")), raised(OSError("other"))]))

    line = written(crashed(group))[0]

    assert all(text in line for text in ("two things (2 sub-exceptions)", "ValueError: one", "OSError: other"))


def test_a_trace_is_cut_in_the_middle_and_shows_no_secret() -> None:
    error = raised(RuntimeError("postgresql://me:hunter2@db/x " + "word " * 10_000 + "the key is swordfish"))

    lines = written(crashed(error), settings=LogSettings(format="json"), secrets=(Secret("swordfish"),))

    trace = json.loads(lines[0])["trace"]
    assert len(trace) <= 8_003
    assert trace.startswith("Traceback")
    assert trace.endswith("the key is ***")
    assert "\n…\n" in trace
    assert not [secret for secret in ("hunter2", "swordfish") if secret in lines[0]]


def test_a_process_without_a_stream_goes_on_without_a_log() -> None:
    with LogWriter(LogSettings(), stream=None) as log:
        log(started("unheard"))
        log(started("unheard, too"))

    assert log.is_drained


def test_no_event_has_a_field_that_the_head_of_a_line_uses() -> None:
    taken = {"ts", "level", "event", "trace"}

    assert not [event for event in all_events() if taken & {field.name for field in attrs.fields(event)}]
