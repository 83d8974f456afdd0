"""`cormorant wants`, `downloads` and `targets`: what is wanted and why, what was handed over, and who takes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
from attrs import frozen

from cormorant.cli.console.command_line import EXIT_CODES, LIMIT, HintingGroup, RowId
from cormorant.cli.console.output import Times, older_pages, painter, pairs, printable, table
from cormorant.rules.units import rough_size
from cormorant.rules.views import next_page
from cormorant.rules.watch.handovers import HandoverState, TargetView
from cormorant.rules.watch.wants import Want, WantState
from cormorant.services.watch.views import CandidateOut, DownloadOut, WantOut, WantShownOut, WantViews

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession

_WANT = RowId("want")
_ID = click.argument("want_id", metavar="ID", type=_WANT)


@click.group(cls=HintingGroup, short_help="See what is wanted and why; retry, ignore, hand over.", epilog=EXIT_CODES)
def wants() -> None:
    """See what is wanted, where it is and why; search again, ignore, hand over by hand.

    Works beside a running service, which does the searching and sending, and without one.
    """


@wants.session_command("The newest wants, and where each is.", name="list")
@click.option("--state", type=click.Choice([state.value for state in WantState]), help="Only those in this state.")
@click.option("--before", type=_WANT, metavar="ID", help="Only older ones than this: the next page.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
async def list_wants(session: CommandSession, state: str | None, before: int | None, limit: int) -> int:
    """The newest wants first: their state, and why."""
    wanted = None if state is None else WantState(state)
    found = await session.assembly.watching.wants.page(state=wanted, before_id=before, limit=limit)
    following, views = next_page(found, limit), await _views(session)
    shown = [views.want(each) for each in found]
    facts = {"wants": shown, "before": following}
    return session.show(facts, _text(session).wants(shown, before=following))


@wants.session_command("One want with all that was found for it.")
@_ID
async def show(session: CommandSession, want_id: int) -> int:
    """Everything about a want: each candidate with what speaks for and against it, and its downloads. Links are not shown."""
    shown = (await _views(session)).shown(await session.assembly.watching.wants.find(want_id))
    return session.show(shown, _text(session).want(shown))


@wants.session_command("Search again.")
@_ID
async def retry(session: CommandSession, want_id: int) -> int:
    """Search again now, also what was given up or ignored. Candidates that were tried in vain may be tried again."""
    want = await session.assembly.watching.wants.retry(want_id)
    return await _show_want(session, want, "is searched again by a running service")


@wants.session_command("Want it no more.")
@_ID
async def ignore(session: CommandSession, want_id: int) -> int:
    """Want it no more, until it is retried."""
    want = await session.assembly.watching.wants.ignore(want_id)
    return await _show_want(session, want, f"is ignored until cormorant wants retry {want_id}")


@wants.session_command("Hand a candidate over by hand.", name="hand-over")
@_ID
@click.option(
    "--candidate", metavar="REF", help="Another one than is chosen, as `show` calls it; also one that does not fit."
)
async def hand_over(session: CommandSession, want_id: int, candidate: str | None) -> int:
    """Hand a candidate over by hand, also in observe mode. The service sends it."""
    want = await session.assembly.watching.wants.hand_over(want_id, ref=candidate)
    return await _show_want(session, want, "is handed over by a running service")


async def _show_want(session: CommandSession, want: Want, what: str) -> int:
    shown = (await _views(session)).want(want)
    return session.show({"want": shown}, [f"want {want.id}, {shown.title}, {what}"])


async def _views(session: CommandSession) -> WantViews:
    return WantViews.of(await session.source_records())


_DOWNLOAD = RowId("download")
_DOWNLOAD_ID = click.argument("number", metavar="ID", type=_DOWNLOAD)


@click.group(cls=HintingGroup, short_help="See what was handed over; decide what is held.", epilog=EXIT_CODES)
def downloads() -> None:
    """See what was handed over, to whom and how far it is; decide about what is held.

    Held is what may have arrived at a target that cannot be asked: look there, then say which it is.
    """


@downloads.session_command("The newest downloads, and how far each is.", name="list")
@click.option("--before", type=_DOWNLOAD, metavar="ID", help="Only older ones than this: the next page.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
async def list_downloads(session: CommandSession, before: int | None, limit: int) -> int:
    """The newest first."""
    found = await session.assembly.watching.wants.downloads(before_id=before, limit=limit)
    following, views = next_page(found, limit), await _views(session)
    shown = [views.download(each) for each in found]
    facts = {"downloads": shown, "before": following}
    return session.show(facts, _text(session).downloads(shown, before=following))


@downloads.session_command("Everything about one download.", name="show")
@_DOWNLOAD_ID
async def show_download(session: CommandSession, number: int) -> int:
    """Its target, state and reason, how often it was sent, and its want."""
    shown = (await _views(session)).download(await session.assembly.watching.wants.download(number))
    return session.show(shown, _text(session).download(shown))


@downloads.session_command("What is held has arrived.")
@_DOWNLOAD_ID
async def arrived(session: CommandSession, number: int) -> int:
    """Say that a download that is held has arrived: its want is done."""
    want = await session.assembly.watching.wants.settle(number, has_arrived=True)
    return await _show_want(session, want, "is done")


@downloads.session_command("What is held has not arrived.", name="send-again")
@_DOWNLOAD_ID
async def send_again(session: CommandSession, number: int) -> int:
    """Say that a download that is held has not arrived: it is sent once more, under the same key."""
    want = await session.assembly.watching.wants.settle(number, has_arrived=False)
    return await _show_want(session, want, "is sent again by a running service")


@click.group(cls=HintingGroup, short_help="List and test those that take finds.", epilog=EXIT_CODES)
def targets() -> None:
    """List and test those that take finds: [targets.NAME] of the settings file."""


@targets.session_command("All targets, and what each takes.", name="list", may_make=True)
async def list_targets(session: CommandSession) -> int:
    """All targets: what each takes, whether it can be asked, and what happens in doubt. Addresses and keys are not shown."""
    found = session.assembly.watching.wants.targets()
    return session.show({"targets": list(found)}, _text(session).targets(found))


@targets.session_command("Try a target out.", name="test", may_make=True)
@click.argument("name", metavar="NAME")
async def test_target(session: CommandSession, name: str) -> int:
    """Try address and credentials of a target. Nothing is given to it."""
    said = (await _views(session)).redact(await session.assembly.watching.wants.test_target(name))
    return session.show({"target": name, "said": said}, [f"{name} answers: {said}"])


def _text(session: CommandSession) -> WantText:
    return WantText(now=session.now, zone=session.zone, is_live=session.settings.mode == "live")


_COLOURS = {
    WantState.DONE.value: "green",
    WantState.HANDED_OVER.value: "green",
    WantState.IN_DOUBT.value: "yellow",
    WantState.GAVE_UP.value: "red",
    HandoverState.HELD.value: "yellow",
    HandoverState.FAILED.value: "red",
}
_PAINT = painter(_COLOURS)


@frozen(kw_only=True)
class WantText(Times):
    """Wants, downloads and targets as text, without links and keys."""

    is_live: bool

    def wants(self, found: Sequence[WantOut], *, before: int | None) -> Iterator[str]:
        """A page of wants."""
        rows = [(each.id, each.state, _name(each), self.ago(each.changed_at), self._why(each)) for each in found]
        empty = "nothing is wanted here; cormorant watchlist and cormorant saved say what is watched"
        yield from table(("ID", "STATE", "WHAT", "SINCE", "WHY"), rows, empty=empty, right=("ID",), paint=_PAINT)
        yield from older_pages(before)
        if not self.is_live and any(each.state == WantState.CHOSEN.value for each in found):
            yield 'observe mode: nothing is handed over by itself; cormorant wants hand-over ID does, or mode = "live"'

    def _why(self, want: WantOut) -> str:
        later = f"; searched again {self.due(want.next_look_at)}" if want.next_look_at else ""
        return f"{want.reason}{later}"

    def want(self, shown: WantShownOut) -> Iterator[str]:
        """One want with all that belongs to it."""
        want = shown.want
        yield f"want {want.id}  {printable(_name(want))}  {_PAINT(want.state, want.state)}"
        yield from pairs(list(self._facts(want)), indent="  ")
        yield from self._candidates(shown.candidates, want.chosen)
        if shown.downloads:
            yield ""
            yield from self.downloads(shown.downloads, before=None)

    def _facts(self, want: WantOut) -> Iterator[tuple[str, str]]:
        yield "why", self._why(want)
        yield "wanted by", want.watch
        yield "found", self.when(want.found_at)
        yield "changed", self.when(want.changed_at)
        yield "searched at", ", ".join(want.search) or "all sources"
        yield "profile", want.choose or "default"
        yield "handed to", ", ".join(want.hand_to) or "nobody: set hand_to for its watch"
        yield "looks", str(want.looks)

    def _candidates(self, found: Sequence[CandidateOut], chosen: str | None) -> Iterator[str]:
        rows = [
            (
                each.id,
                each.place,
                each.source,
                None if each.size_bytes is None else rough_size(each.size_bytes),
                each.seeders,
                _verdict(each, is_chosen=each.id == chosen),
                each.title,
            )
            for each in found
        ]
        head = ("CANDIDATE", "PLACE", "SOURCE", "SIZE", "SEEDERS", "VERDICT", "TITLE")
        yield from [""] if found else []
        yield from table(head, rows, empty="no candidates yet", right=("PLACE", "SIZE", "SEEDERS"))

    def downloads(self, found: Sequence[DownloadOut], *, before: int | None) -> Iterator[str]:
        """A page of downloads."""
        rows = [(each.id, each.state, each.target, each.want, self.ago(each.changed_at), _told(each)) for each in found]
        head = ("DOWNLOAD", "STATE", "TARGET", "WANT", "SINCE", "WHAT")
        empty = "nothing was handed over yet"
        yield from table(head, rows, empty=empty, right=("DOWNLOAD", "WANT"), paint=_PAINT)
        yield from older_pages(before)
        yield from _held(found)

    def download(self, shown: DownloadOut) -> Iterator[str]:
        """One download."""
        yield f"download {shown.id}  {printable(shown.title)}  {_PAINT(shown.state, shown.state)}"
        facts = [
            *([("why", shown.reason)] if shown.reason else []),
            ("target", shown.target),
            ("want", f"{shown.want}, candidate {shown.candidate}"),
            ("sent", "once" if shown.times_sent == 1 else f"{shown.times_sent} times"),
            ("began", self.when(shown.created_at)),
            ("changed", self.when(shown.changed_at)),
        ]
        facts += [("next asked", self.when(shown.next_look_at))] if shown.next_look_at else []
        yield from pairs(facts, indent="  ")
        yield from _held([shown])

    def targets(self, found: Sequence[TargetView]) -> Iterator[str]:
        """All targets."""
        rows = [
            (each.name, each.kind, "asked" if each.can_be_asked else each.in_doubt, ", ".join(each.takes))
            for each in found
        ]
        empty = "no target is set yet; write [targets.NAME] in the settings file"
        yield from table(("NAME", "KIND", "IN DOUBT", "TAKES"), rows, empty=empty)


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
