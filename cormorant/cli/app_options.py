"""Options that `connect` and `disconnect` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from attrs import frozen

from cormorant.cli.console.command_line import UsageRefused, config_option, json_option, key_of, key_options
from cormorant.rules.addresses import web_address_problem
from cormorant.rules.secrets import Secret

__all__ = ["AppOptions", "app_arguments", "app_options", "read_app_words"]

F = TypeVar("F", bound=Callable[..., Any])

TITLES: Final = {"sonarr": "Sonarr", "radarr": "Radarr", "lidarr": "Lidarr"}
_EXAMPLE: Final = "http://prowlarr:9696/1/api"
_PORTS: Final = {"sonarr": 8989, "radarr": 7878, "lidarr": 8686}


@frozen(kw_only=True)
class AppOptions:
    """What was asked for on the command line."""

    app: str
    url: str
    key: Secret
    gate: str | None
    dry_run: bool
    as_json: bool
    combined: bool = False
    client: str | None = None

    @property
    def title(self) -> str:
        """What people call the app."""
        return TITLES[self.app]


def app_arguments(command: F) -> F:
    """The app and its address."""
    name = click.argument("app", type=click.Choice(list(TITLES)), metavar="sonarr|radarr|lidarr")
    return name(click.argument("url", metavar="URL")(command))


def app_options(command: F) -> F:
    """The options that both have."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing."),
        click.option(
            "--gate",
            metavar="URL",
            help="Our address as the app sees it, such as http://cormorant:7979.  [default: web.listen]",
        ),
        key_options,
        json_option,
        config_option,
    ):
        command = option(command)
    return command


def read_app_words(words: dict[str, Any]) -> AppOptions:
    """What was written, or a refusal that names what is wrong in it."""
    app = words["app"]
    _check("URL", words["url"], f"http://{app}:{_PORTS[app]}")
    if words["gate"] is not None:
        _check("--gate", words["gate"], "http://cormorant:7979")
    key = key_of(TITLES[app], words.pop("key_env"), words.pop("key_file"))
    words["url"] = words["url"].rstrip("/")
    return AppOptions(key=key, **words)


def _check(what: str, address: str, example: str) -> None:
    problem = web_address_problem(address)
    if problem:
        raise UsageRefused(f"{what}: {problem.replace(_EXAMPLE, example)}")
