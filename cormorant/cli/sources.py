"""`cormorant sources` and `cormorant explain`: commands and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from attrs import frozen

from cormorant.cli.console.command_line import (
    EXIT_CODES,
    CommandFailed,
    Duration,
    HintingGroup,
    SettingValue,
    UsageRefused,
    parsed_setting,
    read_key,
    session_command,
    together,
)
from cormorant.cli.console.output import Times, painter, printable, table
from cormorant.rules.search.caps import dump_caps
from cormorant.rules.search.limits import Lane, SourceLimits, WindowName
from cormorant.rules.search.outcomes import CredentialsRefused, SourceError
from cormorant.rules.search.priorities import Priority, multiplier
from cormorant.rules.search.reasons import Explanation, ReasonName, whole_second
from cormorant.rules.search.requests import KINDS as SEARCH_KINDS
from cormorant.rules.search.requests import Caps, Category
from cormorant.rules.secrets import Secret, redact_secrets
from cormorant.rules.settings.fields import Setting, name_problem
from cormorant.rules.settings.sources import (
    KINDS,
    RESERVED_NAMES,
    SEARCHED,
    LimitSettings,
    ReserveSettings,
    SourceSettings,
    limits_of,
)
from cormorant.rules.units import clock_time
from cormorant.services.search_views import explanation_json, host_of, source_json, state_of

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession
    from cormorant.rules.settings.settings import Settings
    from storage.search.source_views import SourceView, WindowSpend

F = TypeVar("F", bound=Callable[..., Any])

_SHOWS_IT = "`cormorant sources list` shows it"
_TOLD = {"in_doubt": _SHOWS_IT, "interrupted": "interrupted"}


def _settings_of(cls: type, *names: str) -> Iterator[tuple[str, Setting]]:
    for attribute in attrs.fields(cls):
        if Setting.KEY in attribute.metadata and (not names or attribute.name in names):
            yield attribute.name, attribute.metadata[Setting.KEY]


def _limit_option(name: str, key: str, setting: Setting) -> Callable[[F], F]:
    """The option of a limit, in the words of the settings file."""
    metavar = setting.kind.name.partition(" with ")[0].upper().replace(" ", "-")
    flag = f"--{key.replace('_', '-')}"
    return click.option(flag, name, type=SettingValue(setting), metavar=metavar, help=setting.meaning)


_LIMITS = together(
    *(_limit_option(name, setting.key(name), setting) for name, setting in _settings_of(LimitSettings)),
    *(
        _limit_option("reserve", "reserve-interactive", setting)
        for _, setting in _settings_of(ReserveSettings, "interactive")
    ),
)
_NAME = click.argument("name", metavar="NAME")


@click.group(cls=HintingGroup, short_help="Add, list, test, pause and remove sites to search.", epilog=EXIT_CODES)
def sources() -> None:
    """Add, list, test, pause, resume, reset and remove the sites that are searched.

    Works beside a running service, which takes every change in at once, and without one. Sources of the settings file are
    listed, tested, paused and reset here too; to change or remove one, edit the file.
    """


@sources.session_command("All sources: what was spent, and whether each is open.", name="list", **_TOLD)
async def list_sources(session: CommandSession) -> int:
    """All sources: what was spent this hour and today against the limits, and why one waits. Keys are never shown."""
    found = await session.sources.views()
    return session.show({"sources": list(map(source_json, found))}, _text(session).listed(found))


def _wanted(*, name: str, **words: Any) -> dict[str, Any]:
    """The source that was asked for, or a refusal."""
    problem = name_problem(name, RESERVED_NAMES)
    if problem:
        raise UsageRefused(f"NAME: {problem}")
    _check_kind(name, words["kind"])
    url = parsed_setting(SourceSettings, "url", words.pop("url"), shown="URL")
    if not url:
        raise UsageRefused("URL: it is empty; write one like http://prowlarr:9696/1/api")
    proxy = parsed_setting(SourceSettings, "proxy", words.pop("proxy") or "", shown="--proxy")
    reserve = ReserveSettings(interactive=words.pop("reserve"))
    key = _key(words.pop("key"), words.pop("key_file"))
    return {"name": name, "wanted": SourceSettings(url=url, key=key, proxy=proxy, reserve=reserve, **words)}


@sources.session_command("Add a site.", may_make=True, before=_wanted, **_TOLD)
@_NAME
@click.argument("url", metavar="URL")
@click.option("--kind", type=click.Choice(KINDS), default="torznab", show_default=True)
@click.option(
    "--key", metavar="KEY", help="Key of its API; others on this machine may see it in the list of processes."
)
@click.option("--key-file", type=click.File("r"), metavar="FILE", help="File that holds the key; - is standard input.")
@click.option("--limits", default="default", show_default=True, help="private, default, or [limits.NAME] of the file.")
@click.option("--proxy", metavar="URL", help="Proxy through which it is reached, such as http://gate:3128.")
@_LIMITS
async def add(session: CommandSession, name: str, wanted: SourceSettings) -> int:
    """Add a site: NAME is yours to choose, URL is that of its API without the key, such as http://prowlarr:9696/1/api.

    The key is asked for, or read from standard input, unless --key or --key-file gives it. A site that was there before
    goes on from what was spent.
    """
    limits = limits_or_refuse(session.settings, wanted)
    was_known = await session.sources.add(name, wanted, limits, file=session.file)
    view = await session.sources.view(name)
    told = [f"{name} is added: {wanted.kind} at {host_of(wanted.url)}", f"try it: cormorant sources test {name}"]
    if was_known:
        spent, state = f"queries in the last 24 hours: {view.queries_today:,}", _text(session).state(view)
        told.insert(1, f"it was here before and goes on from what was spent ({spent}); {sentence_of(state)}")
    return session.show({"added": source_json(view), "was_known": was_known}, told)


def limits_or_refuse(settings: Settings, wanted: SourceSettings) -> SourceLimits:
    """The limits of a source, or a refusal if the settings have no preset of that name."""
    try:
        return limits_of(wanted, settings.limits)
    except ValueError as error:
        raise UsageRefused(f"--limits: {error}") from None


def _check_kind(name: str, kind: str) -> None:
    """What is no site to search is used by more than its address: by the watchlist, and as a target."""
    if kind not in SEARCHED:
        keys = "id and key" if kind == "spotify" else "url and key"
        raise UsageRefused(
            f'--kind: {kind} is set in the settings file: write [sources.{name}] with kind = "{kind}", {keys}'
        )


def _key(given: str | None, file: Any) -> Secret:
    if given is not None and file is not None:
        raise click.UsageError("give --key or --key-file, not both")
    return read_key("the key", given, file, question="Key of its API (Enter for none)", default="")


@sources.session_command("Ask a site what it can do.", may_make=True, **_TOLD)
@_NAME
async def test(session: CommandSession, name: str) -> int:
    """Ask a site what it can do. It is a request like every other: it counts, and it is not made while a gate is closed."""
    try:
        caps = await session.sources.test(name)
    except SourceError as error:
        raise CommandFailed(_trouble(await session.sources.view(name), error, session.file)) from None
    told = list(caps_lines(name, caps))
    if (await session.sources.view(name)).record.key:
        told.append("  a wrong key shows at the first search: many sites do not look at it here")
    return session.show({"source": name, "caps": dump_caps(caps)}, told)


def _trouble(view: SourceView, error: SourceError, file: str) -> str:
    record = view.record
    said = redact_secrets(" ".join(str(error).split()), [record.key, record.proxy])
    if not isinstance(error, CredentialsRefused):
        return f"{record.name}: {said}; what follows for it: cormorant explain {record.name}"
    if view.is_configured:
        remedy = f"correct sources.{record.name}.key in {file}, then: cormorant sources reset {record.name}"
    else:
        remedy = f"cormorant sources remove {record.name}, then add it with the right key"
    return f"{record.name}: {said.partition(';')[0]}; it is stopped until that is put right: {remedy}"


@sources.session_command("Ask a site no more for now.", **_TOLD)
@_NAME
@click.option("--for", "for_s", type=Duration(), metavar="DURATION", help="How long, such as 2h.  [default: for good]")
async def pause(session: CommandSession, name: str, for_s: float | None) -> int:
    """Ask a site no more, in any process, also after a restart."""
    until = None if for_s is None else session.now + timedelta(seconds=for_s)
    view = await session.sources.pause(name, until=until)
    end = f"cormorant sources resume {name}" if until is None else clock_time(until, view.now, session.zone)
    told = f"{name} is paused until {end}, for every process that shares the database; a request under way goes on"
    return session.show({"source": name, "paused": True, "until": until}, [told])


@sources.session_command("End a pause.", **_TOLD)
@_NAME
async def resume(session: CommandSession, name: str) -> int:
    """Go on asking a site that was paused."""
    was_paused = (await session.sources.view(name)).known.state.is_paused
    view = await session.sources.resume(name)
    told = f"{name} is no longer paused" if was_paused else f"{name} was not paused"
    return _show_state(session, view, told, paused=False, changed=was_paused)


@sources.session_command("Forget the trouble with a site.", **_TOLD)
@_NAME
async def reset(session: CommandSession, name: str) -> int:
    """Forget cooldown, failures and refused credentials of a site. What was spent stays spent, a pause stays a pause."""
    view = await session.sources.reset(name)
    told = f"{name}: cooldown, failures and refused credentials are forgotten; what was spent stays spent"
    return _show_state(session, view, told, reset=True)


def _show_state(session: CommandSession, view: SourceView, told: str, **facts: bool) -> int:
    state = _text(session).state(view)
    return session.show({"source": view.record.name, "state": state, **facts}, [f"{told}; {sentence_of(state)}"])


@sources.session_command("Remove a site that was added by command.", **_TOLD)
@_NAME
async def remove(session: CommandSession, name: str) -> int:
    """Remove a site that was added by command. What was spent is remembered, should it come back."""
    await session.sources.remove(name, file=session.file)
    told = f"{name} is removed; what was spent there is remembered, should it come back"
    return session.show({"removed": name}, [told])


PRIORITIES = click.Choice([priority.name.lower() for priority in Priority])


@click.command(short_help="Why a site waits, gate by gate, and until when.", epilog=EXIT_CODES)
@session_command(in_doubt=_SHOWS_IT, interrupted="interrupted")
@click.argument("source", metavar="SOURCE")
@click.option("--priority", type=PRIORITIES, default="interactive", show_default=True, help="For whom it is asked.")
@click.option("--grab", is_flag=True, help="For a download instead of a search.")
async def explain(session: CommandSession, source: str, priority: str, *, grab: bool) -> int:
    """Every gate before a site in order: when it opens and why, what is spent, and when the next request can go."""
    lane, urgency = Lane.GRAB if grab else Lane.QUERY, Priority[priority.upper()]
    view = await session.sources.view(source)
    return session.show(explanation_json(view, urgency, lane), _text(session).explained(view, urgency, lane))


def _text(session: CommandSession) -> SourceText:
    return SourceText(now=session.now, zone=session.zone, config=session.file)


_PAINT = painter({"open": "green"})
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
_CATEGORIES_SHOWN = 12


def sentence_of(state: str) -> str:
    """The state as a part of a sentence.

    >>> sentence_of("open"), sentence_of("waits for pace until 12:00:06")
    ('it is open', 'it waits for pace until 12:00:06')
    """
    return f"it {state}" if state.startswith("waits ") else f"it is {state}"


@frozen(kw_only=True)
class SourceText(Times):
    """Sources as text. `config` is the settings file as it was named."""

    config: str

    def listed(self, views: Sequence[SourceView]) -> Iterator[str]:
        """The list of sources."""
        rows = [
            [
                view.record.name,
                view.record.kind,
                host_of(view.record.url),
                _share(view, Lane.QUERY, WindowName.HOUR) or str(view.queries_this_hour),
                _share(view, Lane.QUERY, WindowName.DAY) or str(view.queries_today),
                _share(view, Lane.GRAB, WindowName.DAY) or "-",
                self.state(view),
            ]
            for view in views
        ]
        head = ("NAME", "KIND", "HOST", "THIS HOUR", "TODAY", "GRABS", "STATE")
        empty = f"no sources yet; add one: cormorant sources add NAME URL, or [sources.NAME] in {self.config}"
        yield from table(head, rows, empty=empty, right=head[3:6], paint=_PAINT)

    def state(self, view: SourceView) -> str:
        """The state of a source for a person who searches."""
        return state_of(view.explain(Priority.INTERACTIVE, zone=self.zone))

    def explained(self, view: SourceView, priority: Priority, lane: Lane) -> Iterator[str]:
        """The gates in order, and when the next request can go."""
        record = view.record
        explanation = view.explain(priority, lane, zone=self.zone)
        origin = f"of {self.config}" if view.is_configured else "added by command"
        yield f"{record.name}  {record.kind}  {printable(host_of(record.url))}  {origin}"
        what = "search" if lane is Lane.QUERY else "download"
        yield f"a {what} {_WHO[priority]} {self._when(explanation.opens_at)}"
        yield ""
        yield from table(("GATE", "OPENS", "WHY"), list(self._reasons(view, explanation, priority, lane)), paint=_PAINT)
        if len(explanation.lines) > max(1, len(explanation.reasons)):
            yield explanation.lines[-1]

    def _when(self, opens_at: datetime | None) -> str:
        if opens_at is None:
            return "cannot go, and nobody knows when it can"
        if opens_at <= self.now:
            return "can go now"
        return f"can go {self.ago(opens_at)}, at {self.at(whole_second(opens_at))}"

    def _reasons(
        self, view: SourceView, explanation: Explanation, priority: Priority, lane: Lane
    ) -> Iterator[list[str]]:
        closed = {reason.name: reason for reason in explanation.reasons}
        # Of the two ways to count a day one holds. A command is no app, so that it has no share.
        hidden = {ReasonName.RESET if view.limits.reset is None else ReasonName.DAY, ReasonName.APP_SHARE}
        for name in ReasonName:
            if name in hidden:
                continue
            reason = closed.get(name)
            if reason is None:
                yield [name.value, "open", self._open(view, name, priority, lane)]
            else:
                at = self.at(whole_second(reason.opens_at)) if reason.opens_at else "unknown"
                yield [name.value, at, reason.why]

    def _open(self, view: SourceView, name: ReasonName, priority: Priority, lane: Lane) -> str:
        limits, state = view.limits, view.known.state
        if name in _QUOTAS:
            return self._quota(view, _QUOTAS[name], lane)
        told = {
            ReasonName.BREAKER: f"failed {state.failure_streak} times in a row" if state.failure_streak > 1 else "",
            ReasonName.IN_FLIGHT: f"{limits.in_flight_max} allowed at once",
            ReasonName.SPACING: f"{limits.spacing_s:g} s between requests{_learned(view, 'spacing_s')}",
            ReasonName.PACE: f"{priority.name.lower()} work keeps {limits.pace_s * multiplier(priority):g} s apart",
        }
        return told.get(name, "")

    def _quota(self, view: SourceView, window: WindowName, lane: Lane) -> str:
        spent = _spent(view, lane, window)
        if spent is None:
            return "no limit"
        name = f"per_{window.value}" if lane is Lane.QUERY or window is WindowName.MINUTE else f"grabs_per_{window}"
        since = f"since {self.at(spent.since)}" if spent.window.reset else "counted back from now"
        return f"{spent.count} of {spent.window.whole} spent, {since}{_learned(view, name)}"


def caps_lines(name: str, caps: Caps) -> Iterator[str]:
    """What a source said it can do."""
    kinds = [kind for kind in SEARCH_KINDS if kind in caps.searching]
    categories = [each for top in caps.categories for each in (top, *top.children)]
    yield f"{name} answers{f': {printable(caps.title)}' if caps.title else ''}"
    yield f"  searches    {', '.join(kinds) or 'it does not say which'}"
    yield f"  page size   {caps.page_size}"
    yield f"  categories  {len(categories)}{_examples(caps.categories)}"


def _examples(categories: Sequence[Category]) -> str:
    shown = ", ".join(f"{each.id} {printable(each.name)}" for each in categories[:_CATEGORIES_SHOWN])
    return f": {shown}{', …' if len(categories) > _CATEGORIES_SHOWN else ''}" if shown else ""


def _spent(view: SourceView, lane: Lane, window: WindowName) -> WindowSpend | None:
    return next((each for each in view.spent if each.lane is lane and each.window.name is window), None)


def _share(view: SourceView, lane: Lane, window: WindowName) -> str:
    spent = _spent(view, lane, window)
    return "" if spent is None else f"{spent.count}/{spent.window.whole}"


def _learned(view: SourceView, name: str) -> str:
    """Whether a limit is the site's own word."""
    ours, holds = getattr(view.record.limits, name), getattr(view.limits, name)
    if ours == holds:
        return ""
    return " (the site says so)" if ours is None else f" (the site says so; {ours:g} are configured)"
