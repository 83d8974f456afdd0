"""How is a search shown while it runs? A table that is drawn anew in place, or a line for each source that has ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cormorant.cli.console.output import printable
from cormorant.cli.search_words import SearchText
from cormorant.rules.search.outcomes import Outcome

__all__ = ["LineDisplay", "LiveTable", "SearchDisplay"]


class SearchDisplay(Protocol):
    """Somebody who is told how far a search is."""

    def draw(self, outcomes: Sequence[Outcome]) -> None:
        """Show what has come so far."""
        ...


class LiveTable:
    """For people at a terminal. What it showed last stays."""

    def __init__(self, words: SearchText, names: Sequence[str]) -> None:
        self._words = words
        self._names = names
        # Drawn by us and not by a thread of its own, which would live through an interrupt.
        self._live = Live(console=Console(highlight=False), auto_refresh=False)

    def draw(self, outcomes: Sequence[Outcome]) -> None:
        """Draw the table anew."""
        ended, now = {outcome.source: outcome for outcome in outcomes}, datetime.now(UTC)
        lines = [(name, self._words.line(name, ended.get(name), now=now)) for name in self._names]
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
        # Where room is short the reason is cut, not the name and the state.
        table.add_column(no_wrap=True, width=max(map(len, self._names)))
        table.add_column(no_wrap=True, width=max(len(line.state) for _, line in lines))
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for name, line in lines:
            table.add_row(Text(name), Text(line.state, style=line.colour), Text(printable(line.said)))
        self._live.update(table, refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        if error is None:
            click.echo()


class LineDisplay:
    """For logs and pipes: a line on standard error when a source has ended."""

    def __init__(self, words: SearchText, names: Sequence[str]) -> None:
        self._words = words
        self._width = max(map(len, names), default=0)
        self._told = 0

    def draw(self, outcomes: Sequence[Outcome]) -> None:
        """Tell what is new."""
        for outcome in outcomes[self._told :]:
            line = self._words.line(outcome.source, outcome, now=datetime.now(UTC))
            click.echo(f"{outcome.source:<{self._width}}  {line.state}  {printable(line.said)}".rstrip(), err=True)
        self._told = len(outcomes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to be done."""
