"""How are rows shown in a terminal? Columns in line, and nothing in them that could move the cursor."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from unicodedata import east_asian_width

import click

__all__ = ["painter", "pairs", "printable", "table", "width_of_terminal"]

Paint = Callable[[str, str], str]
"""Colours a cell: gets what it says, and the same padded to the width of its column."""

_GAP = "  "
_NARROWEST = 60
_CUT = "…"


def printable(text: str) -> str:
    """Text of unknown origin in one line: what is not printable is shown by its escape."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), paint: Paint | None = None
) -> Iterator[str]:
    """The lines of a table; columns named in `right` hold numbers. The last column is cut where the terminal ends."""
    shown = [list(map(printable, row)) for row in rows]
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
