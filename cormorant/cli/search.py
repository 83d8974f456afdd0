"""`cormorant search`: ask the sites now, see why each waits, and what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cormorant.cli.console.command_line import Duration, UsageRefused, session_command
from cormorant.cli.sources import PRIORITIES
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import BadRequest, SearchKind, SearchRequest

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession

__all__ = ["search"]

LIMIT_MOST = 100_000

_EXIT_CODES = """\b
Exit codes: 0    at least one site answered, perhaps with nothing
            1    no site answered; each is told with the reason
            2    bad input or settings, or the database cannot be used
            130  interrupted; what waited was cancelled
"""


def _wanted(
    *, words: tuple[str, ...], kind: SearchKind | None, categories: tuple[int, ...], priority: str, **options: Any
) -> dict[str, Any]:
    query = " ".join(" ".join(words).split())
    if not query:
        raise UsageRefused("WORDS: there are none; write what to search for")
    try:
        request = SearchRequest(query=query, kind=kind or "search", categories=categories)
    except BadRequest as error:
        raise UsageRefused(str(error)) from None
    return {"request": request, "priority": Priority[priority.upper()], **options}


@click.command(short_help="Search the sites now.", epilog=_EXIT_CODES)
@session_command(may_make=True, before=_wanted, interrupted="interrupted; the search was cancelled")
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option("--source", "names", metavar="NAME", multiple=True, help="Only this site; may be repeated.")
@click.option(
    "--kind", type=click.Choice(["tv", "movie", "music", "book"]), help="A special search, where sites offer it."
)
@click.option("--category", "categories", type=click.IntRange(0), multiple=True, help="Only this; may be repeated.")
@click.option("--priority", type=PRIORITIES, default="interactive", show_default=True, help="How urgent it is.")
@click.option(
    "--max-wait",
    "max_wait_s",
    type=Duration(),
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="A site that opens later is left out.",
)
@click.option("--limit", type=click.IntRange(1, LIMIT_MOST), help="Results to show.  [default: 50; with --json all]")
async def search(session: CommandSession, **wanted: Any) -> int:
    """Search the sites now. No site is asked faster than its limits allow, also beside a running service.

    While it runs, a table shows why each site waits and until when. The results follow, the best seeded first, then the
    newest. Where the output is no terminal, results go to standard output and the rest to standard error.
    """
    from cormorant.cli.live_search import SearchOptions, search_now  # noqa: PLC0415  # `--help` need not wait for the database's driver

    return await search_now(session, SearchOptions(**wanted))
