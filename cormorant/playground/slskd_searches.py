"""The searches of the slskd stand-in: when each one runs, what it has received, and how it ends."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from attrs import define, evolve, frozen

from cormorant.rules.watch.soulseek import PeerFile, PeerResponse

__all__ = ["Course", "PlayedSearch", "courses", "peers_matching", "terms_of"]


@define(kw_only=True)
class PlayedSearch:
    """A search as slskd was asked for it."""

    text: str
    ready_at: float
    """The search may run from then on, if fewer than the maximum run."""
    quiet_s: float
    """slskd ends the search after this time without a response."""
    arrivals: Sequence[tuple[float, PeerResponse]]
    """The responses, each with its seconds after the search began to run, in order."""
    responses_max: int
    files_max: int
    cancelled_at: float | None = None
    end: str = ""
    """How the search ends, if not as its course says: Errored."""


@frozen(kw_only=True)
class Course:
    """When a search runs, which responses it receives at which time, and how it ends."""

    begins_at: float
    """Infinite for a search that was cancelled in the queue."""
    ends_at: float
    end: str
    came: tuple[tuple[float, PeerResponse], ...] = ()

    def received(self, now: float) -> list[PeerResponse]:
        """The responses received so far."""
        return [response for at, response in self.came if at <= now]


def courses(searches: Iterable[PlayedSearch], *, running_max: int, cancel_takes_s: float) -> list[Course]:
    """The course of each search, in the order in which they were asked for. The others wait while `running_max` run."""
    free_at = [-math.inf] * running_max
    planned = []
    for search in searches:
        course = _course(search, max(search.ready_at, free_at[0]))
        if search.cancelled_at is not None:
            course = _cancelled(course, search.cancelled_at, search.cancelled_at + cancel_takes_s)
        if course.begins_at < math.inf:
            heapq.heapreplace(free_at, course.ends_at)
        planned.append(evolve(course, end=search.end or course.end))
    return planned


def _course(search: PlayedSearch, begins_at: float) -> Course:
    came: list[tuple[float, PeerResponse]] = []
    files, last_at = 0, begins_at
    for after_s, response in search.arrivals:
        at = begins_at + after_s
        if at > last_at + search.quiet_s:
            break
        came.append((at, response))
        files, last_at = files + len(response.files), at
        is_full = len(came) >= search.responses_max
        if is_full or files >= search.files_max:
            end = "ResponseLimitReached" if is_full else "FileLimitReached"
            return Course(begins_at=begins_at, ends_at=at, end=end, came=tuple(came))
    return Course(begins_at=begins_at, ends_at=last_at + search.quiet_s, end="TimedOut", came=tuple(came))


def _cancelled(course: Course, cancelled_at: float, ends_at: float) -> Course:
    """A cancelled search keeps what it has received."""
    if cancelled_at <= course.begins_at:
        return Course(begins_at=math.inf, ends_at=ends_at, end="Cancelled")
    if ends_at >= course.ends_at:
        return course
    return evolve(course, ends_at=ends_at, end="Cancelled", came=tuple(one for one in course.came if one[0] <= ends_at))


def terms_of(text: str) -> tuple[list[str], list[str]]:
    """The words that must be in a path, and those that must not. slskd leaves out words of one letter."""
    words = text.lower().split()
    wanted = [word for word in words if len(word) > 1 and not word.startswith("-")]
    return wanted, [word[1:] for word in words if word.startswith("-") and len(word) > 1]


def peers_matching(peers: Iterable[PeerResponse], text: str) -> list[PeerResponse]:
    """The peers that share at least one file for this text."""
    wanted, excluded = terms_of(text)

    def has(file: PeerFile) -> bool:
        path = file.filename.lower()
        return all(word in path for word in wanted) and not any(word in path for word in excluded)

    return [peer for peer in peers if any(map(has, peer.files + peer.locked_files))]
