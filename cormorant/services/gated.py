"""How does a call that is no search pass the gates of its source? As a search with a function of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome, SearchError
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import QUERY_LENGTH_MAX, SearchPage, SearchRequest
from cormorant.services.searches import Searches
from storage.search.sources import SourceRecord

T = TypeVar("T")


async def through_gate(  # noqa: PLR0913 - as a search
    searches: Searches,
    source: str,
    call: Callable[[SourceRecord], Awaitable[T]],
    *,
    about: str,
    max_wait_s: float | None,
    timeout_s: float,
    priority: Priority = Priority.BACKGROUND,
    lane: Lane = Lane.QUERY,
    consumer: str,
) -> T:
    """What the call returns, once the source may be asked. Raises what the call raised, or why it was not made."""
    got: list[T] = []

    async def execute(record: SourceRecord, _request: SearchRequest) -> SearchPage:
        got.append(await call(record))
        return SearchPage(results=())

    search = await searches.search(
        SearchRequest(query=about.replace("\0", "")[:QUERY_LENGTH_MAX]),
        sources=[source],
        priority=priority,
        max_wait_s=max_wait_s,
        timeout_s=timeout_s,
        lane=lane,
        consumer=consumer,
        execute=execute,
    )
    async with search:
        outcomes = [outcome async for outcome in search]
    if got and outcomes[0].is_answer:
        return got[0]
    raise error_of(outcomes[0])


def error_of(outcome: Outcome) -> Exception:
    """Why there is no answer."""
    if isinstance(outcome.error, Exception):
        return outcome.error
    return SearchError(f"{outcome.source} was not asked: {outcome.status.value}")
