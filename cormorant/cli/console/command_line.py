"""Exit codes, refusals, shared options and option types, keys of other apps."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import attrs
import click
from typing_extensions import override

from cormorant.cli.console.output import printable, write
from cormorant.rules.addresses import web_address_problem
from cormorant.rules.secrets import Secret, redact_secrets
from cormorant.rules.settings.fields import Setting
from cormorant.rules.settings.keys import nearest
from cormorant.rules.units import parse_duration

EXIT_OK = 0
EXIT_FAILED = 1
"""Something failed, or had to be forced."""
EXIT_REFUSED = 2
"""What was asked for cannot be started. Nothing was changed."""

_CAUSES_MAX = 20

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
SessionFunction = Callable[..., Awaitable[int]]
"""Gets a `CommandSession` and the arguments of the command, and returns the exit code."""


class UsageRefused(click.ClickException):
    """What was asked for cannot be done as things are. Shown without a traceback: it is no crash of ours."""

    exit_code = EXIT_REFUSED

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__("\n".join([message, *(f"  {problem}" for problem in problems)]))
        self.problems = tuple(problems)

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        told = f"cormorant: {self.format_message()}"
        if file is None:
            write(told, err=True)  # the exit code must come through, whatever becomes of the words
        else:
            click.echo(told, file=file)


class CommandFailed(UsageRefused):
    """What was asked for was tried and could not be done."""

    exit_code = EXIT_FAILED


class CommandInterrupted(UsageRefused):
    """Somebody had enough of waiting. The exit code is the one that shells give to Ctrl-C."""

    exit_code = 130


class HintingGroup(click.Group):
    """Commands under one name, shown in the order they were made; a mistyped one gets a hint."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            meant = nearest(args[0], known)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def session_command(
        self, short_help: str, *, name: str | None = None, **how: Any
    ) -> Callable[[SessionFunction], click.Command]:
        """Make a command of this group, with its exit codes. `how` is that of `session_command`."""

        def decorate(function: SessionFunction) -> click.Command:
            command = session_command(**how)(function)
            return self.command(name, short_help=short_help, epilog=self.epilog)(command)

        return decorate


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator of several: options and arguments in the order of the help."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


config_option = click.option(
    "--config",
    "-c",
    default="config.toml",
    show_default=True,
    envvar="CORMORANT_CONFIG",
    show_envvar=True,
    metavar="FILE",
    help="The settings file.",
)
options = together(config_option, click.option("--json", "as_json", is_flag=True, help="The same for programs."))
"""The options of every command."""


def causes(error: BaseException, secrets: Iterable[Secret] = ()) -> Iterator[str]:
    """An error and what caused it, one line each, from the outside in, without these secrets and all passwords."""
    known = tuple(secrets)

    def line_of(each: BaseException) -> str:
        # Hidden first: a secret may have a space that is about to go.
        return " ".join(redact_secrets(str(each), known).split()) or type(each).__name__

    yield from _causes(error, line_of, depth=0, said="", left=_CAUSES_MAX)


def _causes(
    error: BaseException, line_of: Callable[[BaseException], str], *, depth: int, said: str, left: int
) -> Iterator[str]:
    text = line_of(error)
    if text not in said:
        yield f"{'  ' * depth}because {text}" if depth else text
        depth += 1
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for each in within or ([cause] if cause else []):
        if left:  # causes may run in a circle
            yield from _causes(each, line_of, depth=depth, said=text, left=left - 1)


def display_path(path: str) -> str:
    """A path as short as it can be written from here, in one line whatever it is made of."""
    try:
        return printable(str(Path(path).relative_to(Path.cwd())))
    except (OSError, ValueError):  # it is elsewhere, or here has been removed
        return printable(path)


KEY_LENGTH_MAX: Final = 1_000
_EXAMPLE: Final = "http://prowlarr:9696/1/api"
"""The example in the refusal of a wrong address."""


key_options = together(
    click.option("--key-env", metavar="NAME", help="Variable of the environment that holds its key."),
    click.option(
        "--key-file", type=click.File("r"), metavar="FILE", help="File that holds its key; - is standard input."
    ),
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")


def access_to(app: str, *, url: str, key_env: str | None, key_file: Any, example: str) -> dict[str, Any]:
    """The address and the key of another program. A wrong address is refused before the key is asked for."""
    address = checked_address("URL", url, example)
    if key_env is not None and key_file is not None:
        raise click.UsageError("give --key-env or --key-file, not both")
    if key_env is not None and not os.environ.get(key_env):
        raise UsageRefused(f"--key-env: the environment variable {key_env} is not set; set it to the key of {app}")
    given = None if key_env is None else os.environ[key_env]
    key = read_key(f"the key of {app}", given, key_file, question=f"Key of {app} (Settings, General there)")
    if not key:
        raise UsageRefused(
            f"the key of {app} is empty; give it with --key-env, with --key-file, or when you are asked for it"
        )
    return {"url": address, "key": key}


def parsed_setting(cls: type, name: str, text: str, *, shown: str) -> Any:
    """The value of a setting, or a refusal. Invariant: what was typed is not repeated, for a key may be in it."""
    setting: Setting = attrs.fields_dict(cls)[name].metadata[Setting.KEY]
    try:
        return setting.parse(text)
    except ValueError as error:
        raise UsageRefused(f"{shown}: {error}") from None


def checked_address(what: str, address: str, example: str) -> str:
    """The address of another program without a slash at its end, or a refusal that shows an example."""
    problem = web_address_problem(address)
    if problem:
        raise UsageRefused(f"{what}: {problem.replace(_EXAMPLE, example)}")
    return address.rstrip("/")


def read_key(what: str, given: str | None, file: Any, *, question: str, default: str | None = None) -> Secret:
    """The key that was given, that is in a file, or that is asked for. Invariant: no message holds it."""
    if given is not None:
        text = given
    elif file is not None:
        text = file.read(KEY_LENGTH_MAX + 2)
    elif sys.stdin.isatty():
        text = click.prompt(question, default=default, show_default=False, hide_input=True, err=True)
    else:
        text = sys.stdin.readline(KEY_LENGTH_MAX + 2)
    text = text.strip()
    if len(text) > KEY_LENGTH_MAX or not text.isprintable() or " " in text:
        raise UsageRefused(f"{what}: it is no single word of at most 1000 letters; was something else pasted with it?")
    return Secret(text)


EXIT_CODES: Final = """\b
Exit codes: 0  done
            1  it could not be done, and the reason is told
            2  bad input or settings, or the database cannot be used; nothing was changed
"""


ID_MOST: Final = 2**63 - 1
"""Beyond that no database could have it."""
LIMIT: Final = click.IntRange(1, 1_000)


class Parsed(click.ParamType[T]):
    """A value that a function reads from what was typed. The function raises ValueError for what it cannot read."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self.read = read

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        try:
            return self.read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(Parsed[float]):
    """A written duration, as in the settings."""

    def __init__(self) -> None:
        super().__init__("duration", parse_duration)


class RowId(Parsed[int]):
    """The number of a job, a want or a download."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__("id", self._number)

    def _number(self, text: str) -> int:
        is_short = text.isascii() and text.isdecimal() and len(text) <= len(str(ID_MOST))
        number = int(text) if is_short else 0
        if not 1 <= number <= ID_MOST:
            raise ValueError(f"{text!r} is not the number of a {self.what}")
        return number


class SettingValue(Parsed[Any]):
    """A value as the settings file writes it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.kind.name, lambda text: setting.parse(setting.kind.from_environment(text)))


def session_command(
    *,
    may_make: bool = False,
    has_database: bool = True,
    before: Callable[..., dict[str, Any]] = dict,
    **told: str,
) -> Callable[[SessionFunction], Callable[..., None]]:
    """Make a command of an async function: add --config and --json, open a session, and end with the exit code it returns.

    `before` gets the arguments of the command line before a session is opened, and returns those of the function: what it
    refuses makes no database, and Ctrl-C ends what it asks. The other arguments are those of `run_in_session`.
    """

    def decorate(function: SessionFunction) -> Callable[..., None]:
        @options
        @wraps(function)
        def run(config: str, *, as_json: bool, **given: Any) -> None:
            from cormorant.cli.console.database_session import run_in_session  # noqa: PLC0415 - `--help` need not wait for it

            work = partial(function, **before(**given))
            sys.exit(
                run_in_session(config, work, as_json=as_json, may_make=may_make, has_database=has_database, **told)
            )

        return run

    return decorate
