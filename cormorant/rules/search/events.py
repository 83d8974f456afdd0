"""What happens to searches and to the sources they ask. No query, no address and no key is ever in an event."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from cormorant.rules.events import Event


@frozen(kw_only=True)
class SearchSubmitted(Event):
    """A search was taken in."""

    name: ClassVar[str] = "search.submitted"
    level: ClassVar[str] = "debug"

    search_id: int
    priority: str
    sources: int


@frozen(kw_only=True)
class SearchStarted(Event):
    """A source is asked. `waited_s` is how long the search waited for its turn."""

    name: ClassVar[str] = "search.started"
    level: ClassVar[str] = "debug"

    search_id: int
    source: str
    priority: str
    waited_s: float


@frozen(kw_only=True)
class SearchFinished(Event):
    """A search ended at one source: found, failed, refused, rate_limited, cancelled or shut_down.

    `was_cut`: to keep the time-out it was ended before the source had answered in full.
    """

    name: ClassVar[str] = "search.finished"

    search_id: int
    source: str
    status: str
    results: int
    waited_s: float
    took_s: float
    error: str | None
    was_cut: bool = False


@frozen(kw_only=True)
class RequestFinished(Event):
    """A request to a source ended; any number of searches may have waited for it. `lane` is query or grab."""

    name: ClassVar[str] = "source.request_finished"
    level: ClassVar[str] = "debug"

    source: str
    lane: str
    outcome: str
    waited_s: float
    took_s: float


@frozen(kw_only=True)
class CallbackFailed(Event):
    """A callback of a search raised. The search is not affected."""

    name: ClassVar[str] = "search.callback_failed"
    level: ClassVar[str] = "error"

    search_id: int
    error: BaseException


@frozen(kw_only=True)
class SourceAdded(Event):
    """A source is asked from now on."""

    name: ClassVar[str] = "source.added"

    source: str
    kind: str


@frozen(kw_only=True)
class SourceRemoved(Event):
    """A source is asked no more."""

    name: ClassVar[str] = "source.removed"

    source: str


@frozen(kw_only=True)
class SourceStopped(Event):
    """A source refused our credentials and is not asked until a person has corrected them."""

    name: ClassVar[str] = "source.stopped"
    level: ClassVar[str] = "error"

    source: str
    because: str


@frozen(kw_only=True)
class SearchesPruned(Event):
    """What searches left behind was forgotten: history, kept answers, and requests that no window looks at any more."""

    name: ClassVar[str] = "search.pruned"
    level: ClassVar[str] = "debug"

    history: int
    answers: int
    requests: int
