"""What happens to searches and to the sources they ask. No query, no address and no key is ever in an event."""

from __future__ import annotations

from cormorant.rules.events import Event, event


@event("search.submitted", level="debug")
class SearchSubmitted(Event):
    """A search was taken in."""

    search_id: int
    priority: str
    sources: int


@event("search.started", level="debug")
class SearchStarted(Event):
    """A source is asked. `waited_s` is how long the search waited for its turn."""

    search_id: int
    source: str
    priority: str
    waited_s: float


@event("search.finished")
class SearchFinished(Event):
    """A search ended at one source: found, failed, refused, rate_limited, cancelled or shut_down.

    `was_cut`: to keep the time-out it was ended before the source had answered in full.
    """

    search_id: int
    source: str
    status: str
    results: int
    waited_s: float
    took_s: float
    error: str | None
    was_cut: bool = False


@event("source.request_finished", level="debug")
class RequestFinished(Event):
    """A request to a source ended; any number of searches may have waited for it. `lane` is query or grab."""

    source: str
    lane: str
    outcome: str
    waited_s: float
    took_s: float


@event("search.callback_failed", level="error")
class CallbackFailed(Event):
    """A callback of a search raised. The search is not affected."""

    search_id: int
    error: BaseException


@event("source.added")
class SourceAdded(Event):
    """A source is asked from now on."""

    source: str
    kind: str


@event("source.removed")
class SourceRemoved(Event):
    """A source is asked no more."""

    source: str


@event("source.stopped", level="error")
class SourceStopped(Event):
    """A source refused our credentials and is not asked until a person has corrected them."""

    source: str
    because: str


@event("search.pruned", level="debug")
class SearchesPruned(Event):
    """What searches left behind was forgotten: history, kept answers, and requests that no window looks at any more."""

    history: int
    answers: int
    requests: int
