"""How is a search told? Each source in one line, finds of several sources once, the best seeded first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from attrs import evolve, frozen

from cormorant.cli.console.output import table
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, RateLimitWaitError
from cormorant.rules.search.reasons import Explanation, next_opening, whole_second
from cormorant.rules.search.requests import Result, SearchRequest
from cormorant.rules.secrets import Secret, hide_secrets
from cormorant.rules.units import clock_time, format_duration, rough

__all__ = ["MergedResult", "SearchText", "SourceLine", "merged", "search_json"]

_COLOURS = {
    OutcomeStatus.FOUND: "green",
    OutcomeStatus.DEDUPLICATED: "green",
    OutcomeStatus.RATE_LIMITED: "yellow",
    OutcomeStatus.CANCELLED: "yellow",
}
_STATES = {
    OutcomeStatus.RATE_LIMITED: "not asked",
    OutcomeStatus.DEDUPLICATED: "asked by another",
    OutcomeStatus.SHUT_DOWN: "stopped",
}
_SIZES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_OLD_S = 2 * 365 * 86_400.0


@frozen(kw_only=True)
class MergedResult:
    """A result and the sources that have it."""

    result: Result
    sources: tuple[str, ...]


@frozen
class SourceLine:
    """A source in a line: its state in a word or two, what there is to say, and a colour."""

    state: str
    said: str
    colour: str


def merged(outcomes: Sequence[Outcome]) -> list[MergedResult]:
    """What was found, each torrent once whoever has it, with most seeders first and then the newest."""
    finds: dict[str, MergedResult] = {}
    for outcome in outcomes:
        for result in outcome.results:
            key = (result.infohash or "").lower() or f"{outcome.source} {result.guid}"
            there = finds.get(key)
            if there is None:
                finds[key] = MergedResult(result=result, sources=(outcome.source,))
            elif outcome.source not in there.sources:
                better = result if (result.seeders or 0) > (there.result.seeders or 0) else there.result
                finds[key] = evolve(there, result=better, sources=(*there.sources, outcome.source))
    return sorted(finds.values(), key=_rank)


def _rank(find: MergedResult) -> tuple[int, float, str]:
    result = find.result
    seeders = -1 if result.seeders is None else result.seeders
    return -seeders, -(result.published.timestamp() if result.published else 0.0), result.title


@frozen(kw_only=True)
class SearchText:
    """Words for one search. `explain` says why a source waits, `started` since when it is being asked."""

    explain: Callable[[str], Explanation]
    started: Mapping[str, datetime]
    zone: tzinfo
    secrets: tuple[Secret, ...] = ()

    def line(self, source: str, outcome: Outcome | None, *, now: datetime) -> SourceLine:
        """How it stands with one source."""
        if outcome is not None:
            return self._ended(outcome)
        since = self.started.get(source)
        if since is not None:
            return SourceLine("asked", f"for {rough((now - since).total_seconds())}", "cyan")
        return self._waiting(source, now)

    def _waiting(self, source: str, now: datetime) -> SourceLine:
        explanation = self.explain(source)
        if not explanation.gates:
            return SourceLine("next", "", "cyan")
        # The one that opens last is the one that is waited for.
        gate = max(explanation.gates, key=lambda each: each.opens_at or datetime.max.replace(tzinfo=UTC))
        opens_at = explanation.opens_at or next_opening(explanation.gates, now=now)
        if opens_at is None:
            return SourceLine("waits", gate.why, "yellow")
        left = f"{max(0.0, (opens_at - now).total_seconds()):.0f} s"
        return SourceLine(
            "waits", f"{left}, until {clock_time(whole_second(opens_at), now, self.zone)}: {gate.why}", "yellow"
        )

    def _ended(self, outcome: Outcome) -> SourceLine:
        state = _STATES.get(outcome.status, outcome.status.value)
        colour = _COLOURS.get(outcome.status, "red")
        return SourceLine(state, self.why(outcome) if not outcome.is_answer else _answer(outcome), colour)

    def why(self, outcome: Outcome) -> str:
        """Why a source did not answer, without secrets."""
        if outcome.error is None:
            return ""
        said = str(outcome.error).removeprefix(f"{outcome.source} is not asked: ")
        if isinstance(outcome.error, RateLimitWaitError):
            said = self._too_late(outcome.source, outcome.error)
        return hide_secrets(" ".join(said.split()), self.secrets)

    def _too_late(self, source: str, error: RateLimitWaitError) -> str:
        gates = self.explain(source).gates
        why = f": {gates[-1].why}" if gates else ""
        if error.wait_s is None:
            return f"nobody knows when it opens{why}"
        most = "" if error.max_wait_s is None else f" and --max-wait is {format_duration(error.max_wait_s)}"
        return f"it opens in {rough(error.wait_s)}{most}{why}"

    def results(self, finds: Sequence[MergedResult], *, left: int, now: datetime) -> Iterator[str]:
        """The finds as a table; the title last, for it may be long."""
        if not finds:
            yield "nothing found"
            return
        rows = [
            [
                _size(find.result.size_bytes),
                _age(find.result.published, now),
                "-" if find.result.seeders is None else str(find.result.seeders),
                ", ".join(find.sources),
                find.result.title,
            ]
            for find in finds
        ]
        head = ("SIZE", "AGE", "SEEDERS", "SOURCE", "TITLE")
        yield from table(head, rows, right=head[:3])
        if left:
            yield f"{left:,} more: --limit {len(finds) + left}"


def _answer(outcome: Outcome) -> str:
    count = len(outcome.results)
    how = "kept from an earlier search" if outcome.is_cached else f"in {outcome.took_s:.1f} s"
    waited = f", after waiting {rough(outcome.waited_s)}" if outcome.waited_s >= 1 else ""
    cut = ", cut short by the time-out: there may be more" if outcome.was_cut else ""
    return f"{count:,} {'result' if count == 1 else 'results'} {how}{waited}{cut}"


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "-"
    unit, name = next((each for each in _SIZES if size_bytes >= each[0]), (1, "B"))
    return f"{size_bytes / unit:.1f} {name}" if unit > 1 else f"{size_bytes} {name}"


def _age(published: datetime | None, now: datetime) -> str:
    if published is None:
        return "-"
    seconds = (now - published).total_seconds()
    return f"{seconds / (365.25 * 86_400):.0f} y" if seconds >= _OLD_S else rough(max(0.0, seconds))


def search_json(
    request: SearchRequest, outcomes: Sequence[Outcome], finds: Sequence[MergedResult], words: SearchText
) -> dict[str, Any]:
    """The whole for programs. Links are left out: they carry keys."""
    return {
        "query": request.query,
        "kind": request.kind,
        "categories": list(request.categories),
        "sources": [
            {
                "source": outcome.source,
                "status": outcome.status.value,
                "results": len(outcome.results),
                "error": words.why(outcome) or None,
                "waited_s": outcome.waited_s,
                "took_s": outcome.took_s,
                "is_cached": outcome.is_cached,
                "was_cut": outcome.was_cut,
            }
            for outcome in outcomes
        ],
        "results": [_result_json(find) for find in finds],
    }


def _result_json(find: MergedResult) -> dict[str, Any]:
    result = find.result
    return {
        "title": result.title,
        "sources": list(find.sources),
        "protocol": result.protocol,
        "size_bytes": result.size_bytes,
        "published": result.published,
        "seeders": result.seeders,
        "peers": result.peers,
        "grabs": result.grabs,
        "categories": list(result.categories),
        "is_freeleech": result.is_freeleech,
        "infohash": result.infohash,
        "guid": result.guid,
        "details": result.details,
    }
