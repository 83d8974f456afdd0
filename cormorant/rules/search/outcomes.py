"""Outcome of one source and of a search; the SourceError family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal

from attrs import field, frozen

from cormorant.rules.errors import CormorantError
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import Result


class OutcomeStatus(StrEnum):
    """How a search ended at one source."""

    FOUND = "found"
    """It answered, perhaps with nothing."""
    FAILED = "failed"
    RATE_LIMITED = "rate_limited"
    """It could not be asked within the time that the search may wait."""
    DEDUPLICATED = "deduplicated"
    """The same feed is being fetched for somebody else."""
    CANCELLED = "cancelled"
    REFUSED = "refused"
    """It said no: asking again will not help."""
    SHUT_DOWN = "shut_down"


class SearchError(CormorantError):
    """A search could not be done."""

    exit_code = 1


class SearchQueueFull(SearchError):
    """So many searches wait that no more are taken in. Come back later, or search fewer sources."""

    http_status = 429

    def __init__(self, capacity: int) -> None:
        super().__init__(f"{capacity} searches wait already; try again later, or raise search.queue_max")
        self.capacity = capacity


class NestedSearch(SearchError):
    """Whoever is asked for a source must not wait for another search: all slots could wait for each other."""

    def __init__(self) -> None:
        super().__init__("an execute function holds a slot and must not search; submit before, or from a job's handler")


class RateLimitWaitError(SearchError):
    """The source opens later than the search may wait. It is not the source's fault, so nothing follows for it."""

    http_status = 503

    def __init__(self, source: str, *, wait_s: float | None, max_wait_s: float | None, priority: Priority) -> None:
        opens = "nobody knows when it opens" if wait_s is None else f"it opens in {wait_s:.1f} s"
        allowed = "" if max_wait_s is None else f" and the search may wait {max_wait_s:g} s"
        super().__init__(f"{source} is closed for {priority.name.lower()} searches: {opens}{allowed}")
        self.source = source
        self.wait_s = self.retry_after_s = wait_s
        self.max_wait_s = max_wait_s
        self.priority = priority


class SearchFailed(SearchError):
    """No source answered. `causes` says why, by source."""

    def __init__(self, causes: Mapping[str, str]) -> None:
        super().__init__("no source answered: " + "; ".join(f"{source}: {why}" for source, why in causes.items()))
        self.causes = dict(causes)


@frozen(kw_only=True)
class Outcome:
    """What came of a search at one source."""

    job_id: int
    source: str
    status: OutcomeStatus
    results: tuple[Result, ...] = field(default=(), repr=lambda results: f"<{len(results)}>")
    value: object = field(default=None, repr=False)
    """What a function returned that asked the source for something other than a search."""
    coverage: tuple[str, ...] = ()
    """The sources that this outcome covers: this one, if it answered."""
    error: BaseException | None = None
    waited_s: float = 0.0
    took_s: float = 0.0
    is_cached: bool = False
    was_cut: bool = False
    """Whether the search was ended before the source had answered in full, to keep the time-out."""

    @property
    def is_answer(self) -> bool:
        """Whether the source has answered."""
        return self.status is OutcomeStatus.FOUND


@frozen(kw_only=True)
class SearchResult:
    """What came of a whole search: the results of those that answered, and why the others did not."""

    job_id: int
    results: tuple[Result, ...] = field(repr=lambda results: f"<{len(results)}>")
    coverage: tuple[str, ...]
    missing: Mapping[str, str]
    outcomes: tuple[Outcome, ...] = field(repr=False)


def found_in(job_id: int, outcomes: Sequence[Outcome]) -> SearchResult:
    """The whole from its parts, or `SearchFailed` when there were sources and none has answered.

    A feed that is fetched for somebody else is no failure.
    """
    answers = [outcome for outcome in outcomes if outcome.is_answer]
    # A real failure is told before a wait that was too long.
    others = sorted(
        (outcome for outcome in outcomes if not outcome.is_answer),
        key=lambda outcome: outcome.status is OutcomeStatus.RATE_LIMITED,
    )
    missing = {outcome.source: _why(outcome) for outcome in others}
    if others and not answers and any(each.status is not OutcomeStatus.DEDUPLICATED for each in others):
        raise SearchFailed(missing)
    return SearchResult(
        job_id=job_id,
        results=tuple(result for outcome in answers for result in outcome.results),
        coverage=tuple(outcome.source for outcome in answers),
        missing=missing,
        outcomes=tuple(outcomes),
    )


def _why(outcome: Outcome) -> str:
    return str(outcome.error) if outcome.error is not None else outcome.status.value


class SourceError(CormorantError):
    """A source did not give what was asked of it. `source` is its name, set by whoever knows it."""

    http_status = 502
    exit_code = 1

    def __init__(self, message: str, *, retry_after_s: float | None = None, source: str = "") -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.source = source


@frozen(kw_only=True)
class NoAnswer:
    """Why a request ended without its answer. `said` is the reason in the words of the HTTP library, without secrets."""

    cause: Literal["late", "connection", "too large", "unreadable"]
    may_have_arrived: bool
    """False: no byte of the request was sent."""
    said: str = ""


class SourceUnavailable(SourceError):
    """The source cannot serve us now. Asking again later may work."""

    no_answer: NoAnswer | None = None
    """None: the request has an answer, or was not sent."""


class Unreachable(SourceUnavailable):
    """There was no connection: what was asked has surely not arrived."""


class SourceLimited(SourceError):
    """The source was asked too fast, or its quota is used up. Asking before `retry_after_s` makes it worse."""


class SourceRefused(SourceError):
    """The source understood us and said no. Asking again will not help."""

    http_status = 400


class SourceNotAsked(SourceRefused):
    """The source is disabled, or stopped because it refused our key. A person has to act; then it is asked again."""


class CredentialsRefused(SourceError):
    """The source does not accept our key. Stop at once: hammering with a dead key is how accounts are lost."""


UNKNOWN_WAIT_S: Final = 300.0
"""The wait for a closed source whose opening is not known."""


def opens_in_s(error: BaseException | None) -> float | None:
    """Seconds until a closed source opens, as far as its error knows; None: not known, or it is not closed.

    >>> opens_in_s(SourceLimited("too fast", retry_after_s=30.0)), opens_in_s(SourceRefused("no"))
    (30.0, None)
    """
    if isinstance(error, RateLimitWaitError):
        return error.wait_s
    return error.retry_after_s if isinstance(error, SourceLimited) else None


def wait_for_opening_s(error: BaseException | None) -> float:
    """As `opens_in_s`, with `UNKNOWN_WAIT_S` where the opening is not known."""
    known_s = opens_in_s(error)
    return UNKNOWN_WAIT_S if known_s is None else known_s
