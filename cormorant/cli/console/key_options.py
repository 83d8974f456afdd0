"""How does a command get the key of another app? From a variable, a file, or a prompt; never from the list of processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from cormorant.cli.console.command_line import UsageRefused
from cormorant.rules.secrets import Secret

__all__ = ["key_of", "key_options"]

F = TypeVar("F", bound=Callable[..., Any])

KEY_LENGTH_MAX: Final = 1_000


def key_options(command: F) -> F:
    """The options `--key-env` and `--key-file`."""
    for option in (
        click.option(
            "--key-file", type=click.File("r"), metavar="FILE", help="File that holds its key; - is standard input."
        ),
        click.option("--key-env", metavar="NAME", help="Variable of the environment that holds its key."),
    ):
        command = option(command)
    return command


def key_of(app: str, variable: str | None, file: Any) -> Secret:
    """The key that was given, or asked for. Invariant: no message holds it."""
    if variable is not None and file is not None:
        raise click.UsageError("give --key-env or --key-file, not both")
    if variable is not None:
        if not os.environ.get(variable):
            raise UsageRefused(f"--key-env: the environment variable {variable} is not set; set it to the key of {app}")
        text = os.environ[variable]
    elif file is not None:
        text = file.read(KEY_LENGTH_MAX + 2)
    elif sys.stdin.isatty():
        text = click.prompt(f"Key of {app} (Settings, General there)", hide_input=True, err=True)
    else:
        text = sys.stdin.readline(KEY_LENGTH_MAX + 2)
    text = text.strip()
    if not text:
        raise UsageRefused(
            f"the key of {app} is empty; give it with --key-env, with --key-file, or when you are asked for it"
        )
    if len(text) > KEY_LENGTH_MAX or not text.isprintable() or " " in text:
        raise UsageRefused(
            f"the key of {app}: it is no single word of at most 1000 letters; was something else pasted with it?"
        )
    return Secret(text)
