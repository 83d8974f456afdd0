"""Saved searches: those of the settings file, and running one."""

from __future__ import annotations

from collections.abc import Sequence

from actors.environment import Environment
from cormorant.rules.search.outcomes import Outcome
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.watches import FirstCheck, SavedSearch
from cormorant.services.searches import Searches


def configured_searches(environment: Environment) -> list[SavedSearch]:
    """The saved searches of the settings file."""
    now = environment.now()
    return [
        SavedSearch(
            name=name,
            request=SearchRequest(query=said.query, categories=[int(number) for number in said.categories]),
            every_s=said.every_s,
            sources=said.search,
            profile=said.choose,
            targets=said.hand_to,
            first_check=FirstCheck(said.first_check),
            next_attempt_at=now,
            added_at=now,
        )
        for name, said in sorted(environment.settings.saved.items())
    ]


async def run_saved_search(environment: Environment, searches: Searches, saved: SavedSearch) -> Sequence[Outcome]:
    """Ask the sources of a saved search, each through its limiter. One outcome for each source."""
    search = await searches.search(
        saved.request,
        sources=saved.sources or None,
        priority=Priority.RSS if saved.request.is_rss else Priority.BACKGROUND,
        consumer=f"saved:{saved.name}",
        # Not from the cache: there is nothing new in it.
        execute=None if saved.request.is_rss else environment.clients.search,
    )
    async with search:
        return [outcome async for outcome in search]
