"""OTP restart decisions, child states, wait order, probe back-off of an outage."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen

PROBE_BASE_S = 0.1
PROBE_CAP_S = 5.0

LOSSES_MAX = 3
"""How often a call may have lost its connection before it is taken for the cause."""


def delay_before_probe(*, failures: int, jitter: float) -> float:
    """Seconds before the next look, between half and the whole of 0.1 s doubling to 5 s.

    >>> [delay_before_probe(failures=n, jitter=1.0) for n in (0, 1, 2, 40)]
    [0.1, 0.2, 0.4, 5.0]
    """
    return _doubled(PROBE_BASE_S, PROBE_CAP_S, times=failures, jitter=jitter)


def _doubled(base_s: float, cap_s: float, *, times: int, jitter: float) -> float:
    """The base doubled so many times, at most the cap, and of that between half and the whole."""
    whole_s: float = min(cap_s, base_s * 2 ** min(times, _DOUBLINGS_MAX))
    return whole_s * (0.5 + jitter / 2)


def held_until(*, arrived_at: float, away_since: float, held_since: float | None, hold_s: float) -> float:
    """When a waiting call is given up. A call that was held before keeps its first deadline: it may be the cause.

    >>> held_until(arrived_at=5.0, away_since=2.0, held_since=None, hold_s=30.0)
    35.0
    >>> held_until(arrived_at=5.0, away_since=60.0, held_since=10.0, hold_s=30.0)
    40.0
    """
    begun_at = max(arrived_at, away_since) if held_since is None else held_since
    return begun_at + hold_s


class Restart(Enum):
    """Which endings a child is started again after."""

    PERMANENT = "permanent"
    """Always."""
    TRANSIENT = "transient"
    """Only after a crash."""
    TEMPORARY = "temporary"
    """Never."""


class Strategy(Enum):
    """Who is restarted with a child that must be restarted."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"


class OnExhausted(Enum):
    """What happens to a child that used up its restarts."""

    ESCALATE = "escalate"
    """The supervisor gives up, stops everything and raises `RestartsExhausted`."""
    SET_ASIDE = "set_aside"
    """The child stays stopped and is shown; the rest goes on."""


class Ending(Enum):
    """How a child ended."""

    RETURNED = "returned"
    """By itself."""
    STOPPED = "stopped"
    """Asked by its supervisor, within its grace."""
    CANCELLED = "cancelled"
    """By its supervisor, having no `stop()` of its own."""
    OVERRAN = "overran"
    """By its supervisor, having used up its grace or the supervisor's budget."""
    CRASHED = "crashed"


class ChildState(Enum):
    """Where a child is in its life."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing_off"
    STOPPING = "stopping"
    ENDED = "ended"
    SET_ASIDE = "set_aside"


@frozen
class ChildView:
    """What the supervisor shows of a child."""

    name: str
    state: ChildState
    restarts: int
    last_crash: BaseException | None
    children: tuple[ChildView, ...] = ()


def is_restarted(restart: Restart, ending: Ending) -> bool:
    """Whether a child that ended like this is started again.

    >>> [is_restarted(restart, Ending.RETURNED) for restart in Restart]
    [True, False, False]
    >>> [is_restarted(restart, Ending.CRASHED) for restart in Restart]
    [True, True, False]
    """
    if restart is Restart.TEMPORARY:
        return False
    if ending is Ending.CRASHED:
        return True
    return restart is Restart.PERMANENT and ending is Ending.RETURNED


def restarted_with(strategy: Strategy, names: Sequence[str], crashed: str) -> list[str]:
    """The siblings that are stopped and started together with `crashed`, in starting order, itself included.

    >>> restarted_with(Strategy.REST_FOR_ONE, ["a", "b", "c"], "b")
    ['b', 'c']
    """
    match strategy:
        case Strategy.ONE_FOR_ONE:
            return [crashed]
        case Strategy.ONE_FOR_ALL:
            return list(names)
        case Strategy.REST_FOR_ONE:
            return list(names[names.index(crashed) :])


def add_restart(restarts: Sequence[float], *, now: float, period_s: float) -> tuple[float, ...]:
    """The restarts within the last `period_s`, this one included.

    `now` is time spent running: a clock that stands still while a child waits out its back-off. On the wall clock,
    back-off would spread the restarts so far apart that nothing ever escalates.

    >>> add_restart((0.0, 4.0, 5.0), now=9.0, period_s=5.0)
    (4.0, 5.0, 9.0)
    """
    return (*(at for at in restarts if now - at <= period_s), now)


BACKOFF_BASE_S = 0.1
BACKOFF_CAP_S = 30.0
_DOUBLINGS_MAX = 16  # past the cap by far; a larger exponent would overflow one day


def delay_before_restart(*, crashes_in_a_row: int, jitter: float) -> float:
    """Seconds to wait before a child is started again, between half and the whole of 0.1 s doubling to 30 s.

    >>> [delay_before_restart(crashes_in_a_row=n, jitter=1.0) for n in (1, 2, 3, 40)]
    [0.1, 0.2, 0.4, 30.0]
    """
    return _doubled(BACKOFF_BASE_S, BACKOFF_CAP_S, times=crashes_in_a_row - 1, jitter=jitter)


@frozen
class Place:
    """Where in a tree of supervisors a child is: its numbers in the starting orders, from the root down.

    Children that are added later share the number after the last listed one.
    """

    root: object
    path: tuple[int, ...] = ()

    def below(self, number: int) -> Place:
        """The place of a child."""
        return Place(self.root, (*self.path, number))


def may_wait_for(waiter: Place | None, target: Place | None) -> bool:
    """Whether an actor may wait in a send to, or an answer from, another: only if the other was started earlier.

    A single direction prevents deadlocks on full mailboxes. Actors of different trees, or of none, are not restricted.

    >>> root = Place("root")
    >>> limiter, dispatcher = root.below(0).below(0), root.below(1)
    >>> may_wait_for(dispatcher, limiter), may_wait_for(limiter, dispatcher), may_wait_for(limiter, None)
    (True, False, True)
    """
    if waiter is None or target is None or waiter.root is not target.root:
        return True
    return target.path < waiter.path
