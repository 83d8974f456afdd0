"""Does somebody ask too often, or try keys? Counted for each address; only the latest are remembered."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from attrs import define, field

__all__ = ["LogThrottle", "LruCache", "TokenBuckets", "WrongKeys"]

REMEMBERED_MAX: Final = 10_000
BLOCKED_S: Final = 60.0
"""How long an address waits that has tried too many keys, and how long its tries count."""
SAID_S: Final = 60.0

T = TypeVar("T")


@define(eq=False)
class LruCache(Generic[T]):
    """Values by name; when there are too many the one that was not used for longest is forgotten."""

    at_most: int = REMEMBERED_MAX
    _values: OrderedDict[str, T] = field(init=False, factory=OrderedDict)

    def get(self, name: str) -> T | None:
        """What is remembered."""
        return self._values.get(name)

    def put(self, name: str, value: T) -> None:
        """Remember."""
        self._values[name] = value
        self._values.move_to_end(name)
        if len(self._values) > self.at_most:
            self._values.popitem(last=False)

    def forget(self, name: str) -> None:
        """Forget."""
        self._values.pop(name, None)

    def __len__(self) -> int:
        return len(self._values)


@define(eq=False, kw_only=True)
class TokenBuckets:
    """A bucket of tokens for each visitor, filled steadily.

    >>> buckets = TokenBuckets(per_s=2.0, burst=2.0)
    >>> [buckets.take("a", now=0.0), buckets.take("a", now=0.0), buckets.take("a", now=0.0), buckets.take("b", now=0.0)]
    [0.0, 0.0, 0.5, 0.0]
    """

    per_s: float
    burst: float
    _levels: LruCache[tuple[float, float]] = field(init=False, factory=LruCache)

    def take(self, visitor: str, *, now: float) -> float:
        """Take a token: 0, or the seconds until there is one."""
        level, since = self._levels.get(visitor) or (self.burst, now)
        level = min(self.burst, level + max(0.0, now - since) * self.per_s)
        is_taken = level >= 1.0
        self._levels.put(visitor, (level - 1.0 if is_taken else level, now))
        return 0.0 if is_taken else (1.0 - level) / self.per_s


@define(eq=False)
class LogThrottle:
    """What was said within the last minute, so that a flood of the same is one line."""

    for_s: float = SAID_S
    _said: LruCache[tuple[float, int]] = field(init=False, factory=LruCache)

    def is_news(self, what: str, *, now: float) -> bool:
        """Whether it is to be said; it is then taken as said.

        >>> said = LogThrottle()
        >>> said.is_news("a", now=0.0), said.is_news("a", now=59.0), said.is_news("a", now=61.0)
        (True, False, True)
        """
        return self.say_or_count(what, now=now) is not None

    def say_or_count(self, what: str, *, now: float) -> int | None:
        """Take it as said now and return how often it was left out since the last time.

        None: it was said within the last minute, and is counted as left out.

        >>> said = LogThrottle()
        >>> [said.say_or_count("a", now=now) for now in (0.0, 30.0, 59.0, 60.0, 120.0)]
        [0, None, None, 2, 0]
        """
        at, count = self._said.get(what) or (None, 0)
        if at is not None and now - at < self.for_s:
            self._said.put(what, (at, count + 1))
            return None
        self._said.put(what, (now, 0))
        return count


@define
class _KeyAttempts:
    since: float
    count: int = 0
    blocked_until: float | None = None


@define(eq=False, kw_only=True)
class WrongKeys:
    """Who has tried wrong keys, and who was let in before with a right one.

    While an address is blocked no key is looked at, so that the answers tell nothing; but whoever was let in from there
    before goes on, so that one app with an old key does not lock out those beside it.
    """

    per_minute: int
    _tries: LruCache[_KeyAttempts] = field(init=False, factory=LruCache)
    _let_in: LruCache[bool] = field(init=False, factory=LruCache)

    def wait_s(self, address: str, mark: str, *, now: float) -> float:
        """How long an address has to wait before its keys are looked at again. `mark` stands for the key, and is none."""
        tries = self._tries.get(address)
        if tries is None or tries.blocked_until is None or now >= tries.blocked_until:
            return 0.0
        return 0.0 if self._let_in.get(f"{address} {mark}") else tries.blocked_until - now

    def wrong(self, address: str, *, now: float) -> bool:
        """Count a wrong key. Whether the address is blocked by it."""
        tries = self._tries.get(address)
        if tries is None or now - tries.since >= BLOCKED_S:
            tries = _KeyAttempts(since=now)
        tries.count += 1
        if tries.count >= self.per_minute and tries.blocked_until is None:
            tries.blocked_until = now + BLOCKED_S
            # Counted from here, or the block would be forgotten before it ends.
            tries.since = now
            self._tries.put(address, tries)
            return True
        self._tries.put(address, tries)
        return False

    def right(self, address: str, mark: str) -> None:
        """Remember who was let in."""
        self._let_in.put(f"{address} {mark}", True)  # noqa: FBT003 - what is remembered is that it was
