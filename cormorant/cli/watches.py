"""`cormorant watchlist`: whose releases are wanted, when each artist was looked at, and what is in the way."""

from __future__ import annotations

from typing import IO, Any

import click

from cormorant.cli.console.command_line import EXIT_CODES, HintingGroup, UsageRefused, options
from cormorant.cli.watch_options import StartAt, order_options, run_action
from cormorant.rules.watch.artists import read_artist_lines

FILE_LENGTH_MAX = 1_000_000

_ARTIST = click.argument("artist", metavar="ARTIST")
_START = click.option(
    "--start",
    type=StartAt(),
    default="now",
    show_default=True,
    help="now, all, or a day: what came out before stays out.",
)


@click.group(cls=HintingGroup, short_help="Watch artists: add, list, pause, check, remove, import.", epilog=EXIT_CODES)
def watchlist() -> None:
    """Watch artists: what they release from now on is wanted, searched, chosen and handed over.

    Works beside a running service, which does the looking, and without one.
    """


@watchlist.command(short_help="Watch an artist.", epilog=EXIT_CODES)
@options
@click.argument("artist", metavar="[ARTIST]", required=False, default="")
@click.option("--id", "artist_id", metavar="ID", default="", help="Its id; with it and a name nobody is asked.")
@click.option("--name", metavar="NAME", default="", help="What it is called here.  [default: as Spotify calls it]")
@_START
@order_options(every="watchlist.every of the settings")
def add(config: str, *, as_json: bool, artist: str, artist_id: str, name: str, **order: Any) -> None:
    """Watch an artist. ARTIST is a name, an id or a link, and is looked up at Spotify through its limits."""
    if not artist and not artist_id:
        raise click.UsageError("give an artist: a name, a link, or --id and --name")
    if artist_id and not (name or artist):
        raise click.UsageError("--id goes with --name: nobody is asked what it is called")
    run_action(
        config, lambda actions: actions.add_artist(artist, artist_id, name, **order), as_json=as_json, may_make=True
    )


@watchlist.command("list", short_help="All artists, and when each is looked at.", epilog=EXIT_CODES)
@options
def list_artists(config: str, *, as_json: bool) -> None:
    """All artists: from when on, the next look, and what went wrong."""
    run_action(config, lambda actions: actions.list_artists(), as_json=as_json)


@watchlist.command(short_help="Watch an artist no more.", epilog=EXIT_CODES)
@options
@_ARTIST
def remove(config: str, *, as_json: bool, artist: str) -> None:
    """Watch an artist no more, by number, id or name. What was found stays."""
    run_action(config, lambda actions: actions.remove_artist(artist), as_json=as_json)


@watchlist.command(short_help="Look at an artist at the next tick.", epilog=EXIT_CODES)
@options
@_ARTIST
def check(config: str, *, as_json: bool, artist: str) -> None:
    """Look at an artist at the next tick of the service, whatever failed before."""
    run_action(config, lambda actions: actions.check_artist(artist), as_json=as_json)


@watchlist.command(short_help="Leave an artist alone for now.", epilog=EXIT_CODES)
@options
@_ARTIST
def pause(config: str, *, as_json: bool, artist: str) -> None:
    """Leave an artist alone until it is resumed, also after a restart. What was found already goes its way."""
    run_action(config, lambda actions: actions.pause_artist(artist, is_paused=True), as_json=as_json)


@watchlist.command(short_help="End a pause.", epilog=EXIT_CODES)
@options
@_ARTIST
def resume(config: str, *, as_json: bool, artist: str) -> None:
    """Go on with an artist that was paused. What came out meanwhile is found."""
    run_action(config, lambda actions: actions.pause_artist(artist, is_paused=False), as_json=as_json)


@watchlist.command("import", short_help="Watch all artists of a file.", epilog=EXIT_CODES)
@options
@click.argument("file", metavar="FILE", type=click.File("r", encoding="utf-8"))
@_START
@order_options(every="watchlist.every of the settings")
def import_file(config: str, *, as_json: bool, file: IO[str], **order: Any) -> None:
    """Watch all artists of a file: one in a line, as id, link or name; what follows a # is a comment. - is standard input.

    All are looked up first. If that breaks off, nobody is added; who is not found is told, and the others are added
    together.
    """
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
    run_action(config, lambda actions: actions.import_artists(wanted, **order), as_json=as_json, may_make=True)


_NAME = click.argument("name", metavar="NAME")


@click.group(cls=HintingGroup, short_help="Repeat searches: add, list, pause, check, remove.", epilog=EXIT_CODES)
def saved() -> None:
    """Repeat searches: what is new in them and fits is wanted, and handed over.

    Works beside a running service, which does the searching, and without one. Those of the settings file are listed, paused
    and checked here too; to change or remove one, edit the file.
    """


@saved.command("add", short_help="Repeat a search.", epilog=EXIT_CODES)
@options
@_NAME
@click.argument("words", metavar="[WORDS]", required=False, default="")
@click.option("--categories", metavar="N,M", default="", help="Only in these categories, such as 3040.")
@order_options(every="6h")
@click.option(
    "--take-all", is_flag=True, help="Also what is there already at the first check; otherwise only what is new."
)
def add_saved(
    config: str, *, as_json: bool, name: str, words: str, categories: str, take_all: bool, **order: Any
) -> None:
    """Repeat a search under a NAME of your choice. WORDS may be left out if there are categories: all that is new in them."""
    numbers = [part.strip() for part in categories.split(",") if part.strip()]
    if any(not part.isascii() or not part.isdecimal() or len(part) > len("1000000") for part in numbers):
        raise click.BadParameter("give numbers with commas between them, such as 3040,3010", param_hint="--categories")
    chosen = list(map(int, numbers))
    run_action(
        config,
        lambda actions: actions.add_search(name, words, chosen, takes_all=take_all, **order),
        as_json=as_json,
        may_make=True,
    )


@saved.command("list", short_help="All saved searches.", epilog=EXIT_CODES)
@options
def list_saved(config: str, *, as_json: bool) -> None:
    """All saved searches: how often, the next check, and what went wrong."""
    run_action(config, lambda actions: actions.list_searches(), as_json=as_json)


@saved.command("remove", short_help="Repeat a search no more.", epilog=EXIT_CODES)
@options
@_NAME
def remove_saved(config: str, *, as_json: bool, name: str) -> None:
    """Repeat a search no more. What was found stays."""
    run_action(config, lambda actions: actions.remove_search(name), as_json=as_json)


@saved.command("pause", short_help="Leave a search alone for now.", epilog=EXIT_CODES)
@options
@_NAME
def pause_saved(config: str, *, as_json: bool, name: str) -> None:
    """Leave a search alone until it is resumed, also after a restart."""
    run_action(config, lambda actions: actions.pause_search(name, is_paused=True), as_json=as_json)


@saved.command("resume", short_help="End a pause.", epilog=EXIT_CODES)
@options
@_NAME
def resume_saved(config: str, *, as_json: bool, name: str) -> None:
    """Go on with a search that was paused."""
    run_action(config, lambda actions: actions.pause_search(name, is_paused=False), as_json=as_json)


@saved.command("check", short_help="Repeat a search now.", epilog=EXIT_CODES)
@options
@_NAME
def check_saved(config: str, *, as_json: bool, name: str) -> None:
    """Repeat a search now, also while it is paused, as soon as its sources may be asked."""
    run_action(config, lambda actions: actions.check_search(name), as_json=as_json)
