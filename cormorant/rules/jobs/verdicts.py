"""Snooze, Retry, Fail, Cancel, and what follows from an error."""

from __future__ import annotations

from attrs import frozen

from cormorant.rules.errors import leaves_of
from cormorant.rules.jobs.states import RetryPolicy, Verb, delay_before_retry

DELAY_S_MAX = 100 * 366 * 86_400.0
"""A hundred years. Beyond the end of the calendar nobody could write down when the job is due."""


class HandlerOutcome(Exception):
    """Raised by a handler to say how its job goes on."""


class Snooze(HandlerOutcome):
    """Run me again in so many seconds. No attempt is counted."""

    seconds: float = 60.0
    """As a subclass has it whose `__init__` does not call ours."""

    def __init__(self, seconds: float) -> None:
        self.seconds = _checked_delay(seconds)
        super().__init__(f"snoozed for {self.seconds:g} s")


class Retry(HandlerOutcome):
    """This attempt failed; try again, after the usual back-off or after `delay_s`."""

    delay_s: float | None = None

    def __init__(self, reason: str, *, delay_s: float | None = None) -> None:
        super().__init__(reason)
        self.delay_s = None if delay_s is None else _checked_delay(delay_s)


class Fail(HandlerOutcome):
    """This will never work: no more attempts."""


class Cancel(HandlerOutcome):
    """This is no longer wanted: end it without calling it a failure."""


@frozen(kw_only=True)
class Verdict:
    """What to do with the job, and when it is due again."""

    verb: Verb
    delay_s: float = 0.0
    error: BaseException | None = None


DONE = Verdict(verb=Verb.COMPLETE)
_STRICTEST_FIRST = (Fail, Cancel, Retry, Snooze)


def verdict_on(error: BaseException | None, *, attempts: int, policy: RetryPolicy, jitter: float) -> Verdict:
    """What follows from an error that a handler raised, or from none.

    `attempts` is how many failed before this one. Errors that say `is_permanent` end the job, all others are tried
    again. In a group, as a handler's own nursery raises it, the strictest word counts. Classes of others may raise here.

    >>> verdict_on(Snooze(30), attempts=0, policy=RetryPolicy(), jitter=0.5)
    Verdict(verb=<Verb.SNOOZE: 'snooze'>, delay_s=30.0, error=None)
    >>> verdict_on(ValueError("no"), attempts=0, policy=RetryPolicy(base_s=300), jitter=0.5).delay_s
    300.0
    """
    if error is None:
        return DONE
    leaves = list(leaves_of(error))
    spoken = _first_of(leaves)
    if isinstance(spoken, Snooze):
        return Verdict(verb=Verb.SNOOZE, delay_s=_checked_delay(spoken.seconds))
    if isinstance(spoken, Cancel | Fail):
        return Verdict(verb=Verb.CANCEL if isinstance(spoken, Cancel) else Verb.FAIL, error=spoken)
    if spoken is None and any(getattr(type(leaf), "is_permanent", False) for leaf in leaves):
        return Verdict(verb=Verb.FAIL, error=error)
    delay_s = spoken.delay_s if isinstance(spoken, Retry) else None
    if delay_s is None:
        delay_s = delay_before_retry(policy, attempts=attempts + 1, jitter=jitter)
    return Verdict(verb=Verb.RETRY, delay_s=_checked_delay(delay_s), error=spoken or error)


def _checked_delay(seconds: float) -> float:
    if not 0 <= seconds <= DELAY_S_MAX:
        raise ValueError(f"a job cannot be put off by {seconds!r} s: give 0 to {DELAY_S_MAX:.0f}")
    return float(seconds)  # of a Decimal, say, nobody could make a time


def _first_of(leaves: list[BaseException]) -> BaseException | None:
    # A group that holds another error besides a snooze is a failure: the snooze does not excuse it.
    if any(isinstance(leaf, Fail | Cancel | Retry) for leaf in leaves) or all(
        isinstance(leaf, Snooze) for leaf in leaves
    ):
        return next(leaf for kind in _STRICTEST_FIRST for leaf in leaves if isinstance(leaf, kind))
    return None
