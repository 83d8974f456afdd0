"""`cormorant clients`: which apps search through the gate, how urgent each is, and what each has spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click

from cormorant.cli.console.command_line import (
    EXIT_CODES,
    HintingGroup,
    SettingValue,
    UsageRefused,
    together,
)
from cormorant.cli.console.output import table
from cormorant.rules.settings.fields import DURATION, SHARE, Setting, name_problem
from cormorant.rules.settings.service import ClientSettings

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession
    from storage.access import ClientAppView

F = TypeVar("F", bound=Callable[..., Any])

_HEAD = ("NAME", "PRIORITY", "SHARE", "HOLD", "QUERIES", "GRABS", "FROM", "SPENT AT")

_TOLD = {"in_doubt": "`cormorant clients list` shows it", "interrupted": "interrupted"}


def _option(attribute: attrs.Attribute[Any]) -> Callable[[F], F]:
    """The option of a setting of a client, in the words of the settings file."""
    setting: Setting = attribute.metadata[Setting.KEY]
    key = setting.key(attribute.name)
    return click.option(
        f"--{key}",
        attribute.name,
        type=click.Choice(setting.choices) if setting.choices else SettingValue(setting),
        default=attribute.default if setting.choices else setting.kind.write(attribute.default).strip('"'),
        show_default=True,
        metavar=None if setting.choices else key.upper(),
        help=setting.meaning,
    )


_TREATMENT = together(*(_option(each) for each in attrs.fields(ClientSettings) if each.name != "key"))


def _new_name(_: click.Context, __: click.Parameter, name: str) -> str:
    """Refuses a wrong name while the command line is read, before a database is made."""
    problem = name_problem(name)
    if problem:
        raise UsageRefused(f"NAME: {problem}")
    return name


@click.group(cls=HintingGroup, short_help="Add, list and remove apps that search through the gate.", epilog=EXIT_CODES)
def clients() -> None:
    """Add, list and remove the apps that search through the gate. Each has a key of its own, which says who asks.

    Works beside a running service, which takes every change in within seconds, and without one. Apps of the settings file
    are listed here too; to change or remove one, edit the file.
    """


@clients.session_command("All apps: priority, share, hold, and what each has spent.", name="list", **_TOLD)
async def list_clients(session: CommandSession) -> int:
    """All apps: how each is treated, and what each has spent in the last 24 hours. Keys are never shown."""
    found = await session.assembly.apps.all()
    return session.show({"clients": list(found)}, _listed(found, file=session.file))


@clients.session_command("Add an app and show its key, once.", may_make=True, **_TOLD)
@click.argument("name", metavar="NAME", callback=_new_name)
@_TREATMENT
async def add(session: CommandSession, name: str, **chosen: Any) -> int:
    """Add an app: NAME is yours to choose, such as sonarr. Its key is shown this once; only a digest of it is kept."""
    added = await session.assembly.apps.add(name, ClientSettings(**chosen))
    return session.show({"added": added.client, "key": added.key}, _added(session, name, added.key))


@clients.session_command("Remove an app that was added by command.", **_TOLD)
@click.argument("name", metavar="NAME")
async def remove(session: CommandSession, name: str) -> int:
    """Let an app in no more that was added by command. Its key and its links open nothing; what it spent stays spent."""
    await session.assembly.apps.remove(name)
    told = f"{name} is removed; its key and its links open nothing any more. What it spent stays spent"
    return session.show({"removed": name}, [told])


def _listed(found: Sequence[ClientAppView], *, file: str) -> Iterator[str]:
    empty = f"no clients yet; add one: cormorant clients add NAME, or [clients.NAME] in {file}"
    yield from table(_HEAD, [_row(each, file=file) for each in found], empty=empty, right=("QUERIES", "GRABS"))
    if found:
        yield "queries and grabs are those of the last 24 hours"


def _row(app: ClientAppView, *, file: str) -> Sequence[str]:
    return (
        app.name,
        app.priority,
        SHARE.write(app.share).strip('"'),
        DURATION.write(app.hold_s).strip('"'),
        f"{app.queries_today:,}",
        f"{app.grabs_today:,}",
        file if app.from_file else "by command",
        ", ".join(f"{each.source} {each.queries_today}+{each.grabs_today}" for each in app.sources) or "-",
    )


def _added(session: CommandSession, name: str, key: str) -> Iterator[str]:
    web = session.settings.web
    gate = f"http://{web.address.shown}{web.url_base.rstrip('/')}/gate"
    yield f"{name} is added. Its key is shown this once; only a digest of it is kept:"
    yield f"  {key}"
    yield f"in the app: URL {gate}/combined, or {gate}/SOURCE for one site; API path /api"
    yield "a running service lets it in within seconds"
