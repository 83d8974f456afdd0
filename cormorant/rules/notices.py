"""Which events become notices, how they are batched and worded, and quiet hours.

A new kind of notice is a member of `NoticeKind`, a title, and a function in `_TELLERS` for the event that brings it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

from cormorant.rules.events import DiskLow, Event
from cormorant.rules.search.events import SourceStopped
from cormorant.rules.secrets import redact_passwords
from cormorant.rules.units import as_written, format_size, parse_time_of_day, zone_of
from cormorant.rules.watch.events import HandoverSent, WantChanged
from cormorant.rules.watch.prices import PriceAlert
from cormorant.rules.watch.wants import WantState

SHOWN: Final = 5
"""Notices of a kind that are told in full; of the others their number."""

KEYS_MAX: Final = 200
"""Keys of a kind that a batch knows; a notice that comes again is not counted twice."""

_LINE_MAX: Final = 300


class NoticeKind(StrEnum):
    """What a person may want to be told."""

    ACCOUNT_DANGER = "account-danger"
    HANDED_OVER = "handed-over"
    GAVE_UP = "gave-up"
    PRICE_ALERT = "price-alert"
    DISK = "disk"


_TITLES: Final[Mapping[NoticeKind, str]] = {
    NoticeKind.ACCOUNT_DANGER: "An account is in danger",
    NoticeKind.HANDED_OVER: "Handed over",
    NoticeKind.GAVE_UP: "Given up",
    NoticeKind.PRICE_ALERT: "Price alert",
    NoticeKind.DISK: "The disk is nearly full",
}


@frozen(kw_only=True)
class Notice:
    """One thing to tell. Two of one key are the same thing; the later one counts."""

    kind: NoticeKind
    key: str
    line: str


def notice_of(event: Event) -> Notice | None:
    """What a person is told of an event; None: nothing."""
    teller = _TELLERS.get(type(event))
    return None if teller is None else teller(event)


def _notice(kind: NoticeKind, key: object, line: str) -> Notice:
    # Titles and reasons are what others wrote.
    plain = " ".join("".join(mark if mark.isprintable() else " " for mark in redact_passwords(line)).split())
    shown = plain if len(plain) <= _LINE_MAX else f"{plain[: _LINE_MAX - 1]}…"
    return Notice(kind=kind, key=str(key)[:_LINE_MAX], line=shown)


def _source_stopped(event: SourceStopped) -> Notice:
    remedy = f"It is not asked any more. Correct its key, then: cormorant sources reset {event.source}"
    return _notice(
        NoticeKind.ACCOUNT_DANGER, event.source, f"{event.source} refused our credentials ({event.because}). {remedy}"
    )


def _handover_sent(event: HandoverSent) -> Notice:
    return _notice(NoticeKind.HANDED_OVER, event.want, f"{event.title}: handed to {event.target}")


def _want_changed(event: WantChanged) -> Notice | None:
    """What is done was handed over before, which was told then, maybe by another process: that is no news."""
    if event.state == WantState.GAVE_UP:
        remedy = f"To try again: cormorant wants retry {event.want}"
        return _notice(NoticeKind.GAVE_UP, event.want, f"{event.title}: {event.reason}. {remedy}")
    return None


def _disk_low(event: DiskLow) -> Notice:
    line = f"{event.free_bytes / 10**9:.1f} GB are left for {event.folder}, less than {format_size(event.wanted_bytes)}"
    return _notice(NoticeKind.DISK, event.folder, f"{line}. Make room: without it nothing can be remembered.")


def _price_alert(event: PriceAlert) -> Notice:
    value, limit = (f"{cents / 100:.2f} {event.currency}" for cents in (event.cents, event.limit_cents))
    return _notice(NoticeKind.PRICE_ALERT, event.price, f"{event.price} is {event.side} {limit}: {value}")


_TELLERS: Final[Mapping[type[Event], Callable[[Any], Notice | None]]] = {
    SourceStopped: _source_stopped,
    HandoverSent: _handover_sent,
    WantChanged: _want_changed,
    DiskLow: _disk_low,
    PriceAlert: _price_alert,
}


@frozen
class _NoticeText:
    """What is to be told of one kind: the first few in full, all of them by key, and how many keys found no room."""

    lines: Mapping[str, str] = field(factory=dict)
    keys: frozenset[str] = frozenset()
    beyond: int = 0

    def with_one(self, key: str, line: str | None) -> _NoticeText:
        lines, keys, beyond = dict(self.lines), self.keys, self.beyond
        if line is not None and (key in lines or len(lines) < SHOWN):
            lines[key] = line
        if key not in keys:
            if len(keys) < KEYS_MAX:
                keys |= {key}
            else:
                beyond += 1
        return _NoticeText(lines, keys, beyond)

    def with_all(self, other: _NoticeText) -> _NoticeText:
        told = self
        for key in [*other.lines, *sorted(other.keys - other.lines.keys())]:
            told = told.with_one(key, other.lines.get(key))
        return _NoticeText(told.lines, told.keys, told.beyond + other.beyond)

    @property
    def more(self) -> int:
        return len(self.keys) - len(self.lines) + self.beyond


@frozen
class NoticeBatch:
    """What is told together, bounded however much it is."""

    kinds: Mapping[NoticeKind, _NoticeText] = field(factory=dict)

    def with_notice(self, notice: Notice) -> NoticeBatch:
        """The same with one more."""
        told = self.kinds.get(notice.kind, _NoticeText()).with_one(notice.key, notice.line)
        return NoticeBatch({**self.kinds, notice.kind: told})

    def with_batch(self, later: NoticeBatch) -> NoticeBatch:
        """The same with what came later."""
        kinds = dict(self.kinds)
        for kind, told in later.kinds.items():
            kinds[kind] = kinds.get(kind, _NoticeText()).with_all(told)
        return NoticeBatch(kinds)


@frozen(kw_only=True)
class Message:
    """What a person reads."""

    title: str
    body: str


def message_of(batch: NoticeBatch) -> Message:
    """A batch in words, the most pressing kind first."""
    kinds = [kind for kind in NoticeKind if kind in batch.kinds]
    parts = []
    for kind in kinds:
        told = batch.kinds[kind]
        heading = [f"{_TITLES[kind]}:"] if len(kinds) > 1 else []
        parts.append("\n".join([*heading, *told.lines.values(), *([f"and {told.more} more"] if told.more else [])]))
    title = _TITLES[kinds[0]] if len(kinds) == 1 else "What happened meanwhile"
    return Message(title=f"Cormorant: {title}", body="\n\n".join(parts))


def written_batch(batch: NoticeBatch) -> Any:
    """A batch as it is kept in a job."""
    return {
        kind.value: {"lines": dict(told.lines), "keys": sorted(told.keys), "beyond": told.beyond}
        for kind, told in batch.kinds.items()
    }


def read_batch(kept: Any) -> NoticeBatch:
    """A batch that was kept. What this code does not know is left out: a newer process may have written it."""
    return NoticeBatch(
        {
            NoticeKind(kind): _NoticeText(dict(told["lines"]), frozenset(told["keys"]), int(told["beyond"]))
            for kind, told in kept.items()
            if kind in set(NoticeKind)
        }
    )


_MINUTE = timedelta(minutes=1)
_WRITTEN = re.compile(r"([0-9:]{4,5}) *- *([0-9:]{4,5}) +(\S+)")


@frozen
class QuietHours:
    """From one time of day to another, that of the next day if it is earlier, somewhere."""

    begin: time
    end: time
    zone: str = "UTC"


def parse_quiet_hours(value: object) -> QuietHours:
    """The hours that were written.

    >>> parse_quiet_hours("22:00-7:00 Europe/Berlin")
    QuietHours(begin=datetime.time(22, 0), end=datetime.time(7, 0), zone='Europe/Berlin')
    """
    found = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise _refusal(value)
    try:
        begin, end = (parse_time_of_day(f"{found[number]} {found[3]}") for number in (1, 2))
    except ValueError:
        raise _refusal(value) from None
    if begin == end:
        raise ValueError(f"{as_written(value)} begins when it ends; give two times")
    return QuietHours(begin.at, end.at, begin.zone)


def _refusal(value: object) -> ValueError:
    how = 'write them like "22:00-07:00 Europe/Berlin"'
    return ValueError(f"{as_written(value)} are no hours of the day with their zone; {how}")


def format_quiet_hours(hours: QuietHours) -> str:
    """The text of quiet hours: `parse_quiet_hours` gives the same back.

    >>> format_quiet_hours(QuietHours(time(22), time(7), "Europe/Berlin"))
    '22:00-07:00 Europe/Berlin'
    """
    return f"{hours.begin:%H:%M}-{hours.end:%H:%M} {hours.zone}"


def quiet_until(hours: QuietHours | None, now: datetime) -> datetime | None:
    """When the quiet hours end that are now; None: there are none now.

    >>> quiet_until(QuietHours(time(22), time(7)), datetime(2026, 1, 1, 23, tzinfo=UTC))
    datetime.datetime(2026, 1, 2, 7, 0, tzinfo=datetime.timezone.utc)
    >>> quiet_until(QuietHours(time(22), time(7)), datetime(2026, 1, 1, 7, tzinfo=UTC))
    """
    if hours is None:
        return None
    zone = zone_of(hours.zone)
    local = now.astimezone(zone)
    at = local.time()
    spans_midnight = hours.end < hours.begin
    if not _is_quiet(hours, at):
        return None
    day = local.date() + timedelta(days=1 if spans_midnight and at >= hours.begin else 0)
    ends = datetime.combine(day, hours.end, zone).astimezone(UTC)
    if ends.astimezone(zone).utcoffset() == local.utcoffset():
        return ends
    # The clock changes meanwhile: what it shows decides, minute by minute.
    moment = now.replace(second=0, microsecond=0)
    while moment <= now or _is_quiet(hours, moment.astimezone(zone).time()):
        moment += _MINUTE
    return moment


def _is_quiet(hours: QuietHours, at: time) -> bool:
    if hours.end < hours.begin:
        return at >= hours.begin or at < hours.end
    return hours.begin <= at < hours.end


def join_payloads(waiting: str, new: str) -> str:
    """The payload of a notification job that holds the notices of both."""
    earlier, later = json.loads(waiting), json.loads(new)
    both = read_batch(earlier["batch"]).with_batch(read_batch(later["batch"]))
    return json.dumps({**later, "batch": written_batch(both)})
