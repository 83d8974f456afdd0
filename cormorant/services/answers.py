"""What does an outcome mean for a search that comes back? Whether the source has answered, and when to ask it again."""

from __future__ import annotations

from datetime import datetime

from cormorant.rules.jobs.error_log import describe_error
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, RateLimitWaitError, SourceLimited, SourceNotAsked
from storage.search.answers import SourceAnswer

PATIENCE_S = 20.0
"""How long one run waits for a source before it is put back; then its handler is free for others."""
UNKNOWN_S = 300.0
"""After so long a source is looked at again of which nobody knows when it opens."""
SNOOZE_S_MIN = 1.0


def is_answer(outcome: Outcome) -> bool:
    """Whether the source has said something; one that was not asked, because a person has to act first, has not."""
    if outcome.status is OutcomeStatus.REFUSED:
        return not isinstance(outcome.error, SourceNotAsked)
    return outcome.status is OutcomeStatus.FOUND


def wait_of(outcome: Outcome) -> float:
    """After how many seconds a source that did not answer is asked again."""
    if isinstance(outcome.error, RateLimitWaitError):
        return UNKNOWN_S if outcome.error.wait_s is None else outcome.error.wait_s
    if isinstance(outcome.error, SourceLimited):
        return UNKNOWN_S if outcome.error.retry_after_s is None else outcome.error.retry_after_s
    return UNKNOWN_S if outcome.status in {OutcomeStatus.REFUSED, OutcomeStatus.SHUT_DOWN} else SNOOZE_S_MIN


def entry_of(outcome: Outcome, *, now: datetime) -> SourceAnswer:
    """An answer as the ledger keeps it."""
    return SourceAnswer(
        source=outcome.source,
        status=outcome.status.value,
        answered_at=now,
        results=outcome.results,
        error=None if outcome.error is None else describe_error(outcome.error),
    )
