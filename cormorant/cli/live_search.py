"""Runs a search through its own limiters and shows it as a live table, lines or JSON.

It claims no jobs and sweeps nothing: of the tree only the branch that searches is started.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from typing import Any

import click
import trio
from attrs import asdict, define, evolve, field, frozen
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from actors.environment import Environment
from actors.search.search import Search
from cormorant.cli.console.command_line import EXIT_FAILED, EXIT_OK, UsageRefused
from cormorant.cli.console.database_session import CommandSession
from cormorant.cli.console.output import counted, printable, table
from cormorant.rules.events import Stamped
from cormorant.rules.search.events import SearchStarted
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, RateLimitWaitError
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation, next_opening, whole_second
from cormorant.rules.search.requests import Result, SearchRequest
from cormorant.rules.secrets import NO_SCREEN, SecretFilter, redact_passwords
from cormorant.rules.units import clock_time, format_duration, rough, rough_size
from cormorant.services.event_bus import EventBus
from cormorant.services.search_views import decisive, outcome_out, result_out
from cormorant.services.watch.views import WantViews
from storage.database import SystemClock
from supervisors.assembly import complete
from supervisors.search_assembly import SearchAssembly

LOOK_S = 0.1
"""How often is looked what has come."""
SHOWN_USUAL = 50


@frozen(kw_only=True)
class SearchOptions:
    """What was asked for on the command line."""

    request: SearchRequest
    names: tuple[str, ...]
    priority: Priority
    max_wait_s: float
    limit: int | None


@define(eq=False)
class _Started:
    """Hears which sources are being asked, and since when."""

    since: dict[str, datetime] = field(factory=dict)

    def __call__(self, stamped: Stamped) -> None:
        if isinstance(stamped.event, SearchStarted):
            self.since.setdefault(stamped.event.source, datetime.now(UTC))


async def search_now(session: CommandSession, wanted: SearchOptions) -> int:
    """Search, show it, and return the exit code."""
    code = await _search(session, wanted)
    if code != EXIT_OK and session.settings.playground.enabled and not session.as_json:
        click.echo("the invented sites are there only while `cormorant run` runs: is it?", err=True)
    return code


async def _search(session: CommandSession, wanted: SearchOptions) -> int:
    started = _Started()
    environment = Environment(session.settings, database=session.database)
    assembly = SearchAssembly(complete(environment, EventBus(SystemClock(), [started])))
    async with assembly.supervisor():
        searches = assembly.searches()
        await searches.directory.loaded.wait()
        if not searches.directory.by_name or not (wanted.names or searches.searched()):
            remedy = f"cormorant sources add NAME URL, or [sources.NAME] in {session.file}"
            raise UsageRefused(f"there is no site to search yet; add one: {remedy}")
        search = await searches.search(
            wanted.request,
            sources=wanted.names or None,
            priority=wanted.priority,
            max_wait_s=wanted.max_wait_s,
            consumer="cormorant search",
        )
        records = searches.directory.records()
        words = SearchText(
            explain=lambda source: searches.explain(source, wanted.priority),
            started=started.since,
            zone=session.zone,
            hidden=WantViews.of(records).secret_filter,
        )
        async with search:
            outcomes = await _follow(search, words, as_json=session.as_json)
    return _tell(session, outcomes, words, wanted)


async def _follow(search: Search, words: SearchText, *, as_json: bool) -> list[Outcome]:
    """Show how it goes until all have their outcome."""
    names = [ticket.source for ticket in search.tickets]
    showing = live_table if sys.stdout.isatty() and not as_json else printed_lines
    with showing(words, names) as draw:
        # Looked at, not iterated over: while nothing comes, the table counts down all the same.
        while not search.is_done:
            draw(search.outcomes)
            await trio.sleep(LOOK_S)
        draw(search.outcomes)
    return list(search.outcomes)


def _tell(session: CommandSession, outcomes: list[Outcome], words: SearchText, wanted: SearchOptions) -> int:
    finds = merged(outcomes)
    limit = wanted.limit or (len(finds) if session.as_json else SHOWN_USUAL)
    shown = finds[:limit]
    lines = words.results(shown, left=len(finds) - len(shown), now=session.now)
    session.show(search_json(wanted.request, outcomes, shown, words), lines)
    return EXIT_OK if any(outcome.is_answer for outcome in outcomes) else EXIT_FAILED


Draw = Callable[[Sequence[Outcome]], None]
"""Shows what has come of a search so far."""


@contextmanager
def live_table(words: SearchText, names: Sequence[str]) -> Iterator[Draw]:
    """For people at a terminal: a table that is drawn anew. What it showed last stays."""
    # Drawn by us and not by a thread of its own, which would live through an interrupt.
    live = Live(console=Console(highlight=False), auto_refresh=False)
    with live:
        yield lambda outcomes: live.update(_state_table(words, names, outcomes), refresh=True)
    click.echo()


def _state_table(words: SearchText, names: Sequence[str], outcomes: Sequence[Outcome]) -> Table:
    ended, now = {outcome.source: outcome for outcome in outcomes}, datetime.now(UTC)
    lines = [(name, words.line(name, ended.get(name), now=now)) for name in names]
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    # Where room is short the reason is cut, not the name and the state.
    table.add_column(no_wrap=True, width=max(map(len, names)))
    table.add_column(no_wrap=True, width=max(len(line.state) for _, line in lines))
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for name, line in lines:
        table.add_row(Text(name), Text(line.state, style=line.colour), Text(printable(line.said)))
    return table


@contextmanager
def printed_lines(words: SearchText, names: Sequence[str]) -> Iterator[Draw]:
    """For logs and pipes: a line on standard error when a source has ended."""
    width = max(map(len, names), default=0)
    told: list[Outcome] = []

    def draw(outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes[len(told) :]:
            line = words.line(outcome.source, outcome, now=datetime.now(UTC))
            click.echo(f"{outcome.source:<{width}}  {line.state}  {printable(line.said)}".rstrip(), err=True)
            told.append(outcome)

    yield draw


_COLOURS = {
    OutcomeStatus.FOUND: "green",
    OutcomeStatus.DEDUPLICATED: "green",
    OutcomeStatus.RATE_LIMITED: "yellow",
    OutcomeStatus.CANCELLED: "yellow",
}
_STATES = {
    OutcomeStatus.RATE_LIMITED: "not asked",
    OutcomeStatus.DEDUPLICATED: "asked by another",
    OutcomeStatus.SHUT_DOWN: "stopped",
}
_OLD_S = 2 * 365 * 86_400.0


@frozen(kw_only=True)
class MergedResult:
    """A result and the sources that have it."""

    result: Result
    sources: tuple[str, ...]


@frozen
class SourceLine:
    """A source in a line: its state in a word or two, what there is to say, and a colour."""

    state: str
    said: str
    colour: str


def merged(outcomes: Sequence[Outcome]) -> list[MergedResult]:
    """What was found, each torrent once whoever has it, with most seeders first and then the newest."""
    finds: dict[str, MergedResult] = {}
    for outcome in outcomes:
        for result in outcome.results:
            key = (result.infohash or "").lower() or f"{outcome.source} {result.guid}"
            there = finds.get(key)
            if there is None:
                finds[key] = MergedResult(result=result, sources=(outcome.source,))
            elif outcome.source not in there.sources:
                better = result if (result.seeders or 0) > (there.result.seeders or 0) else there.result
                finds[key] = evolve(there, result=better, sources=(*there.sources, outcome.source))
    return sorted(finds.values(), key=_rank)


def _rank(find: MergedResult) -> tuple[int, float, str]:
    result = find.result
    seeders = -1 if result.seeders is None else result.seeders
    return -seeders, -(result.published.timestamp() if result.published else 0.0), result.title


@frozen(kw_only=True)
class SearchText:
    """Words for one search. `explain` says why a source waits, `started` since when it is being asked."""

    explain: Callable[[str], Explanation]
    started: Mapping[str, datetime]
    zone: tzinfo
    hidden: SecretFilter = NO_SCREEN

    def line(self, source: str, outcome: Outcome | None, *, now: datetime) -> SourceLine:
        """How it stands with one source."""
        if outcome is not None:
            return self._ended(outcome)
        since = self.started.get(source)
        if since is not None:
            return SourceLine("asked", f"for {rough((now - since).total_seconds())}", "cyan")
        return self._waiting(source, now)

    def _waiting(self, source: str, now: datetime) -> SourceLine:
        explanation = self.explain(source)
        gate = decisive(explanation)
        if gate is None:
            return SourceLine("next", "", "cyan")
        opens_at = explanation.opens_at or next_opening(explanation.reasons, now=now)
        if opens_at is None:
            return SourceLine("waits", gate.why, "yellow")
        left = f"{max(0.0, (opens_at - now).total_seconds()):.0f} s"
        return SourceLine(
            "waits", f"{left}, until {clock_time(whole_second(opens_at), now, self.zone)}: {gate.why}", "yellow"
        )

    def _ended(self, outcome: Outcome) -> SourceLine:
        state = _STATES.get(outcome.status, outcome.status.value)
        colour = _COLOURS.get(outcome.status, "red")
        return SourceLine(state, self.why(outcome) if not outcome.is_answer else _answer(outcome), colour)

    def why(self, outcome: Outcome) -> str:
        """Why a source did not answer, without secrets."""
        if outcome.error is None:
            return ""
        said = str(outcome.error).removeprefix(f"{outcome.source} is not asked: ")
        if isinstance(outcome.error, RateLimitWaitError):
            said = self._too_late(outcome.source, outcome.error)
        return redact_passwords(self.hidden.redact(" ".join(said.split())))

    def _too_late(self, source: str, error: RateLimitWaitError) -> str:
        reasons = self.explain(source).reasons
        why = f": {reasons[-1].why}" if reasons else ""
        if error.wait_s is None:
            return f"nobody knows when it opens{why}"
        most = "" if error.max_wait_s is None else f" and --max-wait is {format_duration(error.max_wait_s)}"
        return f"it opens in {rough(error.wait_s)}{most}{why}"

    def results(self, finds: Sequence[MergedResult], *, left: int, now: datetime) -> Iterator[str]:
        """The finds as a table; the title last, for it may be long."""
        rows = [
            [
                "-" if find.result.size_bytes is None else rough_size(find.result.size_bytes),
                _age(find.result.published, now),
                "-" if find.result.seeders is None else find.result.seeders,
                ", ".join(find.sources),
                find.result.title,
            ]
            for find in finds
        ]
        head = ("SIZE", "AGE", "SEEDERS", "SOURCE", "TITLE")
        yield from table(head, rows, empty="nothing found", right=head[:3])
        if left:
            yield f"{left:,} more: --limit {len(finds) + left}"


def _answer(outcome: Outcome) -> str:
    count = len(outcome.results)
    how = "kept from an earlier search" if outcome.is_cached else f"in {outcome.took_s:.1f} s"
    waited = f", after waiting {rough(outcome.waited_s)}" if outcome.waited_s >= 1 else ""
    cut = ", cut short by the time-out: there may be more" if outcome.was_cut else ""
    return f"{counted(count, 'result')} {how}{waited}{cut}"


def _age(published: datetime | None, now: datetime) -> str:
    if published is None:
        return "-"
    seconds = (now - published).total_seconds()
    return f"{seconds / (365.25 * 86_400):.0f} y" if seconds >= _OLD_S else rough(max(0.0, seconds))


def search_json(
    request: SearchRequest, outcomes: Sequence[Outcome], finds: Sequence[MergedResult], words: SearchText
) -> dict[str, Any]:
    """The whole for programs. Links are left out: they carry keys."""
    sources = [
        asdict(outcome_out(evolve(outcome, results=()), None))
        | {"results": len(outcome.results), "error": words.why(outcome) or None}
        for outcome in outcomes
    ]
    results = [
        asdict(result_out(find.result, words.hidden))
        | {"sources": list(find.sources), "is_freeleech": find.result.is_freeleech}
        for find in finds
    ]
    facts = {"query": request.query, "kind": request.kind, "categories": list(request.categories)}
    return {**facts, "sources": sources, "results": results}
