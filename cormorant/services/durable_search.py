"""Job handler of kind search, and when a source is asked again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from attrs import field, frozen

from actors.environment import Environment
from actors.jobs.handler import JobContext
from cormorant.rules.errors import CormorantError
from cormorant.rules.jobs.error_log import describe_error
from cormorant.rules.jobs.verdicts import Fail, Retry, Snooze
from cormorant.rules.search.outcomes import (
    Outcome,
    OutcomeStatus,
    RateLimitWaitError,
    SourceLimited,
    SourceNotAsked,
    wait_for_opening_s,
)
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import BadRequest, SearchRequest
from cormorant.services.searches import Searches
from storage.search import answers
from storage.search.answers import SourceAnswer
from storage.search.sources import UnknownSource

KIND = "search"


def payload_for(request: SearchRequest, *, sources: Sequence[str], priority: Priority) -> dict[str, Any]:
    """The payload of a job that runs this search."""
    return {
        "query": request.query,
        "kind": request.kind,
        "categories": list(request.categories),
        "params": dict(request.params),
        "offset": request.offset,
        "limit": request.limit,
        "sources": list(sources),
        "priority": priority.name.lower(),
    }


@frozen(kw_only=True)
class DurableSearch:
    """The handler of the kind `search`."""

    environment: Environment = field(kw_only=False)
    searches: Searches

    async def __call__(self, context: JobContext) -> None:
        """Ask those that have not answered yet; come back for those that are closed."""
        request, sources, priority = _read(context.payload)
        assert context.job_id is not None
        answered = await context.transaction(answers.read_answers, context.job_id)
        left = [source for source in sources if source not in answered]
        if not left:
            return
        try:
            search = await self.searches.search(request, sources=left, priority=priority, max_wait_s=PATIENCE_S)
        except UnknownSource as unknown:
            raise Fail(str(unknown)) from None
        outcomes: list[Outcome] = []
        async with search:
            async for outcome in search:
                outcomes.append(outcome)
                if is_answer(outcome):
                    await context.transaction(
                        answers.record_answers, context.job_id, [entry_of(outcome, now=self.environment.now())]
                    )
        _decide(outcomes)


def _decide(outcomes: Sequence[Outcome]) -> None:
    """Come back when the first closed source opens, no attempt counted; try again what failed; else it is done."""
    failed = [outcome for outcome in outcomes if outcome.status is OutcomeStatus.FAILED]
    if failed:
        raise Retry("; ".join(f"{each.source}: {each.error}" for each in failed))
    closed = [outcome for outcome in outcomes if not is_answer(outcome)]
    if closed:
        raise Snooze(max(SNOOZE_S_MIN, min(wait_of(outcome) for outcome in closed)))


def _read(payload: Any) -> tuple[SearchRequest, list[str], Priority]:
    try:
        words = dict(payload)
        sources = [str(source) for source in words.pop("sources")]
        priority = Priority[str(words.pop("priority", "background")).upper()]
        return SearchRequest(**words), sources, priority
    except (BadRequest, CormorantError, KeyError, TypeError, ValueError) as error:
        raise Fail(f"the payload is no search: {describe_error(error)}") from error


PATIENCE_S = 20.0
"""How long one run waits for a source before it is put back; then its handler is free for others."""
"""After so long a source is looked at again of which nobody knows when it opens."""
SNOOZE_S_MIN = 1.0


def is_answer(outcome: Outcome) -> bool:
    """Whether the source has said something; one that was not asked, because a person has to act first, has not."""
    if outcome.status is OutcomeStatus.REFUSED:
        return not isinstance(outcome.error, SourceNotAsked)
    return outcome.status is OutcomeStatus.FOUND


def wait_of(outcome: Outcome) -> float:
    """After how many seconds a source that did not answer is asked again."""
    is_closed = isinstance(outcome.error, RateLimitWaitError | SourceLimited)
    is_later = outcome.status in {OutcomeStatus.REFUSED, OutcomeStatus.SHUT_DOWN}
    return wait_for_opening_s(outcome.error) if is_closed or is_later else SNOOZE_S_MIN


def entry_of(outcome: Outcome, *, now: datetime) -> SourceAnswer:
    """An answer as the ledger keeps it."""
    return SourceAnswer(
        source=outcome.source,
        status=outcome.status.value,
        answered_at=now,
        results=outcome.results,
        error=None if outcome.error is None else describe_error(outcome.error),
    )
