"""Options that all commands of watches share."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click
from typing_extensions import override

from cormorant.cli.jobs import ID_MOST, Duration
from cormorant.rules.watch.artists import Start, read_start

if TYPE_CHECKING:
    from cormorant.cli.actions.watches import WatchActions

__all__ = ["LIMIT", "NameList", "RowId", "StartAt", "order_options", "run_action"]

F = TypeVar("F", bound=Callable[..., Any])

LIMIT: Final = click.IntRange(1, 1_000)


class NameList(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


class RowId(click.ParamType[int]):
    """The number of a want or a download."""

    name = "id"

    def __init__(self, what: str) -> None:
        self.what = what

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        is_short = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < len(str(ID_MOST))
        if not is_short or not int(value):
            self.fail(f"{value!r} is not the number of a {self.what}", param, ctx)
        return int(value)


class StartAt(click.ParamType[tuple[Start, date | None]]):
    """From when on releases are wanted."""

    name = "start"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return value if isinstance(value, tuple) else read_start(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


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


def run_action(
    config: str, action: Callable[[WatchActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> NoReturn:
    """Run an action and end with its exit code."""
    from cormorant.cli.actions.watches import run_watch_action  # noqa: PLC0415  # `--help` need not wait for the database's driver

    sys.exit(run_watch_action(config, action, as_json=as_json, may_make=may_make))
