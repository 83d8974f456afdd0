"""Tables, JSON, and writing to a stream that may be closed or stuck."""

from __future__ import annotations

import _thread
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, tzinfo
from functools import partial
from itertools import zip_longest
from typing import Any, NoReturn, TextIO
from unicodedata import east_asian_width

import attrs
import click
from attrs import frozen

from cormorant.rules.units import clock_time, from_now, rough

Paint = Callable[[str, str], str]
"""Colours a cell: gets what it says, and the same padded to the width of its column."""

_GAP = "  "
_NARROWEST = 60
_CUT = "…"


def printable(text: str) -> str:
    """Text of unknown origin in one line: what is not printable is shown by its escape."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "",
    right: Sequence[str] = (),
    paint: Paint | None = None,
) -> Iterator[str]:
    """The lines of a table, or the line `empty` instead of a table without rows.

    Columns named in `right` hold numbers. A cell that is None is left blank. The last column is cut where the terminal ends.
    """
    shown = [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    if empty and not shown:
        yield empty
        return
    widths = [max(map(len, column)) for column in zip_longest(head, *shown, fillvalue="")]
    room = width_of_terminal()
    last = max(len(head[-1]), room - sum(widths[:-1]) - len(_GAP) * (len(head) - 1)) if room else None
    if head[-1] not in right:
        widths[-1] = 0  # nothing follows that would have to be in line
    yield _line([_aligned(name, width, name in right) for name, width in zip(head, widths, strict=True)])
    for row in shown:
        row[-1] = _cut(row[-1], last)
        cells = [
            (cell, _aligned(cell, width, name in right)) for name, cell, width in zip(head, row, widths, strict=True)
        ]
        yield _line([paint(*cell) if paint else cell[1] for cell in cells])


def pairs(rows: Sequence[tuple[str, str]], *, indent: str = "") -> Iterator[str]:
    """Names and what is known under them, in two columns."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        yield f"{indent}{name:<{width}}{_GAP}{printable(value)}".rstrip()


@frozen(kw_only=True)
class Times:
    """Times as people read them: seen from `now`, in one zone. Texts of a command with times extend it."""

    now: datetime
    zone: tzinfo

    def at(self, moment: datetime) -> str:
        """The time of day, with the date unless it is today."""
        return clock_time(moment, self.now, self.zone)

    def ago(self, moment: datetime) -> str:
        """How long ago it was, or how far off it is."""
        return from_now(moment, self.now)

    def age(self, moment: datetime) -> str:
        """How long ago it was, as a span."""
        return rough((self.now - moment).total_seconds())

    def due(self, moment: datetime) -> str:
        """How far off it is; "now" if it has passed."""
        return "now" if moment <= self.now else self.ago(moment)

    def when(self, moment: datetime) -> str:
        """The time of day, and how far off it is."""
        return f"{self.at(moment)} ({self.ago(moment)})"


def counted(count: int, what: str) -> str:
    """A number and the name of what is counted, such as 12,000 jobs."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def older_pages(before: int | None) -> Iterator[str]:
    """How to get the next page of a list that begins with the newest."""
    if before is not None:
        yield f"there are older ones: --before {before}"


def width_of_terminal() -> int | None:
    """How many characters fit into a line; None when nobody looks at it and nothing need be cut."""
    if not sys.stdout.isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def _aligned(cell: str, width: int, is_number: bool) -> str:  # noqa: FBT001 - private, called in two places above
    return f"{cell:>{width}}" if is_number else f"{cell:<{width}}"


def _cut(cell: str, width: int | None) -> str:
    if width is None or len(cell) + _wide_in(cell) <= width:
        return cell
    kept = cell[: width - 1]
    while len(kept) + _wide_in(kept) >= width:
        kept = kept[:-1]
    return kept + _CUT


def _wide_in(cell: str) -> int:
    """How many of its characters take two columns, as Chinese and Japanese ones do."""
    return 0 if cell.isascii() else sum(east_asian_width(character) in "WF" for character in cell)


def _line(cells: Sequence[str]) -> str:
    return _GAP.join(cells).rstrip()


def painter(colours: dict[str, str]) -> Paint:
    """Colours cells by what they say; click takes the colours away where nobody sees them."""

    def paint(cell: str, padded: str) -> str:
        # Only the words: spaces within the colour could not be taken off the end of a line.
        return padded.replace(cell, click.style(cell, fg=colours[cell]), 1) if cell in colours else padded

    return paint


def show(facts: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Write the facts as JSON, or the lines. The facts may hold views."""
    click.echo(as_text(facts) if as_json else "\n".join(lines))


def as_text(value: Any) -> str:
    """JSON with a line for each fact; ASCII, because a payload may hold half a character, which no stream takes."""
    return json.dumps(value, indent=2, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if attrs.has(type(value)):
        return attrs.asdict(value, recurse=False)  # type: ignore[arg-type]  # an attrs class, as was just seen
    raise TypeError(f"{type(value).__name__} is not told to programs")


SAY_S = 1.0
"""How long a stream gets to take what is said."""


def open_missing() -> None:
    """Open nothing in place of a standard stream that is closed. A file of ours would get its number, and our words."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    # Not its number: somebody may have been faster than we, and then it is a file of theirs.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()


def _nowhere() -> TextIO:
    return open(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", closefd=False)


def write(text: str, *, err: bool = False, within_s: float = SAY_S) -> None:
    """Write lines to standard output, or to standard error, if they are taken in time."""
    stream = sys.stderr if err else sys.stdout
    attempt(partial(_write, stream, f"{text}\n"), within_s=within_s)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # in memory, as in tests and notebooks
        stream.write(text)
        stream.flush()
        return
    # Not through the stream: one that is stuck holds its lock, and Python's end would wait for it.
    left = text.encode(stream.encoding, "backslashreplace")
    while left:
        left = left[os.write(number, left) :]


def leave(code: int) -> NoReturn:
    """End the process now, all having been said."""
    # Python's own end would wait for a stream that is stuck, and has an exit code of its own for one that fails.
    os._exit(code)


def attempt(action: Callable[[], object], *, within_s: float) -> None:
    """Do something in a thread of its own and wait for it, but not for long. Streams that fail are no matter.

    A signal handler may call it: it takes no lock that the interrupted code may hold. `threading` would.
    """
    done = _thread.allocate_lock()
    done.acquire()

    def act() -> None:
        try:
            with suppress(OSError, ValueError):
                action()
        finally:
            done.release()

    with suppress(RuntimeError):  # no more threads to be had
        _thread.start_new_thread(act, ())
        done.acquire(timeout=within_s)
