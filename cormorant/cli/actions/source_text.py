"""Sources as text, without keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from urllib.parse import urlsplit

from attrs import frozen

from cormorant.cli.console.output import painter, printable, table
from cormorant.rules.search.limits import Lane, WindowName
from cormorant.rules.search.priorities import Priority, multiplier
from cormorant.rules.search.reasons import Explanation, Reason, ReasonName, whole_second
from cormorant.rules.search.requests import KINDS, Caps, Category
from cormorant.rules.units import clock_time, from_now
from storage.search.source_views import SourceView, WindowSpend

__all__ = ["SourceText", "caps_lines", "host_of", "sentence_of", "state_of"]

_WHO = {
    Priority.INTERACTIVE: "of a person",
    Priority.RSS: "for a feed",
    Priority.COMPLETION: "of an app that lacks something",
    Priority.BACKGROUND: "for which nobody waits",
}
_QUOTAS = {
    ReasonName.MINUTE: WindowName.MINUTE,
    ReasonName.HOUR: WindowName.HOUR,
    ReasonName.DAY: WindowName.DAY,
    ReasonName.RESET: WindowName.DAY,
    ReasonName.MONTH: WindowName.MONTH,
}
_STATES = {ReasonName.STOPPED: "stopped", ReasonName.ENABLED: "disabled", ReasonName.PAUSED: "paused"}
_CATEGORIES_SHOWN = 12


def host_of(url: str) -> str:
    """Where a source is. No more of its address is shown: in some sites' paths there are keys."""
    return urlsplit(url).netloc


def state_of(explanation: Explanation) -> str:
    """The state in a line: open, or what is longest in the way.

    A gate that only a person can open comes first: nothing else helps.
    """
    if not explanation.reasons:
        return "open"
    for reason, line in zip(explanation.reasons, explanation.lines, strict=False):
        if reason.name in _STATES:
            until = line.partition(" until ")[2].partition(": ")[0] if reason.opens_at else ""
            return f"{_STATES[reason.name]} until {until}" if until else f"{_STATES[reason.name]}: {reason.why}"
    pairs = list(zip(explanation.reasons, explanation.lines, strict=False))
    unknown = [line for reason, line in pairs if reason.opens_at is None]
    return unknown[0] if unknown else max(pairs, key=_opening)[1]


def sentence_of(state: str) -> str:
    """The state as a part of a sentence.

    >>> sentence_of("open"), sentence_of("waits for pace until 12:00:06")
    ('it is open', 'it waits for pace until 12:00:06')
    """
    return f"it {state}" if state.startswith("waits ") else f"it is {state}"


def _opening(pair: tuple[Reason, str]) -> float:
    return pair[0].opens_at.timestamp() if pair[0].opens_at else 0.0


@frozen(kw_only=True)
class SourceText:
    """Words in one zone. `config` is the settings file as it was named."""

    zone: tzinfo
    config: str

    def listed(self, looks: Sequence[SourceView]) -> Iterator[str]:
        """The list of sources."""
        if not looks:
            yield f"no sources yet; add one: cormorant sources add NAME URL, or [sources.NAME] in {self.config}"
            return
        rows = [
            [
                look.record.name,
                look.record.kind,
                host_of(look.record.url),
                _share(look, Lane.QUERY, WindowName.HOUR) or str(look.queries_this_hour),
                _share(look, Lane.QUERY, WindowName.DAY) or str(look.queries_today),
                _share(look, Lane.GRAB, WindowName.DAY) or "-",
                state_of(look.explain(Priority.INTERACTIVE, zone=self.zone)),
            ]
            for look in looks
        ]
        head = ("NAME", "KIND", "HOST", "THIS HOUR", "TODAY", "GRABS", "STATE")
        yield from table(head, rows, right=head[3:6], paint=_PAINT)

    def explained(self, look: SourceView, priority: Priority, lane: Lane) -> Iterator[str]:
        """The gates in order, and when the next request can go."""
        record = look.record
        explanation = look.explain(priority, lane, zone=self.zone)
        origin = f"of {self.config}" if look.is_configured else "added by command"
        yield f"{record.name}  {record.kind}  {printable(host_of(record.url))}  {origin}"
        what = "search" if lane is Lane.QUERY else "download"
        yield f"a {what} {_WHO[priority]} {self._when(explanation.opens_at, look.now)}"
        yield ""
        yield from table(("GATE", "OPENS", "WHY"), list(self._reasons(look, explanation, priority, lane)), paint=_PAINT)
        if len(explanation.lines) > max(1, len(explanation.reasons)):
            yield explanation.lines[-1]

    def _when(self, opens_at: datetime | None, now: datetime) -> str:
        if opens_at is None:
            return "cannot go, and nobody knows when it can"
        if opens_at <= now:
            return "can go now"
        return f"can go {from_now(opens_at, now)}, at {clock_time(whole_second(opens_at), now, self.zone)}"

    def _reasons(
        self, look: SourceView, explanation: Explanation, priority: Priority, lane: Lane
    ) -> Iterator[list[str]]:
        closed = {reason.name: reason for reason in explanation.reasons}
        for name in ReasonName:
            if name is (ReasonName.RESET if look.limits.reset is None else ReasonName.DAY):
                continue  # of the two ways to count a day one holds
            reason = closed.get(name)
            if reason is None:
                yield [name.value, "open", self._open(look, name, priority, lane)]
            else:
                at = clock_time(whole_second(reason.opens_at), look.now, self.zone) if reason.opens_at else "unknown"
                yield [name.value, at, reason.why]

    def _open(self, look: SourceView, name: ReasonName, priority: Priority, lane: Lane) -> str:
        limits, state = look.limits, look.known.state
        if name in _QUOTAS:
            return self._quota(look, _QUOTAS[name], lane)
        told = {
            ReasonName.BREAKER: f"failed {state.failure_streak} times in a row" if state.failure_streak > 1 else "",
            ReasonName.IN_FLIGHT: f"{limits.in_flight_max} allowed at once",
            ReasonName.SPACING: f"{limits.spacing_s:g} s between requests{_learned(look, 'spacing_s')}",
            ReasonName.PACE: f"{priority.name.lower()} work keeps {limits.pace_s * multiplier(priority):g} s apart",
        }
        return told.get(name, "")

    def _quota(self, look: SourceView, window: WindowName, lane: Lane) -> str:
        spent = _spent(look, lane, window)
        if spent is None:
            return "no limit"
        name = f"per_{window.value}" if lane is Lane.QUERY or window is WindowName.MINUTE else f"grabs_per_{window}"
        since = (
            f"since {clock_time(spent.since, look.now, self.zone)}" if spent.window.reset else "counted back from now"
        )
        return f"{spent.count} of {spent.window.whole} spent, {since}{_learned(look, name)}"


def caps_lines(name: str, caps: Caps) -> Iterator[str]:
    """What a source said it can do."""
    kinds = [kind for kind in KINDS if kind in caps.searching]
    categories = [each for top in caps.categories for each in (top, *top.children)]
    yield f"{name} answers{f': {printable(caps.title)}' if caps.title else ''}"
    yield f"  searches    {', '.join(kinds) or 'it does not say which'}"
    yield f"  page size   {caps.page_size}"
    yield f"  categories  {len(categories)}{_examples(caps.categories)}"


def _examples(categories: Sequence[Category]) -> str:
    shown = ", ".join(f"{each.id} {printable(each.name)}" for each in categories[:_CATEGORIES_SHOWN])
    return f": {shown}{', …' if len(categories) > _CATEGORIES_SHOWN else ''}" if shown else ""


def _spent(look: SourceView, lane: Lane, window: WindowName) -> WindowSpend | None:
    return next((each for each in look.spent if each.lane is lane and each.window.name is window), None)


def _share(look: SourceView, lane: Lane, window: WindowName) -> str:
    spent = _spent(look, lane, window)
    return "" if spent is None else f"{spent.count}/{spent.window.whole}"


def _learned(look: SourceView, name: str) -> str:
    """Whether a limit is the site's own word."""
    ours, holds = getattr(look.record.limits, name), getattr(look.limits, name)
    if ours == holds:
        return ""
    return " (the site says so)" if ours is None else f" (the site says so; {ours:g} are configured)"


_PAINT = painter({"open": "green"})
