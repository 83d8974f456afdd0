"""`cormorant clients`: which apps search through the gate, how urgent each is, and what each has spent."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs
import click

from cormorant.cli.console.command_line import HintingGroup, UsageRefused, config_option, json_option
from cormorant.cli.sources import SettingValue
from cormorant.rules.settings.fields import Setting, name_problem
from cormorant.rules.settings.service import ClientSettings

if TYPE_CHECKING:
    from cormorant.cli.actions.clients import ClientActions

__all__ = ["EXIT_CODES", "clients"]

F = TypeVar("F", bound=Callable[..., Any])

EXIT_CODES = """\b
Exit codes: 0  done
            1  it could not be done, and the reason is told
            2  bad input or settings, or the database cannot be used; nothing was changed
"""


def _options(command: F) -> F:
    return config_option(json_option(command))


def _treatment(command: F) -> F:
    """An option for each setting of a client but its key, in the words of the settings file."""
    for attribute in reversed(attrs.fields(ClientSettings)):
        setting: Setting = attribute.metadata[Setting.KEY]
        if attribute.name == "key":
            continue
        option = click.option(
            f"--{setting.key(attribute.name)}",
            attribute.name,
            type=click.Choice(setting.choices) if setting.choices else SettingValue(setting),
            default=attribute.default if setting.choices else setting.kind.write(attribute.default).strip('"'),
            show_default=True,
            metavar=None if setting.choices else setting.key(attribute.name).upper(),
            help=setting.meaning,
        )
        command = option(command)
    return command


_NAME = click.argument("name", metavar="NAME")


@click.group(cls=HintingGroup, short_help="Add, list and remove apps that search through the gate.", epilog=EXIT_CODES)
def clients() -> None:
    """Add, list and remove the apps that search through the gate. Each has a key of its own, which says who asks.

    Works beside a running service, which takes every change in within seconds, and without one. Apps of the settings file
    are listed here too; to change or remove one, edit the file.
    """


@clients.command("list", short_help="All apps: priority, share, hold, and what each has spent.", epilog=EXIT_CODES)
@_options
def list_clients(config: str, *, as_json: bool) -> None:
    """All apps: how each is treated, and what each has spent in the last 24 hours. Keys are never shown."""
    _run(config, lambda actions: actions.list_clients(), as_json=as_json)


@clients.command(short_help="Add an app and show its key, once.", epilog=EXIT_CODES)
@_options
@_NAME
@_treatment
def add(config: str, *, as_json: bool, name: str, **chosen: Any) -> None:
    """Add an app: NAME is yours to choose, such as sonarr. Its key is shown this once; only a digest of it is kept."""
    problem = name_problem(name)
    if problem:
        raise UsageRefused(f"NAME: {problem}")
    _run(config, lambda actions: actions.add(name, ClientSettings(**chosen)), as_json=as_json, may_make=True)


@clients.command(short_help="Remove an app that was added by command.", epilog=EXIT_CODES)
@_options
@_NAME
def remove(config: str, *, as_json: bool, name: str) -> None:
    """Let an app in no more that was added by command. Its key and its links open nothing; what it spent stays spent."""
    _run(config, lambda actions: actions.remove(name), as_json=as_json)


def _run(
    config: str, action: Callable[[ClientActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> NoReturn:
    from cormorant.cli.actions.clients import run_client_action  # noqa: PLC0415  # `--help` need not wait for the database's driver

    sys.exit(run_client_action(config, action, as_json=as_json, may_make=may_make))
