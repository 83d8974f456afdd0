"""`cormorant watchlist` and `cormorant saved`: artists and saved searches; the commands that all kinds of watches have."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar

import attrs
import click
from attrs import frozen

from cormorant.cli.console.command_line import (
    EXIT_CODES,
    EXIT_FAILED,
    EXIT_OK,
    CommandFailed,
    HintingGroup,
    SettingValue,
    UsageRefused,
    session_command,
)
from cormorant.cli.console.output import Times, painter, table
from cormorant.rules.search.outcomes import SearchError, SourceError, SourceRefused
from cormorant.rules.settings.fields import FLAG, PATTERNS, WORDS, Setting
from cormorant.rules.settings.watch import ArtistOptions, SavedSettings, options_from
from cormorant.rules.units import format_duration
from cormorant.rules.watch.artists import artist_id_in, read_artist_lines
from cormorant.rules.watch.releases import CatalogueArtist
from cormorant.services.watch.views import ArtistOut, SavedOut, WantViews, artist_out, saved_out

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession
    from cormorant.services.watch.watches import WatchService

FILE_LENGTH_MAX = 1_000_000
WATCHED_FROM = 10
"""A file of so many artists takes a while: a bar shows how far it is."""

F = TypeVar("F", bound=Callable[..., Any])
Answer = tuple[Mapping[str, Any], Iterable[str]]
"""What a command answers: as JSON, and as lines."""

_SWITCHES: Mapping[str, tuple[str, object, str]] = {
    "first_check": ("--take-all", "take", "Also what is there already at the first check; otherwise only what is new."),
    "auto_import": ("--no-import", False, "Only count what is new, and hand nothing over."),
}
"""The options that a command offers as a switch, with the value that it means."""


def watch_options(options: type, *, without: Sequence[str] = ()) -> Callable[[F], F]:
    """Give a command an option for each option of a watch. What is not given is None, or no patterns."""

    def add(command: F) -> F:
        for name, each in reversed(attrs.fields_dict(options).items()):
            if name not in without:
                command = _option(name, each.metadata[Setting.KEY], default=each.default)(command)
        return command

    return add


def _option(name: str, setting: Setting, *, default: object) -> Callable[[F], F]:
    flag = f"--{setting.key(name).replace('_', '-')}"
    if name in _SWITCHES:
        switch, value, text = _SWITCHES[name]
        return click.option(switch, name, flag_value=value, default=None, type=click.UNPROCESSED, help=text)
    if setting.kind is FLAG:
        return click.option(flag, name, is_flag=True, default=None, help=setting.meaning)
    if setting.kind.name == PATTERNS:
        return click.option(flag, name, multiple=True, metavar="PATTERN", help=setting.meaning)
    metavar = (
        "A,B" if setting.kind is WORDS else setting.kind.name.upper() if setting.kind.name.isalpha() else name.upper()
    )
    usual = f"  [default: {setting.kind.write(default).strip(_QUOTE)}]" if default else ""
    return click.option(flag, name, type=SettingValue(setting), metavar=metavar, help=f"{setting.meaning}{usual}")


_QUOTE = '"'


@frozen(kw_only=True)
class WatchCommands:
    """The commands that every kind of watch has: check, pause, resume and remove."""

    group: click.Group
    command: str
    """The name of the group."""
    key: str
    """What JSON calls one."""
    what: str
    """What help texts call one."""
    service: Callable[[CommandSession], WatchService[Any]]
    metavar: str = "NAME"
    how_named: str = ""
    """How one may be named besides its name, for help texts."""
    soon: Callable[[CommandSession], str] = lambda _session: "as soon as its sources may be asked"
    """When a running service checks one that is due."""
    checks_paused: bool = True
    """Whether a check by hand is made while one is paused."""
    after_check: Callable[[CommandSession, Any], Mapping[str, Any]] = lambda _session, _watch: {}
    """What JSON says of a check besides."""
    after_removal: str = "What was found stays."

    def add(self) -> None:
        """Add the commands to the group."""
        paused = "Also while it is paused." if self.checks_paused else "One that is paused is refused."
        for name, run, short, text in (
            ("check", self._check, f"Check {self.what} now.", paused),
            (
                "pause",
                self._pause,
                f"Pause {self.what}.",
                "It is not checked until it is resumed, also after a restart.",
            ),
            ("resume", self._resume, f"Resume {self.what}.", "It is checked when it is due."),
            ("remove", self._remove, f"Remove {self.what}.", self.after_removal),
        ):
            command = click.argument("wanted", metavar=self.metavar)(_answering(run))
            help_text = f"{short} {text}{self.how_named}"
            self.group.command(name, help=help_text, short_help=short, epilog=EXIT_CODES)(session_command()(command))

    async def _check(self, session: CommandSession, wanted: str) -> Answer:
        service = self.service(session)
        if not self.checks_paused:
            found = await service.find(wanted)
            if found.is_paused:
                raise CommandFailed(f"{found.name} is paused; resume it: {self.to_resume(found)}")
        due = await service.check(wanted)
        hints = await session.service_hint()
        told = f"{due.name} is due" + ("" if hints else f"; the running service checks it {self.soon(session)}")
        facts = self.facts(due, due=True, service_runs=await session.is_served(), **self.after_check(session, due))
        return facts, [told, *hints]

    async def _pause(self, session: CommandSession, wanted: str) -> Answer:
        paused = await self.service(session).pause(wanted)
        return self.facts(paused, paused=True), [f"{paused.name} is paused until {self.to_resume(paused)}"]

    async def _resume(self, session: CommandSession, wanted: str) -> Answer:
        resumed = await self.service(session).resume(wanted)
        due = Times(now=session.now, zone=session.zone).due(resumed.next_attempt_at)
        told = f"{resumed.name} is resumed, and due {due}"
        return self.facts(resumed, paused=False), [told, *await session.service_hint()]

    async def _remove(self, session: CommandSession, wanted: str) -> Answer:
        gone = await self.service(session).remove(wanted)
        removed = self.facts(gone)[self.key]
        return {"removed": removed}, [
            f"{gone.name} is removed; {self.after_removal[0].lower()}{self.after_removal[1:-1]}"
        ]

    def facts(self, watch: Any, **more: Any) -> dict[str, Any]:
        """What JSON says of a watch: its name, and what was done. An artist is shown whole."""
        return {"artist": artist_out(watch)} if self.key == "artist" else {self.key: watch.name, **more}

    def to_resume(self, watch: Any) -> str:
        """The command that ends its pause."""
        return f"cormorant {self.command} resume {watch.id if self.key == 'artist' else watch.name}"


def _answering(run: Callable[[CommandSession, str], Awaitable[Answer]]) -> Callable[..., Awaitable[int]]:
    async def command(session: CommandSession, wanted: str) -> int:
        return session.show(*await run(session, wanted))

    return command


@click.group(cls=HintingGroup, short_help="Watch artists: add, list, pause, check, remove, import.", epilog=EXIT_CODES)
def watchlist() -> None:
    """Watch artists: what they release from now on is wanted, searched, chosen and handed over.

    Works beside a running service, which does the looking, and without one.
    """


@watchlist.session_command("Watch an artist.", may_make=True)
@click.argument("artist", metavar="[ARTIST]", required=False, default="")
@click.option("--id", "artist_id", metavar="ID", default="", help="Its id; with it and a name nobody is asked.")
@click.option("--name", metavar="NAME", default="", help="What it is called here.  [default: as Spotify calls it]")
@watch_options(ArtistOptions)
async def add(session: CommandSession, artist: str, artist_id: str, name: str, **given: Any) -> int:
    """Watch an artist. ARTIST is a name, an id or a link, and is looked up at Spotify through its limits."""
    if not artist and not artist_id:
        raise click.UsageError("give an artist: a name, a link, or --id and --name")
    if artist_id and not (name or artist):
        raise click.UsageError("--id goes with --name: nobody is asked what it is called")
    artists, options = session.assembly.watching.artists, options_from(ArtistOptions, given)
    await artists.check_options(options)
    found = CatalogueArtist(id=artist_id, name=name or artist) if artist_id else await _look_up(session, artist, name)
    added = await artists.add(found, options)
    since = "" if added.start_on is None else f" from {added.start_on} on"
    told = f"{added.name} is watched{since}; a running service looks {_soon(session)}"
    return session.show({"added": artist_out(added)}, [told, *_hints(session, options)])


@watchlist.session_command("All artists, and when each is looked at.", name="list")
async def list_artists(session: CommandSession) -> int:
    """All artists: from when on, the next look, and what went wrong."""
    found = [artist_out(each) for each in await session.assembly.watching.artists.all()]
    return session.show({"artists": found}, _text(session).artists(found))


def _soon(session: CommandSession) -> str:
    return f"within {format_duration(session.settings.watchlist.interval_s)}"


ARTISTS = WatchCommands(
    group=watchlist,
    command="watchlist",
    key="artist",
    what="an artist",
    service=lambda session: session.assembly.watching.artists,
    metavar="ARTIST",
    how_named=" ARTIST is a number, an id or a name.",
    soon=_soon,
    checks_paused=False,
)
ARTISTS.add()


@watchlist.session_command("Watch all artists of a file.", name="import", may_make=True)
@click.argument("file", metavar="FILE", type=click.File("r", encoding="utf-8"))
@watch_options(ArtistOptions)
async def import_file(session: CommandSession, file: IO[str], **given: Any) -> int:
    """Watch all artists of a file: one in a line, as id, link or name; what follows a # is a comment. - is standard input.

    All are looked up first. If that breaks off, nobody is added; who is not found is told, and the others are added
    together.
    """
    wanted, options = _artists_in(file), options_from(ArtistOptions, given)
    service = session.assembly.watching.artists
    await service.check_options(options)
    artists = await service.all()
    there = {each.artist_id for each in artists} | {each.name.casefold() for each in artists}
    known = [each for each in wanted if (artist_id_in(each) or each.casefold()) in there]
    found, unknown = await _look_all_up(session, [each for each in wanted if each not in known])
    distinct = list({each.id: each for each in found}.values())
    done = await service.add_new(distinct, options)
    added = [artist_out(each) for each in done if each is not None]
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
        found = await session.assembly.watching.artists.look_up(wanted)
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
                    found.append(await session.assembly.watching.artists.look_up(each))
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


def _hints(session: CommandSession, options: ArtistOptions) -> Iterable[str]:
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


@saved.session_command("Repeat a search.", name="add", may_make=True)
@click.argument("name", metavar="NAME")
@click.argument("words", metavar="[WORDS]", required=False, default="")
@watch_options(SavedSettings, without=("query",))
async def add_saved(session: CommandSession, name: str, words: str, **given: Any) -> int:
    """Repeat a search under a NAME of your choice. WORDS may be left out if there are categories: all that is new in them."""
    options = options_from(SavedSettings, given | {"query": words})
    saved = await session.assembly.watching.saved.add(name, options)
    takes_all = options.first_check == "take"
    first = "all that fits is wanted" if takes_all else "what is there already at the first check is left out"
    told = [f"{name} is repeated every {format_duration(saved.every_s)}; {first}"]
    if not options.hand_to:
        told.append("what fits is only shown: --hand-to names nobody to hand it to")
    return session.show({"added": saved_out(saved)}, told)


@saved.session_command("All saved searches.", name="list")
async def list_saved(session: CommandSession) -> int:
    """All saved searches: how often, the next check, and what went wrong."""
    found = [saved_out(each) for each in await session.assembly.watching.saved.all()]
    return session.show({"saved": found}, _text(session).searches(found))


SAVED = WatchCommands(
    group=saved,
    command="saved",
    key="saved",
    what="a saved search",
    service=lambda session: session.assembly.watching.saved,
)
SAVED.add()


_PAINT = painter({"paused": "yellow"})


def _text(session: CommandSession) -> WatchText:
    return WatchText(now=session.now, zone=session.zone)


@frozen(kw_only=True)
class WatchText(Times):
    """Artists and saved searches as text; what the texts of all watches share."""

    def next_check(self, at: datetime, *, is_paused: bool) -> str:
        """When one is checked next."""
        return "paused" if is_paused else self.due(at)

    def last_check(self, at: datetime | None, error: str | None, *, checked: str = "checked") -> str:
        """How the last check went."""
        if at is None:
            return f"failed: {error}" if error else f"not {checked} yet"
        return f"{checked} {self.ago(at)}{f', failed: {error}' if error else ''}"

    def artists(self, found: Sequence[ArtistOut]) -> Iterator[str]:
        """The watchlist."""
        rows = [
            (
                each.number,
                each.name,
                each.id,
                each.start_on or each.start,
                self.next_check(each.next_look_at, is_paused=each.is_paused),
                self._state(each),
            )
            for each in found
        ]
        head = ("NO", "ARTIST", "ID", "START", "NEXT LOOK", "HOW IT WENT")
        empty = "nobody is watched yet; watch somebody: cormorant watchlist add ARTIST"
        yield from table(head, rows, empty=empty, right=("NO",), paint=_PAINT)
        paused = [each.number for each in found if each.is_paused]
        if paused:
            yield f"paused: nobody looks at them; cormorant watchlist resume {paused[0]}"

    def _state(self, artist: ArtistOut) -> str:
        until = artist.left_alone_until
        if until is not None and until > self.now:
            return f"left alone until {self.at(until)}: {artist.last_error or 'too much failed'}"
        return self.last_check(artist.last_looked_at, artist.last_error, checked="looked at")

    def searches(self, found: Sequence[SavedOut]) -> Iterator[str]:
        """The saved searches."""
        rows = [
            (
                each.name,
                _asked(each),
                format_duration(each.every_s),
                self.next_check(each.next_check_at, is_paused=each.is_paused),
                self.last_check(each.last_checked_at, each.last_error),
            )
            for each in found
        ]
        empty = 'no search is saved yet; save one: cormorant saved add NAME "words"'
        yield from table(("NAME", "SEARCH", "EVERY", "NEXT CHECK", "HOW IT WENT"), rows, empty=empty, paint=_PAINT)


def _asked(saved: SavedOut) -> str:
    places = f" in {', '.join(map(str, saved.categories))}" if saved.categories else ""
    return f"{saved.query or 'all that is new'}{places}"
