"""`cormorant sources`: which sites are asked, what was spent there, and what to do about one that waits."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs
import click
from typing_extensions import override

from cormorant.cli.console.command_line import HintingGroup, UsageRefused, config_option, json_option
from cormorant.cli.jobs import Duration
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.priorities import Priority
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import Setting, name_problem
from cormorant.rules.settings.sources import (
    KINDS,
    RESERVED_NAMES,
    SEARCHED,
    LimitSettings,
    ReserveSettings,
    SourceSettings,
)

if TYPE_CHECKING:
    from cormorant.cli.actions.sources import SourceActions


F = TypeVar("F", bound=Callable[..., Any])

KEY_LENGTH_MAX = 1_000

EXIT_CODES = """\b
Exit codes: 0  done
            1  it could not be done, and the reason is told
            2  bad input or settings, or the database cannot be used; nothing was changed
"""


class SettingValue(click.ParamType[Any]):
    """A value as the settings file writes it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.name = setting.kind.name

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.setting.parse(self.setting.kind.from_environment(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _settings_of(cls: type, *names: str) -> Iterator[tuple[str, Setting]]:
    for attribute in attrs.fields(cls):
        if Setting.KEY in attribute.metadata and (not names or attribute.name in names):
            yield attribute.name, attribute.metadata[Setting.KEY]


def _limit_options(command: F) -> F:
    """An option for each limit of the settings file, in its words."""
    own = [(name, setting.key(name), setting) for name, setting in _settings_of(LimitSettings)]
    kept = [("reserve", "reserve-interactive", setting) for _, setting in _settings_of(ReserveSettings, "interactive")]
    for name, key, setting in reversed([*own, *kept]):
        flag = f"--{key.replace('_', '-')}"
        metavar = setting.kind.name.partition(" with ")[0].upper().replace(" ", "-")
        option = click.option(flag, name, type=SettingValue(setting), metavar=metavar, help=setting.meaning)
        command = option(command)
    return command


def _options(command: F) -> F:
    return config_option(json_option(command))


_NAME = click.argument("name", metavar="NAME")


@click.group(cls=HintingGroup, short_help="Add, list, test, pause and remove sites to search.", epilog=EXIT_CODES)
def sources() -> None:
    """Add, list, test, pause, resume, reset and remove the sites that are searched.

    Works beside a running service, which takes every change in at once, and without one. Sources of the settings file are
    listed, tested, paused and reset here too; to change or remove one, edit the file.
    """


@sources.command("list", short_help="All sources: what was spent, and whether each is open.", epilog=EXIT_CODES)
@_options
def list_sources(config: str, *, as_json: bool) -> None:
    """All sources: what was spent this hour and today against the limits, and why one waits. Keys are never shown."""
    _run(config, lambda actions: actions.list_sources(), as_json=as_json)


@sources.command(short_help="Add a site.", epilog=EXIT_CODES)
@_options
@_NAME
@click.argument("url", metavar="URL")
@click.option("--kind", type=click.Choice(KINDS), default="torznab", show_default=True)
@click.option(
    "--key", metavar="KEY", help="Key of its API; others on this machine may see it in the list of processes."
)
@click.option("--key-file", type=click.File("r"), metavar="FILE", help="File that holds the key; - is standard input.")
@click.option("--limits", default="default", show_default=True, help="private, default, or [limits.NAME] of the file.")
@click.option("--proxy", metavar="URL", help="Proxy through which it is reached, such as http://gate:3128.")
@_limit_options
def add(config: str, *, as_json: bool, name: str, **words: Any) -> None:
    """Add a site: NAME is yours to choose, URL is that of its API without the key, such as http://prowlarr:9696/1/api.

    The key is asked for, or read from standard input, unless --key or --key-file gives it. A site that was there before
    goes on from what was spent.
    """
    problem = name_problem(name, RESERVED_NAMES)
    if problem:
        raise UsageRefused(f"NAME: {problem}")
    _check_kind(name, words["kind"])
    url = _parsed("url", words.pop("url"))
    if not url:
        raise UsageRefused("URL: it is empty; write one like http://prowlarr:9696/1/api")
    proxy = _parsed("proxy", words.pop("proxy") or "")
    interactive = words.pop("reserve")
    key = _key(words.pop("key"), words.pop("key_file"))
    wanted = SourceSettings(url=url, key=key, proxy=proxy, reserve=ReserveSettings(interactive=interactive), **words)
    _run(config, lambda actions: actions.add(name, wanted), as_json=as_json, may_make=True)


def _check_kind(name: str, kind: str) -> None:
    """What is no site to search is used by more than its address: by the watchlist, and as a target."""
    if kind not in SEARCHED:
        keys = "id and key" if kind == "spotify" else "url and key"
        raise UsageRefused(
            f'--kind: {kind} is set in the settings file: write [sources.{name}] with kind = "{kind}", {keys}'
        )


def _parsed(name: str, text: str) -> Any:
    """Invariant: what was typed is not repeated, for a key may have been pasted with it."""
    [(_, setting)] = _settings_of(SourceSettings, name)
    try:
        return setting.parse(text)
    except ValueError as error:
        raise UsageRefused(f"{'URL' if name == 'url' else f'--{name}'}: {error}") from None


def _key(given: str | None, file: Any) -> Secret:
    if given is not None and file is not None:
        raise click.UsageError("give --key or --key-file, not both")
    if given is not None:
        text = given
    elif file is not None:
        text = file.read(KEY_LENGTH_MAX + 2)
    elif sys.stdin.isatty():
        text = click.prompt(
            "Key of its API (Enter for none)", default="", show_default=False, hide_input=True, err=True
        )
    else:
        text = sys.stdin.readline(KEY_LENGTH_MAX + 2)
    text = text.strip()
    if len(text) > KEY_LENGTH_MAX or not text.isprintable() or " " in text:
        raise UsageRefused("the key: it is no single word of at most 1000 letters; was something else pasted with it?")
    return Secret(text)


@sources.command(short_help="Ask a site what it can do.", epilog=EXIT_CODES)
@_options
@_NAME
def test(config: str, *, as_json: bool, name: str) -> None:
    """Ask a site what it can do. It is a request like every other: it counts, and it is not made while a gate is closed."""
    _run(config, lambda actions: actions.test(name), as_json=as_json, may_make=True)


@sources.command(short_help="Ask a site no more for now.", epilog=EXIT_CODES)
@_options
@_NAME
@click.option("--for", "for_s", type=Duration(), metavar="DURATION", help="How long, such as 2h.  [default: for good]")
def pause(config: str, *, as_json: bool, name: str, for_s: float | None) -> None:
    """Ask a site no more, in any process, also after a restart."""
    _run(config, lambda actions: actions.pause(name, for_s), as_json=as_json)


@sources.command(short_help="End a pause.", epilog=EXIT_CODES)
@_options
@_NAME
def resume(config: str, *, as_json: bool, name: str) -> None:
    """Go on asking a site that was paused."""
    _run(config, lambda actions: actions.resume(name), as_json=as_json)


@sources.command(short_help="Forget the trouble with a site.", epilog=EXIT_CODES)
@_options
@_NAME
def reset(config: str, *, as_json: bool, name: str) -> None:
    """Forget cooldown, failures and refused credentials of a site. What was spent stays spent, a pause stays a pause."""
    _run(config, lambda actions: actions.reset(name), as_json=as_json)


@sources.command(short_help="Remove a site that was added by command.", epilog=EXIT_CODES)
@_options
@_NAME
def remove(config: str, *, as_json: bool, name: str) -> None:
    """Remove a site that was added by command. What was spent is remembered, should it come back."""
    _run(config, lambda actions: actions.remove(name), as_json=as_json)


def _run(
    config: str, action: Callable[[SourceActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> NoReturn:
    from cormorant.cli.actions.sources import run_source_action  # noqa: PLC0415  # `--help` need not wait for the database's driver

    sys.exit(run_source_action(config, action, as_json=as_json, may_make=may_make))


PRIORITIES = click.Choice([priority.name.lower() for priority in Priority])


@click.command(short_help="Why a site waits, gate by gate, and until when.", epilog=EXIT_CODES)
@config_option
@json_option
@click.argument("source", metavar="SOURCE")
@click.option("--priority", type=PRIORITIES, default="interactive", show_default=True, help="For whom it is asked.")
@click.option("--grab", is_flag=True, help="For a download instead of a search.")
def explain(config: str, *, as_json: bool, source: str, priority: str, grab: bool) -> None:
    """Every gate before a site in order: when it opens and why, what is spent, and when the next request can go."""
    from cormorant.cli.actions.sources import run_source_action  # noqa: PLC0415  # `--help` need not wait for the database's driver

    lane, urgency = Lane.GRAB if grab else Lane.QUERY, Priority[priority.upper()]
    sys.exit(run_source_action(config, lambda actions: actions.explain(source, urgency, lane), as_json=as_json))
