"""When a source is polled for new releases, for which categories, and which polls are one request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from attrs import field, frozen

from cormorant.rules.search.requests import CATEGORIES_MAX, PAGE_SIZE_MAX, SearchRequest

__all__ = ["ALL", "LatestState", "Poll", "Times", "asked_for", "is_fresh", "poll_for", "with_times"]

ALL: Final = -1
"""Stands for every category, which is what an app asks for that names none."""

_WANTED: Final = timedelta(days=7)
"""A category that no app has wanted for so long is not asked for any more."""
_NAMES_MAX: Final = 300

Times = Mapping[int, datetime]


@frozen(kw_only=True)
class LatestState:
    """What is known of asking a source for what is new: when each category was asked for, and when it was wanted."""

    fetched: Times = field(factory=dict)
    wanted: Times = field(factory=dict)


def asked_for(categories: Iterable[int]) -> frozenset[int]:
    """What an app wants that names these categories.

    >>> asked_for([5030]), asked_for([])
    (frozenset({5030}), frozenset({-1}))
    """
    return frozenset(categories) or frozenset({ALL})


def is_fresh(state: LatestState, wanted: Iterable[int], *, now: datetime, ttl_s: float) -> bool:
    """Whether what is kept is new enough in all of these categories.

    Asking for all of them renews only what was asked for by itself before: see `poll_for`.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> state = LatestState(fetched={5030: noon, 2000: noon - timedelta(hours=1)})
    >>> [is_fresh(state, wanted, now=noon, ttl_s=60) for wanted in ([5030], [5030, 2000], [ALL])]
    [True, False, False]
    >>> state = LatestState(fetched={ALL: noon, 2000: noon - timedelta(hours=1)})
    >>> [is_fresh(state, wanted, now=noon, ttl_s=60) for wanted in ([ALL], [2000], [5030])]
    [True, True, False]
    """
    return all(_is_new(state.fetched, each, now, ttl_s) for each in wanted)


def _is_new(fetched: Times, category: int, now: datetime, ttl_s: float) -> bool:
    times = [fetched[each] for each in (category, ALL) if each in fetched] if category in fetched else []
    # One from the future is not believed: somebody's clock was wrong.
    return any(timedelta(0) <= now - at < timedelta(seconds=ttl_s) for at in times)


@frozen(kw_only=True)
class Poll:
    """A poll for new releases. Polls of the same kind are one request, with the categories of all."""

    kind: str
    asked: frozenset[int]

    @property
    def request(self) -> SearchRequest:
        """What the site is asked."""
        return SearchRequest(categories=sorted(self.asked - {ALL}), limit=PAGE_SIZE_MAX)


def poll_for(state: LatestState, wanted: frozenset[int], *, now: datetime, ttl_s: float) -> Poll:
    """The poll for an app that wants these categories: for what all apps have wanted in the last week, in one request.

    What was never asked for is asked for alone the first time. Among what others want it might not be on the page at all,
    and an app that was just added would be told that there is nothing.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> early = dict.fromkeys([5030, 3000], noon - timedelta(hours=1))
    >>> state = LatestState(fetched=early, wanted=early)
    >>> polls = [poll_for(state, frozenset(each), now=noon, ttl_s=60) for each in ([5030], [2000], [ALL])]
    >>> [(poll.kind, poll.request.categories) for poll in polls]
    [('known', (3000, 5030)), ('first', (2000,)), ('all', ())]
    """
    kind = "known" if wanted <= state.fetched.keys() else "first"
    if kind == "first":
        asked = frozenset(each for each in wanted if not _is_new(state.fetched, each, now, ttl_s))
    else:
        asked = wanted | {each for each, at in state.wanted.items() if abs(now - at) < _WANTED}
    if ALL in asked or len(asked) > CATEGORIES_MAX:
        return Poll(kind="all", asked=frozenset({ALL}))
    return Poll(kind=kind, asked=asked)


def with_times(times: Times, categories: Iterable[int], *, now: datetime) -> dict[int, datetime]:
    """The times with these set to now; what is a week old is forgotten, and of too many the oldest."""
    recent = {each: at for each, at in times.items() if abs(now - at) < _WANTED} | dict.fromkeys(categories, now)
    return dict(sorted(recent.items(), key=lambda pair: pair[1], reverse=True)[:_NAMES_MAX])
