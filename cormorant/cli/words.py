"""How does the command line speak? Exit codes, refusals without a traceback, chains of causes, the option `--config`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import click
from typing_extensions import override

from cormorant.rules.secrets import hide_passwords

__all__ = ["EXIT_FAILED", "EXIT_OK", "EXIT_REFUSED", "Refused", "causes", "config_option", "shown_path"]

EXIT_OK = 0
EXIT_FAILED = 1
"""Something failed, or had to be forced."""
EXIT_REFUSED = 2
"""What was asked for cannot be started. Nothing was changed."""

_CAUSES_MAX = 20

F = TypeVar("F", bound=Callable[..., Any])


class Refused(click.ClickException):
    """What was asked for cannot be done as things are. Shown without a traceback: it is no crash of ours."""

    exit_code = EXIT_REFUSED

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__("\n".join([message, *(f"  {problem}" for problem in problems)]))
        self.problems = tuple(problems)

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"cormorant: {self.format_message()}", file=file, err=True)


def config_option(command: F) -> F:
    """The option that names the settings file."""
    option = click.option(
        "--config",
        "-c",
        default="config.toml",
        show_default=True,
        envvar="CORMORANT_CONFIG",
        show_envvar=True,
        metavar="FILE",
        help="The settings file.",
    )
    return option(command)


def causes(error: BaseException) -> Iterator[str]:
    """An error and what caused it, one line each, from the outside in."""
    yield from _causes(error, depth=0, said="", left=_CAUSES_MAX)


def _causes(error: BaseException, *, depth: int, said: str, left: int) -> Iterator[str]:
    text = hide_passwords(" ".join(str(error).split())) or type(error).__name__
    if text not in said:
        yield f"{'  ' * depth}because {text}" if depth else text
        depth += 1
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for each in within or ([cause] if cause else []):
        if left:  # causes may run in a circle
            yield from _causes(each, depth=depth, said=text, left=left - 1)


def shown_path(path: str) -> str:
    """A path as short as it can be written from here."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
