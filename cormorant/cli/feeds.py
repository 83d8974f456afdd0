"""`cormorant subscriptions` and `cormorant schedule`: feeds that are checked again and again, and what runs when."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import attrs
import click
from attrs import frozen

from cormorant.cli.console.command_line import (
    EXIT_CODES,
    EXIT_OK,
    LIMIT,
    CommandFailed,
    Duration,
    HintingGroup,
    NameList,
    SettingValue,
    UsageRefused,
    display_path,
    options,
    session_command,
)
from cormorant.cli.console.output import as_text, painter, pairs, printable, table
from cormorant.clients.opml import BYTES_MAX, NotOpml, Outline, read_opml, write_opml
from cormorant.rules.addresses import FEED_LENGTH_MAX, feed_address_problem
from cormorant.rules.schedules import Schedule, SchedulePreview, plan_of
from cormorant.rules.settings.watch import other_feed_settings, other_feed_values
from cormorant.rules.units import clock_time, format_duration, from_now
from cormorant.rules.watch.feeds import NAME_LENGTH_MAX, schedule_from
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

F = TypeVar("F", bound=Callable[..., Any])

_NAME = click.argument("name", metavar="NAME")


def _order_options(command: F) -> F:
    """What can be said of a feed, or of all feeds of a file."""
    for option in (
        click.option(
            "--hand-to", type=NameList(), default="", metavar="T,U", help="Targets; the first that can takes it."
        ),
        click.option("--reject", multiple=True, metavar="PATTERN", help="None of these may be in the title."),
        click.option("--accept", multiple=True, metavar="PATTERN", help="One of these must be in the title."),
        click.option(
            "--take-all",
            is_flag=True,
            help="Also what is there already at the first check; otherwise only what is new.",
        ),
        click.option("--no-import", is_flag=True, help="Only count what is new, and hand nothing over."),
        click.option("--adaptive", is_flag=True, help="Busy feeds are checked more often, quiet ones less."),
        click.option("--zone", default="", metavar="ZONE", help="The zone of --cron, such as Europe/Berlin."),
        click.option("--cron", default="", metavar="TEXT", help='When it is checked, such as "0 */6 * * *".'),
        click.option(
            "--every", "every_s", type=Duration(), metavar="DURATION", help="How often it is checked.  [default: 6h]"
        ),
    ):
        command = option(command)
    for name, setting in other_feed_settings().items():
        option = click.option(f"--{name.replace('_', '-')}", name, type=SettingValue(setting), help=setting.meaning)
        command = option(command)
    return command


@click.group(cls=HintingGroup, short_help="Check feeds: add, list, show, pause, import, export.", epilog=EXIT_CODES)
def subscriptions() -> None:
    """Check feeds (RSS, Atom, JSON Feed) again and again: what is new and fits is wanted, and handed over.

    Works beside a running service, which does the checking, and without one. Those of the settings file are listed, paused
    and checked here too; to change or remove one, edit the file.
    """


@subscriptions.command(short_help="Subscribe to a feed.", epilog=EXIT_CODES)
@options
@_NAME
@click.argument("url", metavar="URL")
@_order_options
def add(config: str, *, as_json: bool, url: str, **order: Any) -> None:
    """Subscribe to the feed at URL under a NAME of your choice.

    With - instead of URL it is asked for, or read from standard input: then a key in it stands in no list of processes.
    """
    # Before a session is opened: Ctrl-C ends the question for the address.
    _add(config, as_json=as_json, address=_asked() if url == "-" else url, **order)


@session_command(may_make=True)
async def _add(
    session: CommandSession, name: str, address: str, *, every_s: float | None, cron: str, zone: str, **order: Any
) -> int:
    schedule = schedule_from(every_s=every_s, cron=cron, zone=zone)
    feeds = session.assembly.watching.feeds
    made = subscription_out(await feeds.subscribe(name, address, schedule, **_how(**order)))
    first = "all that fits is wanted" if order["take_all"] else "what is there at the first check is left out"
    hints = [*_hints(session, **order), *await _service_hint(session)]
    return session.show({"added": attrs.asdict(made)}, [f"{name} is checked {timing(made)}; {first}", *hints])


def _asked() -> str:
    if sys.stdin.isatty():
        found: str = click.prompt("Address of the feed (not shown)", hide_input=True, err=True)
        return found.strip()
    return sys.stdin.readline(FEED_LENGTH_MAX + 2).strip()


@subscriptions.command("list", short_help="All subscriptions.", epilog=EXIT_CODES)
@session_command()
@click.option("--after", type=click.IntRange(0, 2**62), default=0, metavar="NO", help="Those after this number.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="So many at most.")
async def list_subscriptions(session: CommandSession, after: int, limit: int) -> int:
    """All subscriptions: how often, the next check, and what went wrong. Keys in addresses are hidden."""
    page = await session.assembly.watching.feeds.page(after_id=after, limit=limit)
    found = [subscription_out(each) for each in page]
    following = found[-1].id if len(found) == limit else None
    facts = {"subscriptions": list(map(attrs.asdict, found)), "after": following}
    return session.show(facts, _text(session).listed(found, after=following))


@subscriptions.command(short_help="One subscription and its last checks.", epilog=EXIT_CODES)
@session_command()
@_NAME
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many checks at most.")
async def show(session: CommandSession, name: str, limit: int) -> int:
    """One subscription and how its last checks went. NAME may be a number, here and everywhere."""
    feeds = session.assembly.watching.feeds
    found = await feeds.find_any(name)
    checks = [check_out(found, each) for each in await feeds.checks(found.id, limit=limit)]
    shown = SubscriptionShownOut(subscription=subscription_out(found), checks=checks)
    return session.show(attrs.asdict(shown), _text(session).shown(shown))


@subscriptions.command(short_help="Subscribe no more.", epilog=EXIT_CODES)
@session_command()
@_NAME
async def remove(session: CommandSession, name: str) -> int:
    """Subscribe no more. What was wanted stays."""
    gone = await session.assembly.watching.feeds.unsubscribe(name)
    return session.show({"removed": gone.name}, [f"{gone.name} is no longer checked; what was wanted stays"])


@subscriptions.command(short_help="Leave a feed alone for now.", epilog=EXIT_CODES)
@session_command()
@_NAME
async def pause(session: CommandSession, name: str) -> int:
    """Leave a feed alone until it is resumed, also after a restart."""
    feeds = session.assembly.watching.feeds
    found = (await feeds.find_any(name)).name
    await feeds.pause(found)
    told = f"{found} is left alone until cormorant subscriptions resume {found}"
    return session.show({"subscription": found, "paused": True}, [told])


@subscriptions.command(short_help="End a pause.", epilog=EXIT_CODES)
@session_command()
@_NAME
async def resume(session: CommandSession, name: str) -> int:
    """Go on with a feed, whatever failed before."""
    feeds = session.assembly.watching.feeds
    found = (await feeds.find_any(name)).name
    await feeds.resume(found)
    told = [f"{found} goes on, and is due now", *await _service_hint(session)]
    return session.show({"subscription": found, "paused": False}, told)


@subscriptions.command(short_help="Check a feed now.", epilog=EXIT_CODES)
@session_command()
@_NAME
async def check(session: CommandSession, name: str) -> int:
    """Let the running service check a feed at once."""
    feeds = session.assembly.watching.feeds
    found = await feeds.find_any(name)
    if found.is_paused:
        raise CommandFailed(f"{found.name} is paused; resume it: cormorant subscriptions resume {found.name}")
    await feeds.reschedule(found.id)
    hints = await _service_hint(session)
    told = f"{found.name} is due" + ("" if hints else "; the running service checks it at once")
    facts = {"subscription": found.name, "due": True, "service_runs": await session.is_served()}
    return session.show(facts, [told, *hints])


@subscriptions.command("next", short_help="Which feed is checked next.", epilog=EXIT_CODES)
@session_command()
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="So many at most.")
async def next_checks(session: CommandSession, limit: int) -> int:
    """Which feeds are checked next, soonest first, as far as it is known now. `cormorant schedule` shows everything."""
    until = session.now + timedelta(hours=NEXT_HOURS)
    planned = await session.assembly.watching.feeds.planned(until=until, most=limit)
    once = [attrs.evolve(each, schedule=Schedule(every_s=365 * 86_400.0)) for each in planned]
    plan = attrs.evolve(plan_of(once, until=until, most=limit), has_more=False)
    return await _show_plan(session, plan, empty="no check is due; subscribe: cormorant subscriptions add NAME URL")


@subscriptions.command("import", short_help="Subscribe to all feeds of an OPML file.", epilog=EXIT_CODES)
@session_command(may_make=True)
@click.argument("file", metavar="FILE.opml", type=click.File("rb"))
@_order_options
async def import_file(
    session: CommandSession, file: BinaryIO, *, every_s: float | None, cron: str, zone: str, **order: Any
) -> int:
    """Subscribe to all feeds of an OPML file, as other readers export it. - is standard input.

    All are added or none. Feeds that are subscribed to already are left as they are; a name that is taken gets a number.
    The first checks are spread out. Folders are kept, and are in what `export` writes.
    """
    feeds = session.assembly.watching.feeds
    schedule = schedule_from(every_s=every_s, cron=cron, zone=zone)
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
    made = await feeds.subscribe_all(new, schedule, **_how(**order))
    left_out, there = [*listed.left_out, *wrong], len(listed.feeds) - len(fresh)
    facts = {"added": [attrs.asdict(subscription_out(each)) for each in made], "known": there, "left_out": left_out}
    told = [f"{len(made)} added, {there} known already, {len(left_out)} left out"]
    told += [f"  left out, no address of http: {name}" for name in left_out]
    return session.show(facts, [*told, *_hints(session, **order), *await _service_hint(session)])


@subscriptions.command("export", short_help="Write all feeds as OPML.", epilog=EXIT_CODES)
@session_command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False, path_type=Path))
async def export(session: CommandSession, file: Path | None) -> int:
    """Write all feeds as OPML to a new file, or to standard output. Keys in addresses are in it: keep it to yourself."""
    feeds: list[Outline] = []
    last = 0
    while page := await session.assembly.watching.feeds.page(after_id=last, limit=PAGE):
        feeds += [Outline(name=each.name, url=each.url, folder=each.folder) for each in page]
        last = page[-1].id
    if file is None:
        whole = {"feeds": list(map(attrs.asdict, feeds))}
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
    plan = await session.assembly.watching.schedule.preview(hours=hours, most=limit, now=session.now)
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


async def _service_hint(session: CommandSession) -> list[str]:
    if not await session.is_served():
        return ["no service runs on this database: it is checked when one is started, cormorant run"]
    if await session.is_paused():
        return ["everything is paused: it is checked after cormorant jobs resume"]
    return []


def _hints(session: CommandSession, *, hand_to: tuple[str, ...], no_import: bool, **_: Any) -> Iterable[str]:
    if no_import:
        yield "what is new is only counted"
    elif not hand_to:
        yield "what is new is only shown: --hand-to names nobody to hand it to"
    elif session.settings.mode != "live":
        yield 'observe mode: what is new is shown and not handed over; mode = "live" changes that'


def _text(session: CommandSession) -> FeedText:
    return FeedText(now=session.now, zone=session.zone)


def _how(
    *,
    adaptive: bool,
    no_import: bool,
    take_all: bool,
    accept: tuple[str, ...],
    reject: tuple[str, ...],
    hand_to: tuple[str, ...],
    **others: Any,
) -> dict[str, Any]:
    """What a subscription has of what the command was told."""
    return {
        "is_adaptive": adaptive,
        "auto_import": not no_import,
        "takes_first": take_all,
        "accept": accept,
        "reject": reject,
        "targets": hand_to,
        **other_feed_values(others),
    }


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
class FeedText:
    """Words for one look."""

    now: datetime
    zone: tzinfo

    def listed(self, found: Sequence[SubscriptionOut], *, after: int | None) -> Iterator[str]:
        """A page of them."""
        if not found:
            yield "nothing is subscribed to here; subscribe: cormorant subscriptions add NAME URL"
            return
        rows = [
            (str(each.id), each.name, timing(each), self._next(each), each.url, self._state(each)) for each in found
        ]
        head = ("NO", "NAME", "WHEN", "NEXT CHECK", "FEED", "HOW IT WENT")
        yield from table(head, rows, right=("NO",), paint=_PAINT)
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
        if not plan.runs:
            yield empty
            return
        rows = [(clock_time(run.at, self.now, self.zone), self._due(run.at), run.kind, run.name) for run in plan.runs]
        yield from table(("AT", "FROM NOW", "WHAT", "NAME"), rows)
        if plan.has_more:
            yield "there is more: raise --limit, or look less far ahead"

    def _facts(self, each: SubscriptionOut) -> Iterator[tuple[str, str]]:
        yield "feed", each.url
        yield "checked", timing(each)
        if each.effective_s is not None:
            why = f"after {each.failures} failures" if each.failures else "by its activity"
            yield "really", f"every {format_duration(each.effective_s)} {why}"
        yield "next check", f"paused: {each.paused_because}" if each.is_paused else self._when(each.next_check_at)
        yield "what is new", "is wanted" if each.auto_import else "is only counted"
        yield "first check", "takes all that is there" if each.first_check == "take" else "leaves out what is there"
        yield "must have", ", ".join(each.accept) or "anything"
        yield "must not have", ", ".join(each.reject) or "nothing is left out"
        yield "handed to", ", ".join(each.hand_to) or "nobody: what is new is only shown"
        if each.folder:
            yield "folder", " / ".join(each.folder)
        for name in other_feed_settings():
            yield name.replace("_", " "), str(getattr(each, name))
        yield "set", "in the settings file" if each.origin == "configured" else each.origin
        yield "how it went", self._state(each)

    def _checks(self, checks: Sequence[CheckOut]) -> Iterator[str]:
        if not checks:
            yield "no check yet"
            return
        rows = [
            (
                self._when(each.started_at),
                each.status,
                str(each.items_found),
                str(each.new_items),
                f"{each.duration_ms} ms",
                each.error or "",
            )
            for each in checks
        ]
        head = ("CHECKED", "STATUS", "ITEMS", "NEW", "TOOK", "ERROR")
        yield from table(head, rows, right=("ITEMS", "NEW", "TOOK"), paint=_PAINT)

    def _next(self, each: SubscriptionOut) -> str:
        return "paused" if each.is_paused else self._due(each.next_check_at)

    def _state(self, each: SubscriptionOut) -> str:
        if each.paused_because:
            return each.paused_because
        if each.last_checked_at is None:
            return "not checked yet"
        checked = f"checked {from_now(each.last_checked_at, self.now)}"
        often = "once" if each.failures == 1 else f"{each.failures} times"
        return f"{checked}, failed {often}: {each.last_error}" if each.last_error else checked

    def _due(self, moment: datetime) -> str:
        return "now" if moment <= self.now else from_now(moment, self.now)

    def _when(self, moment: datetime) -> str:
        return f"{clock_time(moment, self.now, self.zone)} ({from_now(moment, self.now)})"


def timing(each: SubscriptionOut) -> str:
    """When it is checked, as it was said."""
    return f"every {format_duration(each.every_s)}" if each.every_s is not None else f"{each.cron} {each.zone}"
