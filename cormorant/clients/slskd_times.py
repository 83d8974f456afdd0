"""The times of a search through slskd, derived from the time-out of the caller."""

from __future__ import annotations

from typing import Final

from attrs import frozen

__all__ = ["QUIET_MS_MIN", "SearchTimes", "search_times"]

QUIET_MS_MIN: Final = 5
"""slskd refuses a shorter silence. Its validation has no unit, and slskd uses the number as milliseconds."""

_QUIET_S_MAX: Final = 12.0
_QUIET_SHARE: Final = 1 / 3
_CUT_BEFORE_S: Final = 5.0
_CUT_SHARE: Final = 2 / 3
_GIVE_UP_SHARE: Final = 3 / 4
_POLL_S_MAX: Final = 0.5
_POLLS_MIN: Final = 60
_TIDY_S_MAX: Final = 3.0


@frozen(kw_only=True)
class SearchTimes:
    """The times of a search, in seconds after its start.

    slskd ends a search after a silence of `quiet_ms`, counted from the last response. A busy search is never silent: it
    is cancelled at `cut_s`, and its results so far are fetched. At `give_up_s`, before the time-out of the caller, the
    client stops waiting for them and raises an error with the reason.
    """

    timeout_s: float
    quiet_ms: int
    cut_s: float
    give_up_s: float
    poll_s: float

    @property
    def cancel_s(self) -> float:
        """The longest time for the answer to the cancellation. It leaves as much again for the results."""
        return (self.give_up_s - self.cut_s) / 2

    def tidy_s(self, *, after_s: float) -> float:
        """The longest time to remove the search, when that begins `after_s`.

        Before the time-out at most half of the time left: the caller still has to get the results. After the time-out the
        results are lost, and the search is removed all the same.
        """
        most_s = min(_TIDY_S_MAX, self.timeout_s / 3)
        left_s = self.timeout_s - after_s
        return min(most_s, left_s / 2) if left_s > 0 else most_s


def search_times(timeout_s: float) -> SearchTimes:
    """The times of a search whose caller waits for `timeout_s`.

    The silence is at most a third of the time-out. The search is cut 5 s before the time-out, or after two thirds of it
    where that is later: a short time-out would leave too little for the search otherwise.

    >>> for timeout_s in 300, 60, 30, 9, 1:
    ...     times = search_times(timeout_s)
    ...     print(timeout_s, times.quiet_ms, round(times.cut_s, 3), round(times.give_up_s, 3), round(times.poll_s, 3))
    300 12000 295.0 298.75 0.5
    60 12000 55.0 58.75 0.5
    30 10000 25.0 28.75 0.5
    9 3000 6.0 8.25 0.15
    1 333 0.667 0.917 0.017
    """
    timeout_s = max(0.0, timeout_s)
    cut_s = max(timeout_s - _CUT_BEFORE_S, timeout_s * _CUT_SHARE)
    return SearchTimes(
        timeout_s=timeout_s,
        # Rounded down, so that it is no more than a third.
        quiet_ms=max(QUIET_MS_MIN, int(min(_QUIET_S_MAX, timeout_s * _QUIET_SHARE) * 1000)),
        cut_s=cut_s,
        give_up_s=cut_s + (timeout_s - cut_s) * _GIVE_UP_SHARE,
        poll_s=min(_POLL_S_MAX, timeout_s / _POLLS_MIN),
    )
