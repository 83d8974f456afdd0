"""What the commands `cormorant subscriptions` and `schedule` do."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import click
from attrs import frozen

from actors.environment import Environment
from cormorant.cli.actions.job_text import as_text
from cormorant.cli.actions.watches import assembly_of
from cormorant.cli.console.command_line import EXIT_OK, CommandFailed, CommandInterrupted, UsageRefused, display_path
from cormorant.cli.console.database_session import with_database
from cormorant.cli.console.output import painter, pairs, printable, table
from cormorant.cli.console.preflight import load_or_refuse
from cormorant.clients.opml import BYTES_MAX, NotOpml, Outline, read_opml, write_opml
from cormorant.rules.addresses import feed_address_problem
from cormorant.rules.errors import CommitUnknown, CormorantError
from cormorant.rules.schedules import Schedule, SchedulePreview, plan_of
from cormorant.rules.units import clock_time, format_duration, from_now, zone_of
from cormorant.rules.watch.feeds import NAME_LENGTH_MAX, schedule_from
from cormorant.services.schedule import ScheduleService
from cormorant.services.watch.feed_views import (
    CheckOut,
    SubscriptionOut,
    SubscriptionShownOut,
    check_out,
    subscription_out,
)
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.watches import Watches
from storage import pauses
from storage.database import Database
from storage.jobs import workers
from storage.watch.feeds import SubscriptionConfigured, SubscriptionExists, UnknownSubscription

PAGE = 500
NEXT_HOURS = 24.0 * 365

_NOT_DONE = (UnknownSubscription, SubscriptionExists, SubscriptionConfigured)


@frozen(kw_only=True)
class FeedActions:
    """Where the commands meet the database."""

    environment: Environment
    subscriptions: Feeds
    watches: Watches
    prices: Prices
    as_json: bool

    async def add(self, name: str, url: str, *, every_s: float | None, cron: str, zone: str, **how: Any) -> int:
        """Subscribe to a feed."""
        schedule = schedule_from(every_s=every_s, cron=cron, zone=zone)
        made = subscription_out(await self.subscriptions.subscribe(name, url, schedule, **_how(**how)))
        first = "all that fits is wanted" if how["take_all"] else "what is there at the first check is left out"
        told = [f"{name} is checked {timing(made)}; {first}", *self._hints(**how), *await self._service_hint()]
        return self._tell({"added": attrs.asdict(made)}, told)

    async def listed(self, *, after: int, limit: int) -> int:
        """A page of them."""
        page = await self.subscriptions.page(after_id=after, limit=limit)
        found = [subscription_out(each) for each in page]
        following = found[-1].id if len(found) == limit else None
        facts = {"subscriptions": list(map(attrs.asdict, found)), "after": following}
        return self._tell(facts, self._words().listed(found, after=following))

    async def show(self, wanted: str, *, limit: int) -> int:
        """One of them with its checks."""
        found = await self.subscriptions.find_any(wanted)
        checks = await self.subscriptions.checks(found.id, limit=limit)
        shown = SubscriptionShownOut(
            subscription=subscription_out(found), checks=[check_out(found, each) for each in checks]
        )
        return self._tell(attrs.asdict(shown), self._words().shown(shown))

    async def remove(self, wanted: str) -> int:
        """Subscribe no more."""
        gone = await self.subscriptions.unsubscribe(wanted)
        return self._tell({"removed": gone.name}, [f"{gone.name} is no longer checked; what was wanted stays"])

    async def pause(self, wanted: str) -> int:
        """Leave one alone."""
        name = (await self.subscriptions.find_any(wanted)).name
        await self.subscriptions.pause(name)
        told = f"{name} is left alone until cormorant subscriptions resume {name}"
        return self._tell({"subscription": name, "paused": True}, [told])

    async def resume(self, wanted: str) -> int:
        """Go on with one."""
        name = (await self.subscriptions.find_any(wanted)).name
        await self.subscriptions.resume(name)
        told = [f"{name} goes on, and is due now", *await self._service_hint()]
        return self._tell({"subscription": name, "paused": False}, told)

    async def check(self, wanted: str) -> int:
        """Let a running service check one."""
        found = await self.subscriptions.find_any(wanted)
        if found.is_paused:
            raise CommandFailed(f"{found.name} is paused; resume it: cormorant subscriptions resume {found.name}")
        await self.subscriptions.reschedule(found.id)
        is_served, hints = await self._is_served(), await self._service_hint()
        told = f"{found.name} is due" + ("" if hints else "; the running service checks it at once")
        return self._tell({"subscription": found.name, "due": True, "service_runs": is_served}, [told, *hints])

    async def upcoming(self, *, limit: int) -> int:
        """Which are checked next, each once."""
        until = self._now() + timedelta(hours=NEXT_HOURS)
        planned = await self.subscriptions.planned(until=until, most=limit)
        once = [attrs.evolve(each, schedule=Schedule(every_s=365 * 86_400.0)) for each in planned]
        plan = attrs.evolve(plan_of(once, until=until, most=limit), has_more=False)
        return await self._tell_plan(plan, empty="no check is due; subscribe: cormorant subscriptions add NAME URL")

    async def schedule(self, *, hours: float, limit: int) -> int:
        """What runs when, of everything."""
        ahead = ScheduleService(
            self.environment, subscriptions=self.subscriptions, watches=self.watches, prices=self.prices
        )
        plan = await ahead.preview(hours=hours, most=limit, now=self._now())
        return await self._tell_plan(plan, empty=f"nothing runs in the next {hours:g} hours")

    async def import_opml(self, file: BinaryIO, *, every_s: float | None, cron: str, zone: str, **how: Any) -> int:
        """Subscribe to all feeds of a file that are not subscribed to yet."""
        schedule = schedule_from(every_s=every_s, cron=cron, zone=zone)
        known = await self.subscriptions.names()
        addresses = {url for _, url in known}
        taken = [*(name for name, _ in known), *self.environment.settings.feeds]
        try:
            listed = read_opml(file.read(BYTES_MAX + 1), taken=taken)
        except NotOpml as problem:
            raise UsageRefused(f"FILE: {problem}") from None
        fresh = [each for each in listed.feeds if each.url not in addresses]
        wrong = [each.name for each in fresh if feed_address_problem(each.url)]
        right = [each for each in fresh if each.name not in wrong]
        feeds = [(each.name[:NAME_LENGTH_MAX].strip(), each.url, each.folder) for each in right]
        made = await self.subscriptions.subscribe_all(feeds, schedule, **_how(**how))
        left_out = [*listed.left_out, *wrong]
        known_already = len(listed.feeds) - len(fresh)
        facts = {
            "added": [attrs.asdict(subscription_out(each)) for each in made],
            "known": known_already,
            "left_out": left_out,
        }
        told = [f"{len(made)} added, {known_already} known already, {len(left_out)} left out"]
        told += [f"  left out, no address of http: {name}" for name in left_out]
        return self._tell(facts, [*told, *self._hints(**how), *await self._service_hint()])

    async def export(self, file: Path | None) -> int:
        """Write all of them."""
        feeds: list[Outline] = []
        last = 0
        while page := await self.subscriptions.page(after_id=last, limit=PAGE):
            feeds += [Outline(name=each.name, url=each.url, folder=each.folder) for each in page]
            last = page[-1].id
        if file is None:
            whole = {"feeds": list(map(attrs.asdict, feeds))}
            click.echo(as_text(whole) if self.as_json else write_opml(feeds).decode(), nl=self.as_json)
            return EXIT_OK
        _write_new(file, write_opml(feeds))
        told = [
            f"{len(feeds)} written to {display_path(str(file))}",
            "keys in addresses are in it: keep it to yourself",
        ]
        return self._tell({"written": len(feeds), "file": str(file)}, told)

    async def _tell_plan(self, plan: SchedulePreview, *, empty: str) -> int:
        is_paused = await self.environment.database.read(pauses.is_all_paused)
        facts = {
            "runs": [{"at": run.at, "kind": run.kind, "name": run.name} for run in plan.runs],
            "has_more": plan.has_more,
            "is_paused": is_paused,
        }
        lines = list(self._words().plan(plan, empty=empty))
        return self._tell(facts, [*lines, *(["everything is paused: cormorant jobs resume"] if is_paused else [])])

    async def _is_served(self) -> bool:
        silent = self._now() - timedelta(seconds=self.environment.settings.jobs.lock_timeout_s)
        found = await self.environment.database.read(workers.all_workers)
        return any(each.dead_at is None and each.beat_at > silent for each in found)

    async def _service_hint(self) -> list[str]:
        if not await self._is_served():
            return ["no service runs on this database: it is checked when one is started, cormorant run"]
        if await self.environment.database.read(pauses.is_all_paused):
            return ["everything is paused: it is checked after cormorant jobs resume"]
        return []

    def _hints(self, *, hand_to: tuple[str, ...], no_import: bool, **_: Any) -> Iterable[str]:
        if no_import:
            yield "what is new is only counted"
        elif not hand_to:
            yield "what is new is only shown: --hand-to names nobody to hand it to"
        elif self.environment.settings.mode != "live":
            yield 'observe mode: what is new is shown and not handed over; mode = "live" changes that'

    def _now(self) -> datetime:
        return datetime.now(UTC)

    def _words(self) -> FeedText:
        return FeedText(now=self._now(), zone=zone_of(self.environment.settings.time_zone))

    def _tell(self, facts: dict[str, Any], lines: Iterable[str]) -> int:
        click.echo(as_text(facts) if self.as_json else "\n".join(lines))
        return EXIT_OK


def _how(
    *,
    adaptive: bool,
    no_import: bool,
    take_all: bool,
    accept: tuple[str, ...],
    reject: tuple[str, ...],
    hand_to: tuple[str, ...],
) -> dict[str, Any]:
    """What a subscription has of what the command was told."""
    return {
        "is_adaptive": adaptive,
        "auto_import": not no_import,
        "takes_first": take_all,
        "accept": accept,
        "reject": reject,
        "targets": hand_to,
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


def run_feed_action(
    config: str, action: Callable[[FeedActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> int:
    """Run a command at the database of a settings file. Returns its exit code."""
    settings = load_or_refuse(config)

    async def run(database: Database) -> int:
        assembly = assembly_of(settings, database)
        watching = assembly.watching
        return await action(
            FeedActions(
                environment=assembly.environment,
                subscriptions=watching.feeds,
                watches=watching.watches,
                prices=watching.prices,
                as_json=as_json,
            )
        )

    try:
        return with_database(settings, run, may_make=may_make)
    except _NOT_DONE as error:
        raise CommandFailed(str(error)) from None
    except CommitUnknown as unknown:
        raise CommandFailed(f"{unknown}; look whether it happened before you repeat it") from None
    except CormorantError as error:
        raise UsageRefused(str(error)) from None
    except KeyboardInterrupt:
        raise CommandInterrupted("interrupted; nothing was changed") from None


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
