"""What does `cormorant search` do? Searches through limiters of its own; the limits hold, for they are in the database.

It claims no jobs and sweeps nothing: of the tree only the branch that searches is started.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import click
import trio
from attrs import define, field, frozen

from actors.environment import SystemClock, SystemRandom, in_thread
from actors.search.search import Search
from cormorant.cli.actions.job_json import as_text
from cormorant.cli.console.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    CommandFailed,
    CommandInterrupted,
    UsageRefused,
    shown_path,
)
from cormorant.cli.console.database_session import visit
from cormorant.cli.console.preflight import load_or_refuse
from cormorant.cli.search_show import LineDisplay, LiveTable, SearchDisplay
from cormorant.cli.search_words import SearchText, merged, search_json
from cormorant.rules.errors import CormorantError
from cormorant.rules.events import Event
from cormorant.rules.search.events import SearchStarted
from cormorant.rules.search.outcomes import Outcome
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import BadRequest, SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.settings import Settings
from cormorant.rules.units import zone_of
from cormorant.services.searches import Searches
from cormorant.services.source_clients import SourceClients, price_recipes
from storage.database import Database
from storage.search.sources import UnknownSource
from supervisors.search_assembly import SearchAssembly, SearchParts

__all__ = ["SearchOptions", "search_now"]

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
    as_json: bool


@define(eq=False)
class _Started:
    """Hears which sources are being asked, and since when."""

    since: dict[str, datetime] = field(factory=dict)

    def __call__(self, event: Event) -> None:
        if isinstance(event, SearchStarted):
            self.since.setdefault(event.source, datetime.now(UTC))


def search_now(config: str, wanted: SearchOptions) -> int:
    """Search, show it, and return the exit code."""
    settings = load_or_refuse(config)

    async def run(database: Database) -> int:
        return await _search(settings, config, database, wanted)

    try:
        code = visit(settings, run, may_make=True)
    except UnknownSource as error:
        raise CommandFailed(str(error)) from None
    except KeyboardInterrupt:
        raise CommandInterrupted("interrupted; the search was cancelled") from None
    except (BadRequest, CormorantError) as error:
        raise UsageRefused(str(error)) from None
    if code != EXIT_OK and settings.playground.enabled and not wanted.as_json:
        click.echo("the invented sites are there only while `cormorant run` runs: is it?", err=True)
    return code


async def _search(settings: Settings, config: str, database: Database, wanted: SearchOptions) -> int:
    started, clock = _Started(), SystemClock()
    parts = SearchParts(
        settings=settings,
        database=database,
        ask=SourceClients(offload=in_thread, clock=clock, recipes=price_recipes(settings)).search,
        clock=clock,
        chance=SystemRandom(),
        emit=started,
    )
    assembly = SearchAssembly(parts)
    async with assembly.supervisor():
        searches = assembly.searches()
        await searches.desks.have_come.wait()
        if not searches.desks.by_name or not (wanted.names or searches.searched()):
            remedy = f"cormorant sources add NAME URL, or [sources.NAME] in {shown_path(config)}"
            raise UsageRefused(f"there is no site to search yet; add one: {remedy}")
        search = await searches.search(
            wanted.request,
            sources=wanted.names or None,
            priority=wanted.priority,
            max_wait_s=wanted.max_wait_s,
            consumer="cormorant search",
        )
        words = _words(settings, searches, wanted, started)
        async with search:
            outcomes = await _follow(search, words, as_json=wanted.as_json)
    return _tell(outcomes, words, wanted)


def _words(settings: Settings, searches: Searches, wanted: SearchOptions, started: _Started) -> SearchText:
    hidden: list[Secret] = []
    for desk in searches.desks.by_name.values():
        hidden += [desk.record.key, desk.record.proxy]
    return SearchText(
        explain=lambda source: searches.explain(source, wanted.priority),
        started=started.since,
        zone=zone_of(settings.time_zone),
        secrets=tuple(hidden),
    )


async def _follow(search: Search, words: SearchText, *, as_json: bool) -> list[Outcome]:
    """Show how it goes until all have their outcome."""
    names = [ticket.source for ticket in search.tickets]
    is_watched = sys.stdout.isatty() and not as_json
    showing: AbstractContextManager[SearchDisplay] = (
        LiveTable(words, names) if is_watched else LineDisplay(words, names)
    )
    with showing as show:
        # Looked at, not iterated over: while nothing comes, the table counts down all the same.
        while not search.is_done:
            show.draw(search.outcomes)
            await trio.sleep(LOOK_S)
        show.draw(search.outcomes)
    return list(search.outcomes)


def _tell(outcomes: list[Outcome], words: SearchText, wanted: SearchOptions) -> int:
    finds = merged(outcomes)
    if wanted.as_json:
        shown = finds if wanted.limit is None else finds[: wanted.limit]
        click.echo(as_text(search_json(wanted.request, outcomes, shown, words)))
    else:
        limit = wanted.limit or SHOWN_USUAL
        for line in words.results(finds[:limit], left=max(0, len(finds) - limit), now=datetime.now(UTC)):
            click.echo(line)
    return EXIT_OK if any(outcome.is_answer for outcome in outcomes) else EXIT_FAILED
