"""Checks of incoming requests: framing, trusted proxies, token buckets and wrong keys; LruCache."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from attrs import define, field

PATH_BYTES_MAX: Final = 4_000
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_CONTROL_MAX: Final = 0x1F
_DELETE: Final = 0x7F


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """Headers by lower-case name."""
    found: dict[str, list[str]] = {}
    for name, value in raw:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def path_problem(raw: bytes) -> str | None:
    """What is wrong with a path as it was sent.

    >>> path_problem(b"/gate/red/api"), path_problem(b"/api/%2e%2e/etc"), path_problem(b"/a//b")
    (None, 'the path climbs', 'the path has an empty part')
    """
    if len(raw) > PATH_BYTES_MAX:
        return f"the path is longer than {PATH_BYTES_MAX} bytes"
    path = unquote_to_bytes(raw)
    if not path.startswith(b"/"):
        return "the path does not begin with /"
    if b"\\" in path or any(byte <= _CONTROL_MAX or byte == _DELETE for byte in path):
        return "the path holds a control character or a backslash"
    try:
        path.decode()
    except UnicodeDecodeError:
        return "the path is not UTF-8"
    parts = path[1:].split(b"/")
    if any(part in {b".", b".."} for part in parts):
        return "the path climbs"
    return "the path has an empty part" if b"" in parts[:-1] else None


def framing_problem(headers: Mapping[str, list[str]]) -> str | None:
    """Whether two programs could disagree where the request ends, or whom it is for.

    >>> framing_problem({"host": ["a"], "content-length": ["4"], "transfer-encoding": ["chunked"]})
    'it has both Content-Length and Transfer-Encoding'
    """
    lengths, codings = headers.get("content-length", []), headers.get("transfer-encoding", [])
    if lengths and codings:
        return "it has both Content-Length and Transfer-Encoding"
    if len(set(lengths)) > 1 or any(not _DIGITS.fullmatch(length) for length in lengths):
        return "its Content-Length is not one number"
    if any(coding.strip().lower() != "chunked" for coding in codings):
        return "its Transfer-Encoding is not chunked"
    hosts = headers.get("host", [])
    if len(hosts) > 1 or (hosts and hosts[0] and forwarded_host(hosts[0]) != hosts[0]):
        return "its Host is not the name of one"
    return None


def body_bytes(headers: Mapping[str, list[str]]) -> int | None:
    """How long the body is as the request says; None: it does not say.

    >>> body_bytes({}), body_bytes({"content-length": ["12"]}), body_bytes({"transfer-encoding": ["chunked"]})
    (0, 12, None)
    """
    if "transfer-encoding" in headers:
        return None
    return int(headers.get("content-length", ["0"])[0])


Network = IPv4Network | IPv6Network

_HOPS_MAX: Final = 20
_IPV6_PREFIX: Final = 64
_HOST: Final = re.compile(
    r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?)(?::[0-9]{1,5})?"
)


def forwarded_client(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """Who asks: the last address that no trusted proxy has written; all before it anybody may have made up.

    >>> trusted = [ip_network("10.0.0.0/8")]
    >>> forwarded_client("10.0.0.1", "6.6.6.6, 203.0.113.7, 10.0.0.2", trusted)
    '203.0.113.7'
    >>> forwarded_client("203.0.113.9", "127.0.0.1", trusted)
    '203.0.113.9'
    """
    client = peer
    for hop in reversed(forwarded_for.split(",")[-_HOPS_MAX:]):
        if not is_within(client, trusted):
            break
        told = _address(hop)
        if told is None:
            break
        client = told
    return client


def forwarded_host(text: str) -> str | None:
    """The name under which a proxy was asked; None: it is none.

    >>> forwarded_host("birds.example:8443"), forwarded_host("birds.example/../x")
    ('birds.example:8443', None)
    """
    first = text.partition(",")[0].strip()
    return first if _HOST.fullmatch(first) else None


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Whether an address is in one of the networks."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)


def address_group(address: str) -> str:
    """Whom limits count as one: an address, or the network that one who has IPv6 has as a whole.

    >>> address_group("203.0.113.7"), address_group("::ffff:203.0.113.7"), address_group("2001:db8::17")
    ('203.0.113.7', '203.0.113.7', '2001:db8::/64')
    """
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return address if found.is_loopback else str(ip_network((int(found), _IPV6_PREFIX), strict=False))


def _address(text: str) -> str | None:
    bare = text.strip().strip('"')
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return str(ip_address(bare))
    except ValueError:
        return None


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

    def should_log(self, what: str, *, now: float) -> bool:
        """Whether it is to be said; it is then taken as said.

        >>> said = LogThrottle()
        >>> said.should_log("a", now=0.0), said.should_log("a", now=59.0), said.should_log("a", now=61.0)
        (True, False, True)
        """
        return self.log_or_count(what, now=now) is not None

    def log_or_count(self, what: str, *, now: float) -> int | None:
        """Take it as said now and return how often it was left out since the last time.

        None: it was said within the last minute, and is counted as left out.

        >>> said = LogThrottle()
        >>> [said.log_or_count("a", now=now) for now in (0.0, 30.0, 59.0, 60.0, 120.0)]
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
