"""Watches, wants and downloads as text, without links and keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo

from attrs import frozen

from cormorant.cli.console.output import painter, pairs, printable, table
from cormorant.rules.units import clock_time, format_duration, from_now
from cormorant.rules.watch.handovers import HandoverState, TargetView
from cormorant.rules.watch.wants import WantState
from cormorant.services.watch.views import ArtistOut, CandidateOut, DownloadOut, SavedOut, WantOut, WantShownOut

__all__ = ["WatchText"]

_UNITS = ("B", "kB", "MB", "GB", "TB")
_THOUSAND = 1_000.0
_COLOURS = {
    WantState.DONE.value: "green",
    WantState.HANDED_OVER.value: "green",
    WantState.IN_DOUBT.value: "yellow",
    WantState.GAVE_UP.value: "red",
    HandoverState.HELD.value: "yellow",
    HandoverState.FAILED.value: "red",
    "paused": "yellow",
}
_PAINT = painter(_COLOURS)


@frozen(kw_only=True)
class WatchText:
    """Words for one look."""

    now: datetime
    zone: tzinfo
    is_live: bool

    def artists(self, found: Sequence[ArtistOut]) -> Iterator[str]:
        """The watchlist."""
        if not found:
            yield "nobody is watched yet; watch somebody: cormorant watchlist add ARTIST"
            return
        rows = [
            (str(each.number), each.name, each.id, _start(each), self._next_look(each), self._state(each))
            for each in found
        ]
        head = ("NO", "ARTIST", "ID", "START", "NEXT LOOK", "HOW IT WENT")
        yield from table(head, rows, right=("NO",), paint=_PAINT)
        paused = [each.number for each in found if each.is_paused]
        if paused:
            yield f"paused: nobody looks at them; cormorant watchlist resume {paused[0]}"

    def _next_look(self, artist: ArtistOut) -> str:
        return "paused" if artist.is_paused else self._due(artist.next_look_at)

    def _state(self, artist: ArtistOut) -> str:
        until = artist.left_alone_until
        if until is not None and until > self.now:
            return (
                f"left alone until {clock_time(until, self.now, self.zone)}: {artist.last_error or 'too much failed'}"
            )
        if artist.last_looked_at is None:
            return "not looked at yet"
        looked = f"looked at {from_now(artist.last_looked_at, self.now)}"
        return f"{looked}, failed: {artist.last_error}" if artist.last_error else looked

    def searches(self, found: Sequence[SavedOut]) -> Iterator[str]:
        """The saved searches."""
        if not found:
            yield 'no search is saved yet; save one: cormorant saved add NAME "words"'
            return
        rows = [
            (each.name, _asked(each), format_duration(each.every_s), self._next_check(each), self._checked(each))
            for each in found
        ]
        yield from table(("NAME", "SEARCH", "EVERY", "NEXT CHECK", "HOW IT WENT"), rows, paint=_PAINT)

    def _next_check(self, saved: SavedOut) -> str:
        return "paused" if saved.is_paused else self._due(saved.next_check_at)

    def _checked(self, saved: SavedOut) -> str:
        if saved.last_checked_at is None:
            return f"failed: {saved.last_error}" if saved.last_error else "not checked yet"
        checked = f"checked {from_now(saved.last_checked_at, self.now)}"
        return f"{checked}, failed: {saved.last_error}" if saved.last_error else checked

    def wants(self, found: Sequence[WantOut], *, before: int | None) -> Iterator[str]:
        """A page of wants."""
        if not found:
            yield "nothing is wanted here; cormorant watchlist and cormorant saved say what is watched"
            return
        rows = [
            (str(each.id), each.state, _name(each), from_now(each.changed_at, self.now), self._why(each))
            for each in found
        ]
        yield from table(("ID", "STATE", "WHAT", "SINCE", "WHY"), rows, right=("ID",), paint=_PAINT)
        yield from _more(before)
        if not self.is_live and any(each.state == WantState.CHOSEN.value for each in found):
            yield 'observe mode: nothing is handed over by itself; cormorant wants hand-over ID does, or mode = "live"'

    def _why(self, want: WantOut) -> str:
        later = f"; searched again {self._due(want.next_look_at)}" if want.next_look_at else ""
        return f"{want.reason}{later}"

    def want(self, shown: WantShownOut) -> Iterator[str]:
        """One want with all that belongs to it."""
        want = shown.want
        yield f"want {want.id}  {printable(_name(want))}  {_PAINT(want.state, want.state)}"
        yield from pairs(list(self._facts(want)), indent="  ")
        if not shown.candidates:
            yield "no candidates yet"
        else:
            yield ""
            yield from self._candidates(shown.candidates, want.chosen)
        if shown.downloads:
            yield ""
            yield from self.downloads(shown.downloads, before=None)

    def _facts(self, want: WantOut) -> Iterator[tuple[str, str]]:
        yield "why", self._why(want)
        yield "wanted by", want.watch
        yield "found", self._when(want.found_at)
        yield "changed", self._when(want.changed_at)
        yield "searched at", ", ".join(want.search) or "all sources"
        yield "profile", want.choose or "default"
        yield "handed to", ", ".join(want.hand_to) or "nobody: set hand_to for its watch"
        yield "looks", str(want.looks)

    def _candidates(self, found: Sequence[CandidateOut], chosen: str | None) -> Iterator[str]:
        rows = [
            (
                each.id,
                "" if each.place is None else str(each.place),
                each.source,
                _size(each.size_bytes),
                "" if each.seeders is None else str(each.seeders),
                _verdict(each, is_chosen=each.id == chosen),
                each.title,
            )
            for each in found
        ]
        head = ("CANDIDATE", "PLACE", "SOURCE", "SIZE", "SEEDERS", "VERDICT", "TITLE")
        yield from table(head, rows, right=("PLACE", "SIZE", "SEEDERS"))

    def downloads(self, found: Sequence[DownloadOut], *, before: int | None) -> Iterator[str]:
        """A page of downloads."""
        if not found:
            yield "nothing was handed over yet"
            return
        rows = [
            (str(each.id), each.state, each.target, str(each.want), from_now(each.changed_at, self.now), _told(each))
            for each in found
        ]
        yield from table(
            ("DOWNLOAD", "STATE", "TARGET", "WANT", "SINCE", "WHAT"), rows, right=("DOWNLOAD", "WANT"), paint=_PAINT
        )
        yield from _more(before)
        yield from _held(found)

    def download(self, shown: DownloadOut) -> Iterator[str]:
        """One download."""
        yield f"download {shown.id}  {printable(shown.title)}  {_PAINT(shown.state, shown.state)}"
        facts = [
            *([("why", shown.reason)] if shown.reason else []),
            ("target", shown.target),
            ("want", f"{shown.want}, candidate {shown.candidate}"),
            ("sent", "once" if shown.times_sent == 1 else f"{shown.times_sent} times"),
            ("began", self._when(shown.created_at)),
            ("changed", self._when(shown.changed_at)),
        ]
        yield from pairs([*facts, *self._asked_next(shown)], indent="  ")
        yield from _held([shown])

    def _asked_next(self, shown: DownloadOut) -> list[tuple[str, str]]:
        return [("next asked", self._when(shown.next_look_at))] if shown.next_look_at else []

    def targets(self, found: Sequence[TargetView]) -> Iterator[str]:
        """All targets."""
        if not found:
            yield "no target is set yet; write [targets.NAME] in the settings file"
            return
        rows = [
            (each.name, each.kind, "asked" if each.can_be_asked else each.in_doubt, ", ".join(each.takes))
            for each in found
        ]
        yield from table(("NAME", "KIND", "IN DOUBT", "TAKES"), rows)

    def _due(self, moment: datetime) -> str:
        return "now" if moment <= self.now else from_now(moment, self.now)

    def _when(self, moment: datetime) -> str:
        return f"{clock_time(moment, self.now, self.zone)} ({from_now(moment, self.now)})"


def _start(artist: ArtistOut) -> str:
    return artist.start if artist.start_on is None else f"{artist.start_on}"


def _asked(saved: SavedOut) -> str:
    places = f" in {', '.join(map(str, saved.categories))}" if saved.categories else ""
    return f"{saved.query or 'all that is new'}{places}"


def _name(want: WantOut) -> str:
    return f"{want.artist} - {want.title}" if want.artist else want.title


def _held(found: Sequence[DownloadOut]) -> Iterator[str]:
    """What a person can do about the first that is held."""
    held = [each.id for each in found if each.state == HandoverState.HELD.value]
    if held:
        yield f"held: look at the target, then cormorant downloads arrived {held[0]}, or send-again {held[0]}"


def _told(download: DownloadOut) -> str:
    return f"{download.title}: {download.reason}" if download.reason else download.title


def _verdict(candidate: CandidateOut, *, is_chosen: bool) -> str:
    if candidate.failed_because:
        return f"tried in vain: {candidate.failed_because}"
    if candidate.place is None:
        return f"rejected: {'; '.join(candidate.reasons) or 'not found any more'}"
    liked = f": {', '.join(candidate.merits)}" if candidate.merits else ""
    return f"{'chosen' if is_chosen else 'fits'}{liked}"


def _size(size_bytes: int | None) -> str:
    """A size in one number and one unit.

    >>> _size(None), _size(999), _size(312_400_000)
    ('', '999 B', '312 MB')
    """
    if size_bytes is None:
        return ""
    size, place = float(size_bytes), 0
    while size >= _THOUSAND and place < len(_UNITS) - 1:
        size, place = size / _THOUSAND, place + 1
    return f"{size:.3g} {_UNITS[place]}"


def _more(before: int | None) -> Iterator[str]:
    if before is not None:
        yield f"there are older ones: --before {before}"
