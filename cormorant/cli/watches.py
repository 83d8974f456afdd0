"""`cormorant watchlist` and `cormorant saved`: artists whose releases are wanted, and searches that are repeated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, tzinfo
from typing import IO, TYPE_CHECKING, Any, TypeVar

import attrs
import click
from attrs import frozen
from typing_extensions import override

from cormorant.cli.console.command_line import (
    EXIT_CODES,
    EXIT_FAILED,
    EXIT_OK,
    CommandFailed,
    Duration,
    HintingGroup,
    NameList,
    UsageRefused,
    session_command,
)
from cormorant.cli.console.output import painter, table
from cormorant.rules.errors import AlreadyExists
from cormorant.rules.search.outcomes import SearchError, SourceError, SourceRefused
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.watch import SavedSettings
from cormorant.rules.units import clock_time, format_duration, from_now
from cormorant.rules.watch.artists import Start, artist_id_in, read_artist_lines, read_start
from cormorant.rules.watch.releases import CatalogueArtist
from cormorant.rules.watch.watches import FirstCheck, WatchOptions
from cormorant.services.watch.views import ArtistOut, SavedOut, WantViews, artist_out, saved_out

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession

FILE_LENGTH_MAX = 1_000_000
WATCHED_FROM = 10
"""A file of so many artists takes a while: a bar shows how far it is."""

F = TypeVar("F", bound=Callable[..., Any])
StartOn = tuple[Start, date | None]

_ARTIST = click.argument("artist", metavar="ARTIST")
_NAME = click.argument("name", metavar="NAME")


class StartAt(click.ParamType[tuple[Start, date | None]]):
    """From when on releases are wanted."""

    name = "start"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return value if isinstance(value, tuple) else read_start(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_START = click.option(
    "--start",
    type=StartAt(),
    default="now",
    show_default=True,
    help="now, all, or a day: what came out before stays out.",
)


def order_options(*, every: str) -> Callable[[F], F]:
    """What can be said of any watch."""

    def add(command: F) -> F:
        usual = f"How often it is looked at, such as 12h.  [default: {every}]"
        for option in (
            click.option(
                "--hand-to",
                type=NameList(),
                default="",
                metavar="T,U",
                help="Targets; the first that takes a find gets it.",
            ),
            click.option("--choose", default="", metavar="PROFILE", help="What fits: [profiles.NAME] of the settings."),
            click.option("--search", type=NameList(), default="", metavar="A,B", help="Only these sources."),
            click.option("--every", "every_s", type=Duration(), metavar="DURATION", help=usual),
        ):
            command = option(command)
        return command

    return add


@click.group(cls=HintingGroup, short_help="Watch artists: add, list, pause, check, remove, import.", epilog=EXIT_CODES)
def watchlist() -> None:
    """Watch artists: what they release from now on is wanted, searched, chosen and handed over.

    Works beside a running service, which does the looking, and without one.
    """


@watchlist.command(short_help="Watch an artist.", epilog=EXIT_CODES)
@session_command(may_make=True)
@click.argument("artist", metavar="[ARTIST]", required=False, default="")
@click.option("--id", "artist_id", metavar="ID", default="", help="Its id; with it and a name nobody is asked.")
@click.option("--name", metavar="NAME", default="", help="What it is called here.  [default: as Spotify calls it]")
@_START
@order_options(every="watchlist.every of the settings")
async def add(session: CommandSession, artist: str, artist_id: str, name: str, *, start: StartOn, **order: Any) -> int:
    """Watch an artist. ARTIST is a name, an id or a link, and is looked up at Spotify through its limits."""
    if not artist and not artist_id:
        raise click.UsageError("give an artist: a name, a link, or --id and --name")
    if artist_id and not (name or artist):
        raise click.UsageError("--id goes with --name: nobody is asked what it is called")
    watches, options = session.assembly.watching.watches, WatchOptions(**order)
    await watches.check_order(options)
    found = CatalogueArtist(id=artist_id, name=name or artist) if artist_id else await _look_up(session, artist, name)
    [added] = await watches.watch_artists([found], options, start=start[0], start_on=start[1])
    if added is None:
        raise AlreadyExists("artist", found.name)
    since = "" if added.start_on is None else f" from {added.start_on} on"
    told = f"{added.name} is watched{since}; a running service looks {_soon(session)}"
    return session.show({"added": attrs.asdict(artist_out(added))}, [told, *_hints(session, options)])


@watchlist.command("list", short_help="All artists, and when each is looked at.", epilog=EXIT_CODES)
@session_command()
async def list_artists(session: CommandSession) -> int:
    """All artists: from when on, the next look, and what went wrong."""
    found = [artist_out(each) for each in await session.assembly.watching.watches.artists()]
    return session.show({"artists": list(map(attrs.asdict, found))}, _text(session).artists(found))


@watchlist.command(short_help="Watch an artist no more.", epilog=EXIT_CODES)
@session_command()
@_ARTIST
async def remove(session: CommandSession, artist: str) -> int:
    """Watch an artist no more, by number, id or name. What was found stays."""
    gone = await session.assembly.watching.watches.unwatch_artist(artist)
    told = f"{gone.name} is no longer watched; what was found stays"
    return session.show({"removed": attrs.asdict(artist_out(gone))}, [told])


@watchlist.command(short_help="Look at an artist at the next tick.", epilog=EXIT_CODES)
@session_command()
@_ARTIST
async def check(session: CommandSession, artist: str) -> int:
    """Look at an artist at the next tick of the service, whatever failed before."""
    found = await session.assembly.watching.watches.check_artist(artist)
    told = f"{found.name} is due; a running service looks {_soon(session)}"
    if found.is_paused:
        told = f"{found.name} is paused, and is looked at after cormorant watchlist resume {found.id}"
    return session.show({"artist": attrs.asdict(artist_out(found))}, [told])


@watchlist.command(short_help="Leave an artist alone for now.", epilog=EXIT_CODES)
@session_command()
@_ARTIST
async def pause(session: CommandSession, artist: str) -> int:
    """Leave an artist alone until it is resumed, also after a restart. What was found already goes its way."""
    found = await session.assembly.watching.watches.pause_artist(artist, is_paused=True)
    told = f"{found.name} is left alone until cormorant watchlist resume {found.id}"
    return session.show({"artist": attrs.asdict(artist_out(found))}, [told])


@watchlist.command(short_help="End a pause.", epilog=EXIT_CODES)
@session_command()
@_ARTIST
async def resume(session: CommandSession, artist: str) -> int:
    """Go on with an artist that was paused. What came out meanwhile is found."""
    found = await session.assembly.watching.watches.pause_artist(artist, is_paused=False)
    told = f"{found.name} goes on, and is looked at when it is due"
    return session.show({"artist": attrs.asdict(artist_out(found))}, [told])


@watchlist.command("import", short_help="Watch all artists of a file.", epilog=EXIT_CODES)
@session_command(may_make=True)
@click.argument("file", metavar="FILE", type=click.File("r", encoding="utf-8"))
@_START
@order_options(every="watchlist.every of the settings")
async def import_file(session: CommandSession, file: IO[str], *, start: StartOn, **order: Any) -> int:
    """Watch all artists of a file: one in a line, as id, link or name; what follows a # is a comment. - is standard input.

    All are looked up first. If that breaks off, nobody is added; who is not found is told, and the others are added
    together.
    """
    wanted, options = _artists_in(file), WatchOptions(**order)
    watches = session.assembly.watching.watches
    await watches.check_order(options)
    artists = await watches.artists()
    there = {each.artist_id for each in artists} | {each.name.casefold() for each in artists}
    known = [each for each in wanted if (artist_id_in(each) or each.casefold()) in there]
    found, unknown = await _look_all_up(session, [each for each in wanted if each not in known])
    distinct = list({each.id: each for each in found}.values())
    done = await watches.watch_artists(distinct, options, start=start[0], start_on=start[1])
    added = [attrs.asdict(artist_out(each)) for each in done if each is not None]
    known += [each.name for each, artist in zip(distinct, done, strict=True) if artist is None]
    told = [f"{len(added)} added, {len(known)} known already, {len(unknown)} not found"]
    told += [f"  not found: {each}" for each in unknown]
    session.show({"added": added, "known": known, "not_found": unknown}, [*told, *_hints(session, options)])
    return EXIT_FAILED if unknown else EXIT_OK


def _artists_in(file: IO[str]) -> list[str]:
    try:
        text = file.read(FILE_LENGTH_MAX + 1)
        if len(text) > FILE_LENGTH_MAX:
            raise UsageRefused(f"FILE: it has more than {FILE_LENGTH_MAX:,} characters; make several files of it")
        wanted = list(read_artist_lines(text.splitlines()))
    except UnicodeDecodeError:
        raise UsageRefused("FILE: it is not text in UTF-8") from None
    except ValueError as error:
        raise UsageRefused(f"FILE: {error}") from None
    if not wanted:
        raise UsageRefused("FILE: there is no artist in it; write one in a line, as id, link or name")
    return wanted


async def _look_up(session: CommandSession, wanted: str, name: str) -> CatalogueArtist:
    await _check_catalogue(session)
    async with session.assembly.search.supervisor():
        found = await session.assembly.watching.watches.find_artist(wanted)
    return CatalogueArtist(id=found.id, name=name or found.name)


async def _look_all_up(session: CommandSession, wanted: Sequence[str]) -> tuple[list[CatalogueArtist], list[str]]:
    """Those that were found, and those that were not. Raises `CommandFailed` when it breaks off."""
    found: list[CatalogueArtist] = []
    unknown: list[str] = []
    if not wanted:
        return found, unknown
    await _check_catalogue(session)
    is_watched = len(wanted) >= WATCHED_FROM and sys.stderr.isatty()
    async with session.assembly.search.supervisor():
        with click.progressbar(wanted, label="look up", file=sys.stderr, hidden=not is_watched) as each_wanted:
            for each in each_wanted:
                try:
                    found.append(await session.assembly.watching.watches.find_artist(each))
                except SourceRefused:
                    unknown.append(each)
                except (SourceError, SearchError) as error:
                    done = f"after {len(found) + len(unknown)} of {len(wanted)}"
                    views = WantViews.of(await session.source_records())
                    told = views.redact(" ".join(f"nobody was added: {error} ({done})".split()))
                    raise CommandFailed(told) from None
    return found, unknown


async def _check_catalogue(session: CommandSession) -> None:
    name = session.settings.watchlist.source
    if not any(each.name == name and each.kind == "spotify" for each in await session.source_records()):
        remedy = f'write [sources.{name}] with kind = "spotify", id and key in {session.file}'
        raise UsageRefused(f"no source knows artists: {remedy}, or give --id and --name")


def _soon(session: CommandSession) -> str:
    return f"within {format_duration(session.settings.watchlist.interval_s)}"


def _hints(session: CommandSession, options: WatchOptions) -> Iterable[str]:
    if not options.hand_to and not session.settings.watchlist.hand_to:
        yield "what fits is only shown: set watchlist.hand_to, or give --hand-to"
    elif session.settings.mode != "live":
        yield 'observe mode: what fits is shown and not handed over; mode = "live" changes that'


@click.group(cls=HintingGroup, short_help="Repeat searches: add, list, pause, check, remove.", epilog=EXIT_CODES)
def saved() -> None:
    """Repeat searches: what is new in them and fits is wanted, and handed over.

    Works beside a running service, which does the searching, and without one. Those of the settings file are listed, paused
    and checked here too; to change or remove one, edit the file.
    """


@saved.command("add", short_help="Repeat a search.", epilog=EXIT_CODES)
@session_command(may_make=True)
@_NAME
@click.argument("words", metavar="[WORDS]", required=False, default="")
@click.option("--categories", metavar="N,M", default="", help="Only in these categories, such as 3040.")
@order_options(every="6h")
@click.option(
    "--take-all", is_flag=True, help="Also what is there already at the first check; otherwise only what is new."
)
async def add_saved(
    session: CommandSession, name: str, words: str, categories: str, *, take_all: bool, **order: Any
) -> int:
    """Repeat a search under a NAME of your choice. WORDS may be left out if there are categories: all that is new in them."""
    options = WatchOptions(**order)
    saved = await session.assembly.watching.watches.save_search(
        name,
        SearchRequest(query=words, categories=_numbers_in(categories)),
        every_s=SavedSettings().every_s if options.every_s is None else options.every_s,
        sources=options.search,
        profile=options.choose,
        targets=options.hand_to,
        first_check=FirstCheck.TAKE if take_all else FirstCheck.SKIP,
    )
    first = "all that fits is wanted" if take_all else "what is there already at the first check is left out"
    told = [f"{name} is repeated every {format_duration(saved.every_s)}; {first}"]
    if not options.hand_to:
        told.append("what fits is only shown: --hand-to names nobody to hand it to")
    return session.show({"added": attrs.asdict(saved_out(saved))}, told)


def _numbers_in(categories: str) -> list[int]:
    numbers = [part.strip() for part in categories.split(",") if part.strip()]
    if any(not part.isascii() or not part.isdecimal() or len(part) > len("1000000") for part in numbers):
        raise click.BadParameter("give numbers with commas between them, such as 3040,3010", param_hint="--categories")
    return list(map(int, numbers))


@saved.command("list", short_help="All saved searches.", epilog=EXIT_CODES)
@session_command()
async def list_saved(session: CommandSession) -> int:
    """All saved searches: how often, the next check, and what went wrong."""
    found = [saved_out(each) for each in await session.assembly.watching.watches.saved()]
    return session.show({"saved": list(map(attrs.asdict, found))}, _text(session).searches(found))


@saved.command("remove", short_help="Repeat a search no more.", epilog=EXIT_CODES)
@session_command()
@_NAME
async def remove_saved(session: CommandSession, name: str) -> int:
    """Repeat a search no more. What was found stays."""
    await session.assembly.watching.watches.remove_search(name)
    return session.show({"removed": name}, [f"{name} is no longer repeated; what was found stays"])


@saved.command("pause", short_help="Leave a search alone for now.", epilog=EXIT_CODES)
@session_command()
@_NAME
async def pause_saved(session: CommandSession, name: str) -> int:
    """Leave a search alone until it is resumed, also after a restart."""
    await session.assembly.watching.watches.pause_search(name, is_paused=True)
    told = f"{name} is left alone until cormorant saved resume {name}"
    return session.show({"saved": name, "paused": True}, [told])


@saved.command("resume", short_help="End a pause.", epilog=EXIT_CODES)
@session_command()
@_NAME
async def resume_saved(session: CommandSession, name: str) -> int:
    """Go on with a search that was paused."""
    await session.assembly.watching.watches.pause_search(name, is_paused=False)
    return session.show({"saved": name, "paused": False}, [f"{name} goes on"])


@saved.command("check", short_help="Repeat a search now.", epilog=EXIT_CODES)
@session_command()
@_NAME
async def check_saved(session: CommandSession, name: str) -> int:
    """Repeat a search now, also while it is paused, as soon as its sources may be asked."""
    await session.assembly.watching.watches.check_search(name)
    return session.show({"saved": name, "due": True}, [f"{name} is due; a running service repeats it soon"])


_PAINT = painter({"paused": "yellow"})


def _text(session: CommandSession) -> WatchText:
    return WatchText(now=session.now, zone=session.zone)


@frozen(kw_only=True)
class WatchText:
    """Artists and saved searches as text."""

    now: datetime
    zone: tzinfo

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

    def _due(self, moment: datetime) -> str:
        return "now" if moment <= self.now else from_now(moment, self.now)


def _start(artist: ArtistOut) -> str:
    return artist.start if artist.start_on is None else f"{artist.start_on}"


def _asked(saved: SavedOut) -> str:
    places = f" in {', '.join(map(str, saved.categories))}" if saved.categories else ""
    return f"{saved.query or 'all that is new'}{places}"
