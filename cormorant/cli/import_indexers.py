"""`cormorant import`: take over the indexers of Prowlarr or Jackett, and leave every tracker's secret where it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from cormorant.cli.console.command_line import (
    HintingGroup,
    UsageRefused,
    config_option,
    json_option,
    key_of,
    key_options,
)
from cormorant.cli.sources import EXIT_CODES
from cormorant.rules.addresses import web_address_problem

__all__ = ["adopt"]

F = TypeVar("F", bound=Callable[..., Any])


@click.group("import", cls=HintingGroup, short_help="Adopt the indexers of Prowlarr or Jackett.", epilog=EXIT_CODES)
def adopt() -> None:
    """Adopt the indexers of Prowlarr or Jackett as sources.

    Each is asked through Prowlarr or Jackett as before, with the one key of that program: no password or passkey of a
    tracker moves. Run it again whenever something changed there: what is known is brought up to date, nothing is added
    twice, and what was spent at a site stays spent.
    """


def _options(command: F) -> F:
    for option in (
        click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing."),
        click.option(
            "--only",
            "only",
            multiple=True,
            metavar="NAME",
            help="Only this indexer, by its name there; may be repeated.",
        ),
        click.option(
            "--limits",
            metavar="NAME",
            help="Limits for all: private, default, or [limits.NAME] of the file.  [default: private, for public trackers default]",
        ),
        key_options,
        click.argument("url", metavar="URL"),
        json_option,
        config_option,
    ):
        command = option(command)
    return command


@adopt.command(short_help="Adopt the indexers of Prowlarr.", epilog=EXIT_CODES)
@_options
def prowlarr(**words: Any) -> None:
    """Adopt the indexers of the Prowlarr at URL, such as http://prowlarr:9696.

    Its key is asked for, or read from standard input, unless --key-env or --key-file says where it is.
    """
    _run("Prowlarr", **words)


@adopt.command(short_help="Adopt the indexers of Jackett.", epilog=EXIT_CODES)
@_options
def jackett(**words: Any) -> None:
    """Adopt the indexers of the Jackett at URL, such as http://jackett:9117.

    Its key is asked for, or read from standard input, unless --key-env or --key-file says where it is.
    """
    _run("Jackett", **words)


def _run(app: str, *, config: str, url: str, **words: Any) -> None:
    problem = web_address_problem(url)
    if problem:
        raise UsageRefused(f"URL: {problem.replace('http://prowlarr:9696/1/api', f'http://{app.lower()}:9696')}")
    key = key_of(app, words.pop("key_env"), words.pop("key_file"))
    from cormorant.cli.actions.import_indexers import ImportOptions, adopt_now  # noqa: PLC0415  # `--help` need not wait for the database's driver

    sys.exit(adopt_now(config, ImportOptions(app=app, url=url.rstrip("/"), key=key, **words)))
