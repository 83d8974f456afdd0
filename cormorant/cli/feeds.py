"""`cormorant subscriptions` and `cormorant schedule`: feeds that are checked again and again, and what runs when."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import attrs
import click
from attrs import frozen

from cormorant.cli.console.command_line import (
    EXIT_CODES,
    EXIT_OK,
    LIMIT,
    HintingGroup,
    UsageRefused,
    display_path,
    session_command,
)
from cormorant.cli.console.output import as_text, painter, pairs, printable, table
from cormorant.cli.watches import WatchCommands, WatchText, watch_options
from cormorant.clients.opml import BYTES_MAX, NotOpml, Outline, read_opml, write_opml
from cormorant.rules.addresses import FEED_LENGTH_MAX, feed_address_problem
from cormorant.rules.schedules import Schedule, SchedulePreview, plan_of
from cormorant.rules.settings.watch import FeedSettings, feed_options
from cormorant.rules.units import format_duration
from cormorant.rules.views import next_page
from cormorant.rules.watch.feeds import NAME_LENGTH_MAX
from cormorant.rules.watch.watches import CONFIGURED
from cormorant.services.watch.views import (
    CheckOut,
    SubscriptionOut,
    SubscriptionShownOut,
    check_out,
    subscription_out,
)

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession

PAGE = 500
NEXT_HOURS = 24.0 * 365


@click.group(cls=HintingGroup, short_help="Check feeds: add, list, show, pause, import, export.", epilog=EXIT_CODES)
def subscriptions() -> None:
    """Check feeds (RSS, Atom, JSON Feed) again and again: what is new and fits is wanted, and handed over.

    Works beside a running service, which does the checking, and without one. Those of the settings file are listed, paused
    and checked here too; to change or remove one, edit the file.
    """


def _with_address(url: str, **given: Any) -> dict[str, Any]:
    return {"url": _asked() if url == "-" else url, **given}


@subscriptions.session_command("Subscribe to a feed.", may_make=True, before=_with_address)
@click.argument("name", metavar="NAME")
@click.argument("url", metavar="URL")
@watch_options(FeedSettings, without=("url",))
async def add(session: CommandSession, name: str, **given: Any) -> int:
    """Subscribe to the feed at URL under a NAME of your choice.

    With - instead of URL it is asked for, or read from standard input: then a key in it stands in no list of processes.
    """
    options = feed_options(given)
    made = subscription_out(await session.assembly.watching.feeds.add(name, options))
    takes_all = options.first_check == "take"
    first = "all that fits is wanted" if takes_all else "what is there at the first check is left out"
    hints = [*_hints(session, options), *await session.service_hint()]
    return session.show({"added": made}, [f"{name} is checked {timing(made)}; {first}", *hints])


def _asked() -> str:
    if sys.stdin.isatty():
        found: str = click.prompt("Address of the feed (not shown)", hide_input=True, err=True)
        return found.strip()
    return sys.stdin.readline(FEED_LENGTH_MAX + 2).strip()


@subscriptions.session_command("All subscriptions.", name="list")
@click.option("--after", type=click.IntRange(0, 2**62), default=0, metavar="NO", help="Those after this number.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="So many at most.")
async def list_subscriptions(session: CommandSession, after: int, limit: int) -> int:
    """All subscriptions: how often, the next check, and what went wrong. Keys in addresses are hidden."""
    page = await session.assembly.watching.feeds.page(after_id=after, limit=limit)
    found = [subscription_out(each) for each in page]
    following = next_page(found, limit)
    facts = {"subscriptions": found, "after": following}
    return session.show(facts, _text(session).listed(found, after=following))


@subscriptions.session_command("One subscription and its last checks.")
@click.argument("name", metavar="NAME")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many checks at most.")
async def show(session: CommandSession, name: str, limit: int) -> int:
    """One subscription and how its last checks went. NAME may be a number, here and everywhere."""
    feeds = session.assembly.watching.feeds
    found = await feeds.find(name)
    checks = [check_out(found, each) for each in await feeds.checks(found.id, limit=limit)]
    shown = SubscriptionShownOut(subscription=subscription_out(found), checks=checks)
    return session.show(shown, _text(session).shown(shown))


FEEDS = WatchCommands(
    group=subscriptions,
    command="subscriptions",
    key="subscription",
    what="a feed",
    service=lambda session: session.assembly.watching.feeds,
    how_named=" NAME may be a number.",
    soon=lambda _session: "at once",
    checks_paused=False,
)
FEEDS.add()


@subscriptions.session_command("Which feed is checked next.", name="next")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many at most.")
async def next_checks(session: CommandSession, limit: int) -> int:
    """Which feeds are checked next, soonest first, as far as it is known now. `cormorant schedule` shows everything."""
    until = session.now + timedelta(hours=NEXT_HOURS)
    planned = await session.assembly.watching.feeds.planned(until=until, most=limit)
    once = [attrs.evolve(each, schedule=Schedule(every_s=365 * 86_400.0)) for each in planned]
    plan = attrs.evolve(plan_of(once, until=until, most=limit), has_more=False)
    return await _show_plan(session, plan, empty="no check is due; subscribe: cormorant subscriptions add NAME URL")


@subscriptions.session_command("Subscribe to all feeds of an OPML file.", name="import", may_make=True)
@click.argument("file", metavar="FILE.opml", type=click.File("rb"))
@watch_options(FeedSettings, without=("url",))
async def import_file(session: CommandSession, file: BinaryIO, **given: Any) -> int:
    """Subscribe to all feeds of an OPML file, as other readers export it. - is standard input.

    All are added or none. Feeds that are subscribed to already are left as they are; a name that is taken gets a number.
    The first checks are spread out. Folders are kept, and are in what `export` writes.
    """
    feeds = session.assembly.watching.feeds
    options = feed_options(given)
    known = await feeds.names()
    addresses = {url for _, url in known}
    try:
        listed = read_opml(file.read(BYTES_MAX + 1), taken=[*(name for name, _ in known), *session.settings.feeds])
    except NotOpml as problem:
        raise UsageRefused(f"FILE: {problem}") from None
    fresh = [each for each in listed.feeds if each.url not in addresses]
    wrong = [each.name for each in fresh if feed_address_problem(each.url)]
    right = [each for each in fresh if each.name not in wrong]
    new = [(each.name[:NAME_LENGTH_MAX].strip(), each.url, each.folder) for each in right]
    made = await feeds.add_all(new, options)
    left_out, there = [*listed.left_out, *wrong], len(listed.feeds) - len(fresh)
    facts = {"added": [subscription_out(each) for each in made], "known": there, "left_out": left_out}
    told = [f"{len(made)} added, {there} known already, {len(left_out)} left out"]
    told += [f"  left out, no address of http: {name}" for name in left_out]
    return session.show(facts, [*told, *_hints(session, options), *await session.service_hint()])


@subscriptions.session_command("Write all feeds as OPML.", name="export")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False, path_type=Path))
async def export(session: CommandSession, file: Path | None) -> int:
    """Write all feeds as OPML to a new file, or to standard output. Keys in addresses are in it: keep it to yourself."""
    feeds: list[Outline] = []
    last = 0
    while page := await session.assembly.watching.feeds.page(after_id=last, limit=PAGE):
        feeds += [Outline(name=each.name, url=each.url, folder=each.folder) for each in page]
        last = page[-1].id
    if file is None:
        whole = {"feeds": feeds}
        click.echo(as_text(whole) if session.as_json else write_opml(feeds).decode(), nl=session.as_json)
        return EXIT_OK
    _write_new(file, write_opml(feeds))
    told = [f"{len(feeds)} written to {display_path(str(file))}", "keys in addresses are in it: keep it to yourself"]
    return session.show({"written": len(feeds), "file": str(file)}, told)


@click.command(short_help="What runs when in the next hours.", epilog=EXIT_CODES)
@session_command()
@click.option(
    "--hours",
    type=click.FloatRange(0, 24 * 366, min_open=True),
    default=24.0,
    show_default=True,
    help="So far is looked ahead.",
)
@click.option("--limit", type=LIMIT, default=200, show_default=True, help="So many times at most.")
async def schedule(session: CommandSession, hours: float, limit: int) -> int:
    """What runs when: subscriptions, saved searches, artists and prices, soonest first, each in its turn at its host.

    As far as it is known now: what fails, or waits for the limits of a source, comes later.
    """
    from cormorant.services.schedule import preview  # noqa: PLC0415 - `--help` need not wait for it

    plan = await preview(session.assembly.watching.kinds, hours=hours, most=limit, now=session.now)
    return await _show_plan(session, plan, empty=f"nothing runs in the next {hours:g} hours")


async def _show_plan(session: CommandSession, plan: SchedulePreview, *, empty: str) -> int:
    is_paused = await session.is_paused()
    facts = {
        "runs": [{"at": run.at, "kind": run.kind, "name": run.name} for run in plan.runs],
        "has_more": plan.has_more,
        "is_paused": is_paused,
    }
    lines = list(_text(session).plan(plan, empty=empty))
    return session.show(facts, [*lines, *(["everything is paused: cormorant jobs resume"] if is_paused else [])])


def _hints(session: CommandSession, options: FeedSettings) -> Iterable[str]:
    if not options.auto_import:
        yield "what is new is only counted"
    elif not options.hand_to:
        yield "what is new is only shown: --hand-to names nobody to hand it to"
    elif session.settings.mode != "live":
        yield 'observe mode: what is new is shown and not handed over; mode = "live" changes that'


def _text(session: CommandSession) -> FeedText:
    return FeedText(now=session.now, zone=session.zone)


def _write_new(file: Path, body: bytes) -> None:
    """Only the owner may read it: there are keys in it. What is there already is not written over."""
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageRefused(f"FILE: {display_path(str(file))} is there already; name another") from None
    except OSError as error:
        raise UsageRefused(f"FILE: {display_path(str(file))} cannot be written: {error.strerror}") from None
    with os.fdopen(number, "wb") as stream:
        stream.write(body)


_PAINT = painter({"paused": "yellow", "failed": "red", "success": "green"})


@frozen(kw_only=True)
class FeedText(WatchText):
    """Feeds and their checks as text."""

    def listed(self, found: Sequence[SubscriptionOut], *, after: int | None) -> Iterator[str]:
        """A page of them."""
        rows = [
            (
                each.id,
                each.name,
                timing(each),
                self.next_check(each.next_check_at, is_paused=each.is_paused),
                each.url,
                self._feed_state(each),
            )
            for each in found
        ]
        head = ("NO", "NAME", "WHEN", "NEXT CHECK", "FEED", "HOW IT WENT")
        empty = "nothing is subscribed to here; subscribe: cormorant subscriptions add NAME URL"
        yield from table(head, rows, empty=empty, right=("NO",), paint=_PAINT)
        if after is not None:
            yield f"there are more: --after {after}"

    def shown(self, shown: SubscriptionShownOut) -> Iterator[str]:
        """One of them with its last checks."""
        each = shown.subscription
        yield f"subscription {each.id}  {printable(each.name)}"
        yield from pairs(list(self._facts(each)), indent="  ")
        yield ""
        yield from self._checks(shown.checks)

    def plan(self, plan: SchedulePreview, *, empty: str) -> Iterator[str]:
        """What runs when."""
        rows = [(self.at(run.at), self.due(run.at), run.kind, run.name) for run in plan.runs]
        yield from table(("AT", "FROM NOW", "WHAT", "NAME"), rows, empty=empty)
        if plan.has_more:
            yield "there is more: raise --limit, or look less far ahead"

    def _facts(self, each: SubscriptionOut) -> Iterator[tuple[str, str]]:
        yield "feed", each.url
        yield "checked", timing(each)
        if each.effective_s is not None:
            why = f"after {each.failures} failures" if each.failures else "by its activity"
            yield "really", f"every {format_duration(each.effective_s)} {why}"
        yield "next check", f"paused: {each.paused_because}" if each.is_paused else self.when(each.next_check_at)
        yield "what is new", "is wanted" if each.auto_import else "is only counted"
        yield "first check", "takes all that is there" if each.first_check == "take" else "leaves out what is there"
        yield "must have", ", ".join(each.accept) or "anything"
        yield "must not have", ", ".join(each.reject) or "nothing is left out"
        yield "handed to", ", ".join(each.hand_to) or "nobody: what is new is only shown"
        if each.folder:
            yield "folder", " / ".join(each.folder)
        view = attrs.asdict(each, recurse=False)
        for name in attrs.fields_dict(FeedSettings):
            if name not in _SHOWN and view.get(name) not in _EMPTY:
                yield name.replace("_", " "), str(view[name])
        yield "set", "in the settings file" if each.origin == CONFIGURED else each.origin
        yield "how it went", self._feed_state(each)

    def _checks(self, checks: Sequence[CheckOut]) -> Iterator[str]:
        rows = [
            (
                self.when(each.started_at),
                each.status,
                each.items_found,
                each.new_items,
                f"{each.duration_ms} ms",
                each.error,
            )
            for each in checks
        ]
        head = ("CHECKED", "STATUS", "ITEMS", "NEW", "TOOK", "ERROR")
        yield from table(head, rows, empty="no check yet", right=("ITEMS", "NEW", "TOOK"), paint=_PAINT)

    def _feed_state(self, each: SubscriptionOut) -> str:
        often = "" if each.failures == 1 else f"{each.failures} times: "
        error = each.last_error and f"{often}{each.last_error}"
        return each.paused_because or self.last_check(each.last_checked_at, error)


_SHOWN = frozenset(
    {"url", "every_s", "cron", "zone", "adaptive", "auto_import", "first_check", "accept", "reject", "hand_to"}
)
"""The options of a feed that have a line of their own."""
_EMPTY: Sequence[object] = (None, "", [])
"""Values of an option that is not set."""


def timing(each: SubscriptionOut) -> str:
    """When it is checked, as it was said."""
    return f"every {format_duration(each.every_s)}" if each.every_s is not None else f"{each.cron} {each.zone}"
